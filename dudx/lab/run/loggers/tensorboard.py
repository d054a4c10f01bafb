"""TensorBoard: event files in the run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dudx.errors import InputError


class TensorBoard:
    """TensorBoard's events, in the run's folder."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError("TensorBoard is not installed: pip install tensorboard, or leave it off.") from error
        self._make, self._folder, self._writer = SummaryWriter, folder, None

    def log(self, epoch: int, values: Mapping[str, float]) -> None:
        self._writer = self._writer or self._make(str(self._folder))  # not before: it makes the folder
        for name, value in values.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


LOGGER = TensorBoard
