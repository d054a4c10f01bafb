from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from commands import Said, call
from typer.testing import CliRunner

from dudx.lab import cli, file_formats, make_settings, train
from dudx.lab.cli import app
from dudx.lab.run.folder import settings_of
from dudx.lab.run.settings import Settings


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    train(make_settings("poisson", "smoke", engine="fd"), folder)
    return folder


def test_train_prints_the_error_and_leaves_pictures(dudx: Callable[..., Said], tmp_path: Path) -> None:
    options = "--profile smoke --engine efd --epochs 6 --batch 32 --width 8 --depth 1 --seed 3 --recalibrate 2"
    code, out, said = dudx("train", "burgers", *options.split(), "--out", str(tmp_path / "run"))
    assert code == 0, said
    assert "relative L2" in out
    result = file_formats.read_json(tmp_path / "run" / "result.json")
    assert (result["engine"], result["epochs"], result["seed"]) == ("efd", 6, 3)
    for name in ("solution.png", "training.png", "calibration.png"):
        assert (tmp_path / "run" / name).read_bytes().startswith(b"\x89PNG")
    assert "epoch 6/6" in said  # plain lines where there is no terminal


def test_every_setting_is_an_option_and_its_help_is_the_setting_s_own(
    dudx: Callable[..., Said], tmp_path: Path
) -> None:
    shown = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "400"}).stdout
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert " ".join(field.description.split()) in shown
        assert name == "problem" or f"--{name.replace('_', '-')}" in shown
    given = {"accuracy": 4, "rescale": True, "chunk": 16, "schedule": "constant", "weight_boundary": 3.0}
    given |= {"compile": False, "dtype": "float64", "checkpoint_every": 2, "epochs": 2, "calibration_largest": 0.3}
    arguments = []
    for key, value in given.items():
        arguments.append(f"--{'no-' if value is False else ''}{key.replace('_', '-')}")
        arguments += [] if isinstance(value, bool) else [str(value)]
    code, _, said = dudx("train", "poisson", "--profile", "smoke", *arguments, "--out", str(tmp_path / "run"))
    assert code == 0, said
    stored = settings_of(tmp_path / "run", {}).model_dump()
    assert given.items() <= stored.items()


def test_resume_from_the_command_line(dudx: Callable[..., Said], finished: Path) -> None:
    code, out, said = dudx("train", "poisson", "--out", str(finished), "--resume")
    assert code == 0, said
    assert "finished" in out


def test_plot_draws_again(dudx: Callable[..., Said], finished: Path) -> None:
    (finished / "solution.png").unlink(missing_ok=True)
    code, _, said = dudx("plot", str(finished))
    assert code == 0, said
    assert (finished / "solution.png").exists()


LISTS = {
    "engines": ("ad", "fd", "efd", "sfd", "taylor"),
    "problems": ("poisson", "burgers", "heat"),
    "networks": ("mlp", "featured", "batchnorm", "attention"),
    "optimizers": ("adam", "broyden", "lbfgs", "lm", "soap"),
}


@pytest.mark.parametrize("command", LISTS)
def test_lists(dudx: Callable[..., Said], command: str) -> None:
    code, out, _ = dudx(command)
    assert code == 0
    for name in LISTS[command]:
        assert name in out


def test_a_file_of_the_benchmark_suite_is_scored_in_addition(dudx: Callable[..., Said], tmp_path: Path) -> None:
    data = tmp_path / "burgers.dat"
    data.write_text("% x u @ t=0 u @ t=0.5\n-0.5 1.0 0.5\n0.5 -1.0 -0.5\n0.9 NaN NaN\n")
    options = ["--profile", "smoke", "--epochs", "2", "--reference", str(data), "--out", str(tmp_path / "r")]
    code, _, said = dudx("train", "burgers", *options)
    assert code == 0, said
    scores = file_formats.read_json(tmp_path / "r" / "result.json")["file_reference"]
    assert set(scores) == {"l2_relative", "smape", "max_error"}


