"""Figure 1: Poisson's equation solved with stochastic finite differences."""

from __future__ import annotations

from pathlib import Path

from dudx.lab import plots
from dudx.lab.problems import problem
from dudx.lab.sweep.sweep_run import Run
from reproduction.analysis.figures import notice
from reproduction.analysis.published import published
from reproduction.experiment import Experiment, ExperimentResults, named
from reproduction.profile import Profile


def _runs(profile: Profile) -> list[Run]:
    chosen = profile.trainings("poisson").settings if profile.picture is None else profile.picture
    return [named(profile.settings("poisson", engine="sfd", seed=profile.picture_seed, **chosen))]


def _figure(results: ExperimentResults, path: Path) -> None:
    (run,) = results.runs
    if run["prediction"] is not None:
        plots.solution(path, problem("poisson"), **run["prediction"])
    else:
        notice(path, f"The run {run['name']} {run['status']}: {run['reason'] or 'its loss is not finite'}")


EXPERIMENT = Experiment(
    "fig-1",
    "Poisson solved with sFD: prediction, reference, error",
    runs=_runs,
    figure=_figure,
    note=f"Published: {published('fig-1')['sfd']:g} % with sFD and {published('fig-1')['ad']:g} % with AD.",
    needs_prediction=True,
    position=1,
)
