"""MLflow: a run of the experiment that MLFLOW_EXPERIMENT_NAME names, at MLFLOW_TRACKING_URI."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dudx.lab.run.loggers import missing


class MLflow:
    """A run in MLflow, named like the run's folder."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]):
        try:
            import mlflow  # type: ignore[import-not-found]
        except ImportError as error:
            raise missing("mlflow", "MLflow", error) from error
        self._mlflow, self._folder, self._settings, self._begun = mlflow, folder, dict(settings), False

    def log(self, epoch: int, values: Mapping[str, float]) -> None:
        if not self._begun:
            self._mlflow.start_run(run_name=self._folder.resolve().name)
            self._mlflow.log_params(self._settings)
            self._begun = True
        self._mlflow.log_metrics(dict(values), step=epoch)

    def close(self) -> None:
        if self._begun:
            self._mlflow.end_run()


LOGGER = MLflow
