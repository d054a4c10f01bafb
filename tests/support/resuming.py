"""Runs that are killed in the middle, and how to tell that they ended as if they had not been."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from dudx.lab import file_formats, train
from dudx.lab.run.settings import Settings
from dudx.lab.run.trainer import Trainer


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    return file_formats.read_checkpoint(folder / "checkpoint.pt")["model"]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


class Killed(BaseException):
    """Nothing in the trainer expects it, so that the folder is left as a kill leaves it."""


def killed_at(epoch: int, settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train as far as an epoch after a checkpoint, and no further."""
    original = Trainer._epoch

    def deadly(self: Trainer) -> None:
        if self.epoch == epoch:
            raise Killed
        original(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_epoch", deadly)
        with pytest.raises(Killed):
            train(settings, folder)


def assert_resumed_bit_for_bit(whole: Path, resumed: Path) -> None:
    assert same(parameters(whole), parameters(resumed))
    rows, calibrations = [], []
    for folder in (whole, resumed):
        table = file_formats.read_table(folder / "metrics.csv")
        rows.append([{key: value for key, value in row.items() if key != "seconds"} for row in table])
        calibrations.append(json.loads((folder / "calibrations.json").read_text()))
    assert rows[0] == rows[1]
    assert calibrations[0] == calibrations[1]
