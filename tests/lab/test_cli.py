from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from dudx.lab import make_settings, storage, train
from dudx.lab.cli import app


def dudx(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "dudx.lab.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        check=False,
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    train(make_settings("poisson", "smoke", engine="fd"), folder)
    return folder


def test_train_prints_the_error_and_leaves_pictures(tmp_path: Path) -> None:
    done = dudx(
        "train",
        "burgers",
        "--profile",
        "smoke",
        "--engine",
        "efd",
        "--epochs",
        "6",
        "--batch",
        "32",
        "--width",
        "8",
        "--depth",
        "1",
        "--seed",
        "3",
        "--recalibrate",
        "2",
        "--out",
        str(tmp_path / "run"),
    )
    assert done.returncode == 0, done.stderr
    assert "relative L2" in done.stdout
    result = storage.read_json(tmp_path / "run" / "result.json")
    assert (result["engine"], result["epochs"], result["seed"]) == ("efd", 6, 3)
    for name in ("solution.png", "training.png", "calibration.png"):
        assert (tmp_path / "run" / name).read_bytes().startswith(b"\x89PNG")
    assert "epoch 6/6" in done.stderr  # plain lines where there is no terminal


def test_resume_from_the_command_line(tmp_path: Path, finished: Path) -> None:
    done = dudx("train", "poisson", "--out", str(finished), "--resume")
    assert done.returncode == 0, done.stderr
    assert "finished" in done.stdout


def test_plot_draws_again(finished: Path) -> None:
    done = dudx("plot", str(finished))
    assert done.returncode == 0, done.stderr
    assert (finished / "solution.png").exists()


@pytest.mark.parametrize("command", ["engines", "problems"])
def test_lists(command: str) -> None:
    done = dudx(command)
    assert done.returncode == 0
    for name in {"engines": ("ad", "fd", "efd", "sfd"), "problems": ("poisson", "burgers", "heat")}[command]:
        assert name in done.stdout


def test_calibrate_prints_a_step_for_each_order_and_draws(tmp_path: Path) -> None:
    done = dudx("calibrate", "burgers", "--profile", "smoke", "--out", str(tmp_path / "curve.png"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "curve.png").exists()
    assert "e-0" in done.stdout


def test_reference_tells_what_it_holds() -> None:
    done = dudx("reference", "poisson")
    assert done.returncode == 0
    assert "values from" in done.stdout


def test_a_file_of_the_benchmark_suite_is_scored_in_addition(tmp_path: Path) -> None:
    data = tmp_path / "burgers.dat"
    data.write_text("% x u @ t=0 u @ t=0.5\n-0.5 1.0 0.5\n0.5 -1.0 -0.5\n0.9 NaN NaN\n")
    done = dudx(
        "train",
        "burgers",
        "--profile",
        "smoke",
        "--epochs",
        "2",
        "--reference",
        str(data),
        "--out",
        str(tmp_path / "r"),
    )
    assert done.returncode == 0, done.stderr
    scores = storage.read_json(tmp_path / "r" / "result.json")["file_reference"]
    assert set(scores) == {"l2_relative", "smape", "max_error"}


COMMANDS = ("train", "calibrate", "reference", "engines", "problems", "plot", "doctor")


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
        "optimizer that is none": ([*run, "--optimizer", "torch.nn:Linear"], "cannot be made from parameters"),
        "own problem that is not there": (["train", "nowhere:p", "--out", str(tmp / "run")], "cannot be imported"),
        "negative batch": ([*run, "--batch", "-5"], "batch = -5"),
        "zero epochs": ([*run, "--epochs", "0"], "epochs = 0"),
        "zero width": ([*run, "--width", "0"], "width = 0"),
        "negative seed": ([*run, "--seed", "-1"], "seed = -1"),
        "learning rate NaN": ([*run, "--learning-rate", "nan"], "learning_rate = nan"),
        "learning rate infinite": ([*run, "--learning-rate", "inf"], "learning_rate = inf"),
        "no such device": ([*run, "--device", "abacus"], "device"),
        "no such profile": ([*with_profile, "huge"], "choose from cpu, paper, smoke"),
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
        "unknown reference": (["reference", "poisso"], "did you mean 'poisson'"),
        "picture in a folder that is not there": (
            ["calibrate", "poisson", "--profile", "smoke", "--out", str(tmp / "no" / "c.png")],
            "Cannot write",
        ),
        "picture of an unknown format": (
            ["calibrate", "poisson", "--profile", "smoke", "--out", str(tmp / "c.xyz")],
            "xyz",
        ),
    }


def test_hostile_input_gives_one_sentence_and_a_failing_exit(
    tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process, as starting 40 interpreters would take minutes; the entry point is the one users call."""
    from dudx.lab import cli

    wrong = []
    for name, (arguments, sentence) in hostile_cases(tmp_path, finished).items():
        monkeypatch.setattr(sys, "argv", ["dudx", *arguments])
        code, said = call(cli.main)
        if code in (0, None) or sentence not in said or said.count("\n") > 1 or "Traceback" in said:
            wrong.append(f"{name}: exit {code}, said {said!r}, expected {sentence!r}")
    assert not wrong, "\n".join(wrong)


def call(main: object) -> tuple[object, str]:
    import contextlib
    import io

    said = io.StringIO()
    code: object = 0
    with contextlib.redirect_stderr(said):
        try:
            main()  # type: ignore[operator]
        except SystemExit as stop:
            code = stop.code
        except Exception as error:
            return None, f"unexpected {error!r}"
    lines = [line for line in said.getvalue().splitlines() if " epoch " not in line]
    return code, "\n".join(lines)


def test_the_real_program_fails_the_same_way(tmp_path: Path) -> None:
    done = dudx("train", "poison", "--out", str(tmp_path / "run"))
    assert done.returncode == 1
    assert done.stderr.strip() == "dudx: There is no problem named 'poison'; did you mean 'poisson'?"
    assert not (tmp_path / "run").exists()


# -- doctor --------------------------------------------------------------------------------------------------------

PATIENTS = """
import torch
from torch import nn

made = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).double()
number = 3

def batch_norm():
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))

