from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from resuming import assert_resumed_bit_for_bit, killed_at, parameters, same
from sweeps import epoch as reached
from sweeps import wait_until

from dudx.engines import engines
from dudx.errors import InputError
from dudx.lab import cli, file_formats, make_settings, train
from dudx.lab.run.engine_table import engine_label
from dudx.lab.run.settings import Settings

SLOW_EPOCH = """
import sys, time
from pathlib import Path
from dudx.lab.run import training
from dudx.lab.run.settings import from_toml
original = training.Trainer._epoch
def slow(self):
    original(self)
    time.sleep(0.05)
training.Trainer._epoch = slow
out, resume = Path(sys.argv[2]), sys.argv[3] == "resume"
result = training.train(from_toml(Path(sys.argv[1]).read_text(), "settings"), out, resume=resume)
sys.exit(0 if result["status"] == "finished" else 7)
"""


def start(settings: Settings, folder: Path, tmp_path: Path, resume: bool = False) -> subprocess.Popen:
    from dudx.lab.run.settings import to_toml

    config = tmp_path / "settings.toml"
    config.write_text(to_toml(settings))
    script = tmp_path / "slow.py"
    script.write_text(SLOW_EPOCH)
    return subprocess.Popen(
        [sys.executable, str(script), str(config), str(folder), "resume" if resume else "start"],
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_epoch(folder: Path, epoch: int) -> None:
    wait_until(lambda: reached(folder) >= epoch, "the run gets that far", seconds=30)


@pytest.mark.slow
def test_killed_and_resumed_ends_bit_for_bit_where_the_undisturbed_run_does(tmp_path: Path) -> None:
    settings = make_settings("burgers", "smoke", engine="sfd", lbfgs_epochs=6)
    train(settings, tmp_path / "whole")
    process = start(settings, tmp_path / "killed", tmp_path)
    wait_for_epoch(tmp_path / "killed", 5)
    process.kill()
    process.communicate()
    assert not (tmp_path / "killed" / "result.json").exists()
    train(settings, tmp_path / "killed", resume=True)
    assert_resumed_bit_for_bit(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.parametrize("engine", [name for name in engines() if name != "per-sample"])  # which is slow
def test_every_engine_resumes_bit_for_bit(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make_settings("burgers", "smoke", engine=engine, lbfgs_epochs=6 if engine in ("ad", "sfd") else 0)
    train(settings, tmp_path / "whole")
    killed_at(13, settings, tmp_path / "killed", monkeypatch)
    assert not (tmp_path / "killed" / "result.json").exists()
    assert reached(tmp_path / "killed") == 10
    train(settings, tmp_path / "killed", resume=True)
    assert_resumed_bit_for_bit(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.parametrize("optimizer", ["soap", "torch.optim:RMSprop", "lbfgs", "broyden"])
def test_other_optimizers_resume_bit_for_bit_too(
    optimizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_settings("poisson", "smoke", optimizer=optimizer, engine="sfd")
    train(settings, tmp_path / "whole")
    killed_at(13, settings, tmp_path / "cut", monkeypatch)
    train(settings, tmp_path / "cut", resume=True)
    assert_resumed_bit_for_bit(tmp_path / "whole", tmp_path / "cut")


# -- an engine of one's own ------------------------------------------------------------------------------------------


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's module can be imported, here and in processes that are started."""
    here = str(Path(__file__).parents[1] / "support")
    monkeypatch.syspath_prepend(here)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, *sys.path])))


@pytest.mark.slow
def test_an_engine_of_ones_own_with_state_is_killed_and_resumes_bit_for_bit(own: None, tmp_path: Path) -> None:
    settings = make_settings("burgers", "smoke", engine="own_engine:Wary", recalibrate=6, epochs=60)
    result = train(settings, tmp_path / "whole")
    assert result["status"] == "finished"
    process = start(settings, tmp_path / "killed", tmp_path)
    wait_for_epoch(tmp_path / "killed", 10)
    process.kill()
    process.communicate()
    state = file_formats.read_checkpoint(tmp_path / "killed" / "checkpoint.pt")["loop"]["engine"]
    assert state.keys() == {"step", "looks", "level"}
    assert 2 <= state["looks"] < 10
    train(settings, tmp_path / "killed", resume=True)
    assert_resumed_bit_for_bit(tmp_path / "whole", tmp_path / "killed")
    ends = [file_formats.read_checkpoint(tmp_path / f / "checkpoint.pt")["loop"]["engine"] for f in ("whole", "killed")]
    assert ends[0] == ends[1]
    assert ends[0]["looks"] == 10
    assert result["step"] == f"{ends[0]['step']:.2e}"


def test_an_engine_with_one_method_trains_from_the_command_line(
    own: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--profile", "smoke", "--epochs", "5", "--engine"]
    for engine in ("own_engine:Simple", "ad"):
        out = tmp_path / engine.replace(":", "-")
        monkeypatch.setattr(sys, "argv", ["dudx", "train", "poisson", *options, engine, "--out", str(out)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert not stop.value.code
    assert same(parameters(tmp_path / "own_engine-Simple"), parameters(tmp_path / "ad"))
    assert engine_label("own_engine:Simple") == "Simple"
    assert engine_label("own_engine:Wary") == "Wary"


@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        ("own_engine:no_engine", "must be a class derived from dudx.Engine"),
        ("own_engine:Nothing", "has nothing named 'Nothing' to use as engine"),
        ("own_engine:Hoarding", "The state of the engine 'own_engine:Hoarding' holds a Generator"),
    ],
)
def test_an_engine_that_cannot_be_used_is_one_sentence(engine: str, sentence: str, own: None, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        train(make_settings("poisson", "smoke", engine=engine), tmp_path / "run")


def test_a_run_of_one_engine_is_not_resumed_with_the_state_of_another(tmp_path: Path) -> None:
    train(make_settings("poisson", "smoke", engine="fd"), tmp_path / "fd")
    train(make_settings("poisson", "smoke", engine="ad"), tmp_path / "ad")
    shutil.copy(tmp_path / "fd" / "checkpoint.pt", tmp_path / "ad" / "checkpoint.pt")
    with pytest.raises(InputError, match="does not fit the settings: AD keeps no state"):
        train(make_settings("poisson", "smoke", engine="ad"), tmp_path / "ad", resume=True)


@pytest.mark.slow
def test_control_c_finishes_the_epoch_and_loses_nothing(tmp_path: Path) -> None:
    settings = make_settings("burgers", "smoke", engine="sfd", checkpoint_every=1000, evaluate_every=1000)
    process = start(settings, tmp_path / "run", tmp_path)
    wait_for_epoch(tmp_path / "run", 0)
    time.sleep(0.4)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 7
    result = file_formats.read_json(tmp_path / "run" / "result.json")
    assert result["status"] == "interrupted"
    assert 0 < result["epochs"] < 20
    assert file_formats.read_checkpoint(tmp_path / "run" / "checkpoint.pt")["loop"]["epoch"] == result["epochs"]
    train(settings, tmp_path / "run", resume=True)
    train(settings, tmp_path / "whole")
    assert same(parameters(tmp_path / "whole"), parameters(tmp_path / "run"))
