"""What a reproduction will take, from a few steps of everything it consists of, on this machine."""

from __future__ import annotations

import importlib
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dudx.errors import CalibrationWarning
from dudx.lab.problems import problem
from dudx.lab.run.settings import Settings
from dudx.lab.run.trainer import Trainer
from dudx.lab.sweep.sweep_run import outcome
from reproduction.experiments import Experiment, cost, curves
from reproduction.experiments.base import Measurement
from reproduction.experiments.profile import Profile
from reproduction.runner import distinct, in_archive, settled

#: Steps of a measurement that tell of the others.
_FEW = 5
_STEPS = 11  # SOAP does the expensive part of its work every tenth step
#: What has no part in the time of an epoch.
_IRRELEVANT = ("seed", "epochs", "recalibrate", "evaluate_every", "log_every", "checkpoint_every")


@dataclass(frozen=True)
class Workload:
    """Work of one kind: what it is, how many pieces there are, how many are left, and the seconds of a core for one."""

    experiment: str
    what: str
    count: int
    left: int
    seconds: float

    @property
    def total(self) -> float:
        return self.left * self.seconds


@dataclass(frozen=True)
class Estimate:
    """The work of a reproduction; work that experiments share is counted with the first of them."""

    lines: Sequence[Workload]
    #: Seconds of a core in runs, which go side by side, and in measurements, which do not.
    runs: float
    measurements: float

    def wall(self, workers: int) -> float:
        """Seconds on the clock."""
        return self.runs / workers + self.measurements


def estimate(experiments: Sequence[Experiment], profile: Profile, out: Path) -> Estimate:
    """Time a few steps of everything that is not done yet."""
    speeds, seen, archived = _Speeds(), set[str](), in_archive(experiments, profile, out)
    lines, runs, measurements = [], 0.0, 0.0
    for experiment in experiments:
        groups: dict[str, list[tuple[bool, Callable[[], float]]]] = {}
        for run in distinct(experiment.runs(profile)):
            if run.name not in seen:
                left = run.name not in archived and not outcome(run, out / "runs" / run.name).final
                groups.setdefault(_told(run.settings), []).append((left, lambda s=run.settings: speeds.run(s)))
                seen.add(run.name)
        found = _lines(experiment, groups)
        runs += sum(line.total for line in found)
        groups = {}
        pieces = experiment.measurements(profile)
        done = settled(pieces, out / "measurements")
        for piece in pieces:
            if piece.file not in seen:
                left = piece.file not in done
                groups.setdefault(_named(piece), []).append((left, lambda piece=piece: speeds.measurement(piece)))
                seen.add(piece.file)
        more = _lines(experiment, groups)
        measurements += sum(line.total for line in more)
        lines += found + more or [Workload(experiment.name, "nothing that is not above", 0, 0, 0.0)]
    return Estimate(lines, runs, measurements)


def _lines(experiment: Experiment, groups: dict[str, list[tuple[bool, Callable[[], float]]]]) -> list[Workload]:
    found = []
    for what, pieces in groups.items():
        seconds = [measure() for left, measure in pieces if left]
        found.append(Workload(experiment.name, what, len(pieces), len(seconds), sum(seconds) / max(1, len(seconds))))
    return found


def _told(settings: Settings) -> str:
    words = [settings.problem, settings.engine]
    words += [settings.network] * (settings.network != "mlp") + ["ignoring influence"] * (settings.coupled == "ignore")
    length = f"{settings.epochs} epochs" if settings.seconds is None else f"{settings.seconds:g} s"
    return f"{' '.join(words)}, {length}"


def _named(piece: Measurement) -> str:
    return " ".join(str(piece.arguments[key]) for key in ("format", "network", "way") if key in piece.arguments)


class _Speeds:
    """Seconds of a core, measured once for each kind of work."""

    def __init__(self) -> None:
        self.cache: dict[str, Any] = {}

    def _once(self, key: str, measure: Callable[[], Any]) -> Any:
        if key not in self.cache:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CalibrationWarning)
                self.cache[key] = measure()
        return self.cache[key]

    def run(self, settings: Settings) -> float:
        """A training run: epochs, calibrations and evaluations, or as many seconds as it is given."""
        if settings.seconds is not None:
            return settings.seconds
        key = repr({name: value for name, value in settings.model_dump().items() if name not in _IRRELEVANT})
        epoch, calibration, evaluation = self._once(key, lambda: _speed(settings))
        calibrations = math.ceil(settings.epochs / settings.recalibrate)
        return (
            settings.epochs * epoch
            + calibrations * calibration
            + (2 + settings.epochs // settings.evaluate_every) * evaluation
        )

    def measurement(self, piece: Measurement) -> float:
        """A measurement, from a short version of itself."""
        given = dict(piece.arguments)
        if piece.function == f"{cost.__name__}:measure":
            return 2 * given["seconds"] + 0.5  # by construction, unless steps are slow
        key = f"{piece.function} {given | {'seed': 0}}"
        if piece.function == f"{curves.__name__}:measure":
            return self._once(key, lambda: _curve(given))
        return self._once(key, lambda: _by_steps(piece.function, given))


def _curve(given: dict[str, Any]) -> float:
    few = {**given, "candidates": 8}
    return given["candidates"] / 8 * _clocked(lambda: curves.measure(**few))


def _by_steps(function: str, given: dict[str, Any]) -> float:
    """All of it, from as much as a few steps tell of the others; the first time does not count."""
    module, _, name = function.partition(":")
    measure = getattr(importlib.import_module(module), name)
    counted = next((word for word in ("epochs", "steps") if word in given), None)
    if counted is None:
        return _clocked(lambda: measure(**given))
    _, short, long = (_clocked(lambda n=n: measure(**{**given, counted: n})) for n in (1, 1, 1 + _FEW))
    return short + max(0.0, long - short) / _FEW * given[counted]


def _speed(settings: Settings) -> tuple[float, float, float]:
    """Seconds of an epoch, a calibration and an evaluation."""
    torch.set_num_threads(settings.threads or 1)
    trainer = Trainer(problem(settings.problem), settings, Path())
    calibration = _clocked(trainer.calibrate, settings.device)
    evaluation = _clocked(trainer.evaluation.scores, settings.device)

    def epochs(count: int) -> None:
        for _ in range(count):
            trainer.first_step(trainer.objective.draw(trainer.generator))

    epochs(1)
    return _clocked(lambda: epochs(_STEPS), settings.device) / _STEPS, calibration, evaluation


def _clocked(work: Callable[[], object], device: str = "cpu") -> float:
    """Seconds that a core works, not those it waits for others; on a GPU, those on the clock."""
    if device == "cpu":
        start = time.process_time()
        work()
        return time.process_time() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start