def random():
    print("started from", torch.rand(1).item())
    return batch_norm()

def raising():
    raise ValueError("no weights in this folder.\\nLook elsewhere.")

def needing(width):
    return nn.Linear(2, width)

def table():
    return {"net": batch_norm()}

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
    def forward(self, x):
        return self.layer(x), x

class Fourier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
    def forward(self, x):
        return self.layer(torch.cat([x.sin(), x.cos()], 1))

class Picky(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
    def forward(self, x):
        raise KeyError("temperature")

class Plain(nn.Module):
    def forward(self, x):
        return x.sin().sum(1, keepdim=True)
"""


@pytest.fixture
def patients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"patients_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(PATIENTS)
    (tmp_path / f"{name}_broken.py").write_text("def make(:\n")
    (tmp_path / f"{name}_failing.py").write_text("import no_such_thing_at_all\n")
    monkeypatch.chdir(tmp_path)
    return name


def ask(*arguments: str) -> tuple[int, str]:
    shown = CliRunner().invoke(app, ["doctor", *arguments])
    return shown.exit_code, shown.stdout


def test_doctor_tells_coupled_from_independent_by_its_exit_code(patients: str) -> None:
    code, said = ask(f"{patients}:batch_norm")
    assert code == 4
    assert "Sequential in training mode: samples influence each other (64 points, 2 inputs, float32)." in said
    assert "BatchNorm1d" in said
    assert "dudx.isolate(model, x)" in said
    code, said = ask(f"{patients}:batch_norm", "--eval", "--points", "5")
    assert code == 0
    assert "in evaluation mode: samples are independent (5 points, 2 inputs, float32)." in said


def test_doctor_takes_a_module_that_is_there_and_one_of_our_own(patients: str) -> None:
    code, said = ask(f"{patients}:made")
    assert code == 0
    assert "(64 points, 3 inputs, float64)" in said
    code, said = ask("attention", "--inputs", "3", "--points", "16")
    assert code == 4
    assert "MultiheadAttention" in said
    code, said = ask(f"{patients}:Plain", "--inputs", "2", "--low", "0", "--high", "3")
    assert code == 0
    code, said = ask(f"{patients}:Fourier", "--inputs", "2")
    assert code == 0


def test_doctor_says_the_same_every_time(patients: str) -> None:
    first, second, other = (ask(f"{patients}:random", "--seed", seed)[1] for seed in ("1", "1", "2"))
    assert first == second
    assert first != other


def test_doctor_refuses_in_one_sentence(patients: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dudx.lab import cli

    good = f"{patients}:batch_norm"
    cases = {
        "no such package": (["no.such.package:make"], "cannot be imported: No module named 'no'"),
        "no such module": (["torch.nowhere:make"], "cannot be imported: No module named 'torch.nowhere'"),
        "module that does not parse": ([f"{patients}_broken:make"], "SyntaxError"),
        "module that cannot import": ([f"{patients}_failing:make"], "No module named 'no_such_thing_at_all'"),
        "missing attribute": ([f"{patients}:missing"], "has nothing named 'missing' to use as network"),
        "mistyped name": (["batchnrom"], "did you mean 'batchnorm'"),
        "factory raises": ([f"{patients}:raising"], "cannot be made without arguments: ValueError: no weights in"),
        "factory wants arguments": ([f"{patients}:needing"], "TypeError: needing() missing 1 required positional"),
        "factory returns something else": ([f"{patients}:table"], "is a dict; it must be a torch module"),
        "something else": ([f"{patients}:number"], "is a int; it must be a torch module"),
        "two outputs": ([f"{patients}:Pair"], "The model returned a tuple of 2"),
        "wrong guess of the inputs": ([f"{patients}:Fourier"], "If 4 is not its number of inputs, give --inputs."),
        "wrong inputs": ([good, "--inputs", "5"], "The model failed on a batch of shape"),
        "no guess of the inputs": ([f"{patients}:Plain"], "cannot be told from a network without Linear layers"),
        "forward raises": ([f"{patients}:Picky"], "failed at 64 points: KeyError: 'temperature'"),
        "no points": ([good, "--points", "0"], "--points must be 1 or more; got 0"),
        "no inputs": ([good, "--inputs", "-1"], "--inputs must be 1 or more; got -1"),
        "bounds the wrong way round": ([good, "--low", "2"], "--low must be less than --high"),
        "bounds that are no numbers": ([good, "--high", "nan"], "both finite"),
        "negative seed": ([good, "--seed", "-4"], "--seed must be 0 or more; got -4"),
    }
    wrong = []
    for name, (arguments, sentence) in cases.items():
        monkeypatch.setattr(sys, "argv", ["dudx", "doctor", *arguments])
        code, said = call(cli.main)
        if code != 1 or sentence not in said or "\n" in said:
            wrong.append(f"{name}: exit {code}, said {said!r}, expected {sentence!r}")
    assert not wrong, "\n".join(wrong)
