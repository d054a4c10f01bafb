"""The numbers of a run go where they are asked to, beside its own files."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dudx.errors import InputError
from dudx.lab import file_formats, make_settings, train
from dudx.lab.run.loggers import loggers

TINY = {"width": 4, "depth": 1, "batch": 16, "boundary_batch": 8, "epochs": 4, "log_every": 2, "optimizer": "adam"}
LOGGER = """
seen = []

class Memory:
    def __init__(self, folder, settings):
        seen.append(("made", folder.name, settings["problem"]))

    def log(self, epoch, values):
        seen.append((epoch, values["loss"]))

    def close(self):
        seen.append("closed")
"""


def trained(folder: Path, **options: Any) -> list[dict[str, str]]:
    train(make_settings("poisson", "smoke", **TINY, **options), folder)
    return file_formats.read_table(folder / "metrics.csv")


def test_one_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_logger.py").write_text(LOGGER, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    rows = trained(tmp_path / "run", loggers="own_logger:Memory")
    first, *lines, last = sys.modules["own_logger"].seen
    assert first == ("made", "run", "poisson")
    assert last == "closed"
    assert lines == [(int(row["epoch"]), float(row["loss"])) for row in rows]


class Service(ModuleType):
    """Stands for wandb and for mlflow, neither of which is installed."""

    def __init__(self) -> None:
        super().__init__("service")
        self.said: list[Any] = []
        self.run = SimpleNamespace(log=lambda values, step: self.said.append((step, values)), finish=self._note("end"))
        self.init = lambda project, name, config: self.said.append((project, name)) or self.run
        self.start_run = lambda run_name: self.said.append(("dudx", run_name))
        self.log_params = lambda settings: None
        self.log_metrics = lambda values, step: self.said.append((step, values))
        self.end_run = self._note("end")

    def _note(self, word: str) -> Any:
        return lambda: self.said.append(word)


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_services(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service()
    monkeypatch.setitem(sys.modules, name, service)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    rows = trained(tmp_path / "run", loggers=name)
    assert service.said[0] == ("dudx", "run")
    assert [step for step, _ in service.said[1:-1]] == [int(row["epoch"]) for row in rows]
    assert service.said[1][1]["loss"] == float(rows[0]["loss"])
    assert service.said[-1] == "end"


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_what_is_not_installed_is_said_before_the_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # so that importing it fails
    with pytest.raises(InputError, match=f"pip install {name}"):
        trained(tmp_path / "run", loggers=name)
    assert not (tmp_path / "run" / "metrics.csv").exists()


def test_a_mistyped_name_is_corrected(tmp_path: Path) -> None:
    assert {"tensorboard", "wandb", "mlflow"} <= loggers().keys()
    with pytest.raises(InputError, match="did you mean 'wandb'"):
        trained(tmp_path / "run", loggers="wandbb")