COMMANDS = ("train", "sweep", "plot", *LISTS)


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_teaches(command: list[str]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"])
    assert shown.exit_code == 0
    assert "Usage" in shown.stdout


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def hostile_cases(tmp: Path, finished: Path) -> dict[str, tuple[list[str], str]]:
    """Every case: the command line, and what its one sentence says."""
    run = ["train", "poisson", "--profile", "smoke", "--out", str(tmp / "run")]
    truncated = tmp / "truncated"
    train(make_settings("poisson", "smoke"), truncated)
    (truncated / "checkpoint.pt").write_bytes((truncated / "checkpoint.pt").read_bytes()[:1000])
    other = tmp / "other"
    train(make_settings("poisson", "smoke"), other)
    train(make_settings("burgers", "smoke"), tmp / "burgers")
    (other / "checkpoint.pt").write_bytes((tmp / "burgers" / "checkpoint.pt").read_bytes())
    foreign = tmp / "foreign"
    train(make_settings("poisson", "smoke"), foreign)
    torch.save({"weights": torch.zeros(3), "problem": "poisson"}, foreign / "checkpoint.pt")
    broken = tmp / "broken"
    train(make_settings("poisson", "smoke"), broken)
    (broken / "prediction.npz").write_bytes(b"PK not an archive")
    bad_config = tmp / "bad-config"
    bad_config.mkdir()
    write(bad_config / "config.toml", "problem = poisson")
    with_profile = ["train", "poisson", "--out", str(tmp / "run"), "--profile"]
    with_data = [*run, "--reference"]
    return {
        "mistyped problem": (["train", "poison", "--out", str(tmp / "run")], "did you mean 'poisson'"),
        "unknown problem": (["train", "zebra", "--out", str(tmp / "run")], "choose from burgers, heat, poisson"),
        "mistyped engine": ([*run, "--engine", "edf"], "did you mean 'efd'"),
        "mistyped network": ([*run, "--network", "mpl"], "did you mean 'mlp'"),
        "mistyped optimizer": ([*run, "--optimizer", "adm"], "did you mean 'adam'"),
        "optimizer that cannot be imported": ([*run, "--optimizer", "no.such:Thing"], "cannot be imported"),
        "optimizer that is not there": ([*run, "--optimizer", "torch.optim:Adem"], "has nothing named 'Adem'"),
        "optimizer that is none": ([*run, "--optimizer", "torch.nn:Linear"], "cannot be constructed from"),
        "own problem that is not there": (["train", "nowhere:p", "--out", str(tmp / "run")], "cannot be imported"),
        "negative batch": ([*run, "--batch", "-5"], "batch = -5"),
        "zero epochs": ([*run, "--epochs", "0"], "epochs = 0"),
        "zero width": ([*run, "--width", "0"], "width = 0"),
        "negative seed": ([*run, "--seed", "-1"], "seed = -1"),
        "learning rate NaN": ([*run, "--learning-rate", "nan"], "learning_rate = nan"),
        "learning rate infinite": ([*run, "--learning-rate", "inf"], "learning_rate = inf"),
        "no such device": ([*run, "--device", "abacus"], "device"),
        "no such profile": ([*with_profile, "huge"], "choose from auto, cpu, paper, precise, smoke, soap"),
        "mistyped profile": ([*with_profile, "smok"], "did you mean 'smoke'"),
        "missing profile file": ([*with_profile, str(tmp / "none.toml")], "cannot be read"),
        "profile is not TOML": ([*with_profile, write(tmp / "a.toml", "epochs == 3")], "not valid TOML"),
        "profile with unknown key": (
            [*with_profile, write(tmp / "b.toml", "epochs = 3\nwitdh = 64\n")],
            "line 2: witdh = 64 is not right: there is no such",
        ),
        "profile with wrong type": (
            [*with_profile, write(tmp / "c.toml", 'batch = 8\n[poisson]\nepochs = "many"\n')],
            "line 3: epochs = 'many'",
        ),
        "profile with a wrong default": (
            [*with_profile, write(tmp / "c2.toml", "epochs = 0\n[heat]\nepochs = 3000\n")],
            "line 1: epochs = 0",
        ),
        "network that cannot be made": ([*run, "--network", "torch.nn:Tanh"], "cannot be made from (inputs, outputs, "),
        "existing run": (["train", "poisson", "--profile", "smoke", "--out", str(finished)], "--resume"),
        "resume with other settings": (
            ["train", "poisson", "--out", str(finished), "--resume", "--batch", "7"],
            "has batch = 64, not 7",
        ),
        "resume another problem": (
            ["train", "heat", "--out", str(finished), "--resume"],
            "is of the problem 'poisson'",
        ),
        "resume nothing": (["train", "poisson", "--out", str(tmp / "void"), "--resume"], "no run in"),
        "truncated checkpoint": (["train", "poisson", "--out", str(truncated), "--resume"], "is damaged"),
        "checkpoint of another problem": (
            ["train", "poisson", "--out", str(other), "--resume"],
            "of the problem 'burgers'",
        ),
        "checkpoint of something else": (["train", "poisson", "--out", str(foreign), "--resume"], "does not fit"),
        "damaged configuration": (["train", "poisson", "--out", str(bad_config), "--resume"], "not valid TOML"),
        "folder that cannot be made": (
            ["train", "poisson", "--profile", "smoke", "--out", "/proc/run"],
            "Cannot make the folder",
        ),
        "folder is a file": (
            ["train", "poisson", "--profile", "smoke", "--out", write(tmp / "file", "")],
            "Cannot make the folder",
        ),
        "missing data file": ([*with_data, str(tmp / "none.dat")], "cannot be read"),
        "data file with missing columns": (
            [*with_data, write(tmp / "d.dat", "% x y u\n0.1 0.2 1\n0.3 0.4\n")],
            "Line 3",
        ),
        "data file with words": ([*with_data, write(tmp / "e.dat", "0.1 0.2 one\n")], "not a number"),
        "empty data file": ([*with_data, write(tmp / "f.dat", "% nothing\n")], "no rows"),
        "plot without a run": (["plot", str(tmp / "void")], "There is no run"),
        "plot of a damaged run": (["plot", str(broken)], "is damaged"),
    }


def test_hostile_input_gives_one_sentence_and_a_failing_exit(
    tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process, as starting 40 interpreters would take minutes; the entry point is the one users call."""
    wrong = []
    for name, (arguments, sentence) in hostile_cases(tmp_path, finished).items():
        monkeypatch.setattr(sys, "argv", ["dudx", *arguments])
        code, said = call(cli.main)
        if code in (0, None) or sentence not in said or said.count("\n") > 1 or "Traceback" in said:
            wrong.append(f"{name}: exit {code}, said {said!r}, expected {sentence!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_the_real_program_fails_the_same_way(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dudx.lab.cli", "train", "poison", "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.strip() == "dudx: There is no problem named 'poison'; did you mean 'poisson'?"
    assert not (tmp_path / "run").exists()
