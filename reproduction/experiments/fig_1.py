"""The picture on the first page: Poisson's equation solved with stochastic finite differences."""

from __future__ import annotations

from pathlib import Path

from dudx.lab import file_formats, plots
from dudx.lab.problems import problem
from dudx.lab.sweep.sweep_run import Run
from reproduction.experiments import trained
from reproduction.experiments.base import CsvRows, Experiment, Found, NpzArrays, named
from reproduction.experiments.data import Data
from reproduction.experiments.pictures import notice
from reproduction.experiments.profile import Profile
from reproduction.experiments.published import published

_ARRAYS = ("points", "prediction", "reference")


def _runs(profile: Profile) -> list[Run]:
    chosen = profile.trainings("poisson").settings if profile.picture is None else profile.picture
    return [named(profile.settings("poisson", engine="sfd", seed=0, **chosen))]


def _collect(found: Found) -> dict[str, CsvRows | NpzArrays]:
    files: dict[str, CsvRows | NpzArrays] = {trained.RUNS: trained.run_rows(found)}
    for outcome in found.outcomes:
        if (found.runs / outcome.name / "prediction.npz").exists():
            files["solution.npz"] = file_formats.read_arrays(found.runs / outcome.name / "prediction.npz")
    return files


def _figure(data: Data, path: Path) -> None:
    (run,) = trained.read(data)
    if (data.folder / "solution.npz").exists():
        plots.solution(path, problem("poisson"), **data.arrays("solution.npz", _ARRAYS))
    else:
        notice(path, f"The run {run['name']} {run['status']}: {run['reason'] or 'its loss is not finite'}")


EXPERIMENT = Experiment(
    "fig-1",
    "Poisson solved with sFD: prediction, reference, error",
    _collect,
    runs=_runs,
    figure=_figure,
    note=f"Published: {published('fig-1')['sfd']:g} % with sFD and {published('fig-1')['ad']:g} % with AD.",
    archived=False,
    place=1,
)
