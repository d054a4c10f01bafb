"""Solutions in the folders of their runs, and as starting points of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Protocol

from torch import nn

from dudx.errors import InputError
from dudx.lab.problems import Problem, problems
from dudx.lab.problems import problem as problem_named
from dudx.lab.run.coupled_view import InContext
from dudx.lab.run.folder import stored_settings
from dudx.lab.run.records import read_metrics, read_result
from dudx.lab.run.settings import Settings
from dudx.lab.run.trained_networks import read_trained, rebuilt
from dudx.lab.solving.time_windows import Windows, rebuilt_windows

#: The settings that a network is built from.
_BUILT_FROM = ("network", "width", "depth", "spread", "initialisation", "rescale", "dtype")


class StoredSolution(NamedTuple):
    """The content of a run's folder."""

    problem: Problem
    network: nn.Module
    settings: Settings
    result: dict[str, Any]
    history: list[dict[str, str]]
    folder: Path


class StartingPoint(Protocol):
    """A solution, as far as a training can start from it."""

    network: nn.Module
    settings: Settings


def read_solution(folder: Path, problem: Problem | None) -> StoredSolution:
    """Read a solution. Without a problem it must be one of the package's: no code that the folder names is run."""
    settings = stored_settings(folder, f"There is no run in {str(folder)!r}: config.toml cannot be read.")
    if problem is None:
        if settings.problem not in problems():
            raise InputError(
                f"The solution in {str(folder)!r} is of a problem of your own; give it too: "
                "Solution.load(folder, problem)."
            )
        problem = problem_named(settings.problem)
    if not isinstance(problem, Problem):
        raise InputError(f"A solution is loaded for a dudx.lab.Problem; got {type(problem).__name__}.")
    states, spans, context = read_trained(folder, problem)
    if spans:
        network: nn.Module = Windows(rebuilt_windows(problem, settings, states, spans), spans, problem.time or 0)
    else:
        network = rebuilt(problem, settings, states[0])
    if context is not None:
        network = InContext(network, context)
    return StoredSolution(problem, network, settings, read_result(folder), read_metrics(folder), folder)


def network_settings(start: StartingPoint, windows: bool | None) -> dict[str, Any]:
    """Return the settings of a solution's network; refuse a solution that no single network can start from."""
    if not isinstance(getattr(start, "settings", None), Settings):
        raise InputError(f"Training starts from a Solution, start=solution; got {type(start).__name__}.")
    if isinstance(start.network, InContext):
        raise InputError("Training does not start from a network whose samples influence each other; leave start= out.")
    if windows or isinstance(start.network, Windows):
        raise InputError("Training in windows of time starts from the initial values; leave start= out.")
    return {name: getattr(start.settings, name) for name in _BUILT_FROM}
