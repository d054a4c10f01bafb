"""Weights & Biases: a run of the project `dudx`, or of the one that WANDB_PROJECT names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dudx.lab.run.loggers import missing


class WeightsAndBiases:
    """A run at Weights & Biases, named like the run's folder."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]):
        try:
            import wandb  # type: ignore[import-not-found]
        except ImportError as error:
            raise missing("wandb", "Weights & Biases", error) from error
        self._wandb, self._folder, self._settings, self._run = wandb, folder, dict(settings), None

    def log(self, epoch: int, values: Mapping[str, float]) -> None:
        if self._run is None:
            project = os.environ.get("WANDB_PROJECT", "dudx")
            self._run = self._wandb.init(project=project, name=self._folder.resolve().name, config=self._settings)
        self._run.log(dict(values), step=epoch)

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()


LOGGER = WeightsAndBiases
