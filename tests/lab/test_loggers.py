"""The numbers of a run go where they are asked to, beside its own files."""

from __future__ import annotations

import sys
from pathlib import Path
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


def test_what_is_not_installed_is_said_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # so that importing it fails
    with pytest.raises(InputError, match="pip install tensorboard"):
        trained(tmp_path / "run", loggers="tensorboard")
    assert not (tmp_path / "run" / "metrics.csv").exists()


def test_a_mistyped_name_is_corrected(tmp_path: Path) -> None:
    assert "tensorboard" in loggers()
    with pytest.raises(InputError, match="did you mean 'tensorboard'"):
        trained(tmp_path / "run", loggers="tensorbord")
