"""Train one network: its optimizer, engine and random numbers, and the steps of an epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dudx.engines.interface import state_of, with_state
from dudx.lab.problems import Problem
from dudx.lab.run.batches import Batches
from dudx.lab.run.checkpoint import Checkpoint, RandomNumbers, Stateful, kept
from dudx.lab.run.coupled_view import Views
from dudx.lab.run.engine_choice import make_engine
from dudx.lab.run.engine_table import step_text
from dudx.lab.run.error_estimate import estimate
from dudx.lab.run.evaluation import Evaluation, scored
from dudx.lab.run.least_squares import LeastSquaresPhase
from dudx.lab.run.loop import Loop
from dudx.lab.run.noise import Noise
from dudx.lab.run.objective import Objective, Part
from dudx.lab.run.optimizers.lbfgs import lbfgs
from dudx.lab.run.phases import Descent, DivergedError, LineSearch, Phase, StepReport, first_phase, searches
from dudx.lab.run.records import Records
from dudx.lab.run.settings import Settings
from dudx.lab.run.stopping import Stopping
from dudx.lab.run.trained_networks import fill, make_network, write_trained
from dudx.lab.run.weighting import Weighting

#: Steps are recalibrated when the damping has changed by this factor, since the network has changed as much and
#: stale steps have cost a factor of 100 in accuracy.
_REGIME = 10.0
#: Epochs between updates of automatic weights.
_REWEIGH = 100


class Trainer(Loop):
    """A run that trains one network."""

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        folder: Path,
        saved: Callable[[], None] | None = None,
        records: Records | None = None,
    ):
        self.problem, self.settings, self.title = problem, settings, problem.title
        self.saved = saved
        self.objective = Objective(problem, settings)
        self.device, self.dtype = self.objective.device, self.objective.dtype
        torch.manual_seed(settings.seed)
        self.generator = torch.Generator(self.device).manual_seed(settings.seed)
        # A generator of its own, so that the points do not depend on the engine.
        self.engine_generator = torch.Generator(self.device).manual_seed(settings.seed + 2**32)
        self.model = make_network(problem, settings).to(self.device, self.dtype)
        ignoring = settings.coupled == "ignore"
        self.engine = make_engine(settings.engine, settings.accuracy, self.engine_generator, ignoring)
        problem.restart()
        self.unknowns = nn.ParameterDict(dict(problem.unknowns or {})).to(self.device, self.dtype)
        self.parameters = [*self.model.parameters(), *self.unknowns.parameters()]
        self.optimizer, self.schedule = first_phase(settings, self.parameters)
        self.calibration_points = problem.domain.sobol(
            settings.calibration_points, settings.seed, self.device, self.dtype
        )
        as_it_is = self.engine.coupled != "refuse"  # for engines that know how to handle it, or ignore it
        self.views = Views(self.model, self.calibration_points, "ignore" if as_it_is else settings.coupled)
        self.first, self.second = self._first_phase(), self._second_phase()
        self.batches = Batches(self.objective, settings.resample, self.generator, self._residual_size)
        self.stopping = Stopping(settings.settled, settings.seconds)
        self.weighting = Weighting(self.objective, self.parameters)
        self.evaluation = Evaluation(problem, self.model, self.views, settings.reference_file)
        self.records = records or Records(
            folder, settings, self.objective.names, self.unknowns, self.first.damping is not None
        )
        self.checkpoint = Checkpoint(folder, settings.problem, self._parts())
        self.epochs = settings.epochs + settings.lbfgs_epochs
        #: The damping at the last calibration of the engine's steps.
        self.calibrated_at: float | None = None

    def _first_phase(self) -> Phase:
        s = self.settings
        automatic = s.weights == "auto"
        if self.optimizer is not None and searches(self.optimizer):
            return LineSearch(self.optimizer, "optimizer", self._gradient, self.engine_generator)
        if self.schedule is not None or self.optimizer is None:
            return Descent(self.optimizer, self.schedule, self._gradient)  # type: ignore[arg-type]
        noise = Noise() if self.objective.kept_back else None
        return LeastSquaresPhase(self.optimizer, self.views.training, lambda: self.engine, automatic, noise, s.tame)

    def _second_phase(self) -> Phase | None:
        if not self.settings.lbfgs_epochs:
            return None
        return LineSearch(lbfgs(self.parameters, lr=1.0), "lbfgs", self._gradient, self.engine_generator)

    def start_from(self, network: nn.Module, constants: Mapping[str, float]) -> None:
        """Continue from a network that is built alike, and from constants by name."""
        fill(self.model, network.state_dict(), "The solution to start from has another network")
        with torch.no_grad():
            for name in self.unknowns.keys() & constants.keys():
                self.unknowns[name].fill_(constants[name])

    # -- what a checkpoint keeps ---------------------------------------------------------------------------------

    def _parts(self) -> dict[str, Stateful]:
        parts: dict[str, Stateful] = {
            "loop": self,
            "model": self.model,
            "unknowns": self.unknowns,
            **self.first.stateful,
            **({} if self.second is None else self.second.stateful),
            "random": RandomNumbers(self.device, points=self.generator, engine=self.engine_generator),
            "records": self.records,
        }
        if self.settings.weights == "auto":
            parts["weighting"] = self.weighting  # before the batches, which are made with its weights
        if self.settings.resample > 1:
            parts["batches"] = self.batches
        if self.views.way == "running":
            parts["views"] = self.views
        if self.settings.settled:
            parts["stopping"] = self.stopping
        return parts

    def state_dict(self) -> dict[str, Any]:
        engine = kept(state_of(self.engine), f"the engine {self.settings.engine!r}")
        times = {"seconds": self.seconds, "cpu_seconds": self.stopping.spent}
        return {"epoch": self.epoch, **times, "engine": engine, "calibrated_at": self.calibrated_at}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        self.epoch, self.seconds = state["epoch"], state["seconds"]
        # Checkpoints of earlier versions lack these.
        self.stopping.spent, self.calibrated_at = state.get("cpu_seconds", 0.0), state.get("calibrated_at")
        if not 0 <= self.epoch <= self.epochs:
            raise ValueError(f"it is of epoch {self.epoch} of {self.epochs}")
        self.engine = with_state(self.engine, state["engine"])

    # -- an epoch ------------------------------------------------------------------------------------------------

    def _facts(self) -> dict[str, str]:
        damping = self._phase.damping
        facts = self.records.facts(step_text(self.engine))
        return facts if damping is None else {**facts, "damping": f"{damping:.0e}"}

    @property
    def _phase(self) -> Phase:
        return self.first if self.second is None or self.epoch < self.settings.epochs else self.second

    def _epoch(self) -> None:
        began = time.process_time()
        self._note(began, self.advance())

    def advance(self) -> StepReport:
        """Do one training step, without counting or logging it."""
        phase = self._phase
        parts, fresh = self.drawn()
        learning_rate = phase.learning_rate
        loss, by_name = phase.step(parts)
        if fresh:
            self.stopping.add(loss)
        return StepReport(loss, by_name, learning_rate, step_text(self.engine), phase.damping)

    def drawn(self) -> tuple[list[Part], bool]:
        """Return the parts of the next epoch, and True if their points are new; update steps and weights if due."""
        phase = self._phase
        if self._calibration_due(phase.damping):
            self.calibrate()
        parts, fresh = self.batches.at(self.epoch)
        if self._weights_due(phase):
            self.weighting.update(parts, self.views.training, self.engine)
            parts = self.batches.reweighed()
        return parts, fresh

    def _scores(self) -> dict[str, float]:
        return self.evaluation.scores()

    def _calibration_due(self, damping: float | None) -> bool:
        """Return True at regular intervals, and when the damping has changed by the factor `_REGIME`."""
        if self.epoch % self.settings.recalibrate == 0:
            return True
        if self.settings.recalibrate_only:
            return False
        if damping is None or self.calibrated_at is None or not self.records.calibrations:
            return False
        return not 1 / _REGIME < damping / self.calibrated_at < _REGIME

    def _weights_due(self, phase: Phase) -> bool:
        """Return True if automatic weights are due; least-squares optimizers update them themselves."""
        by_gradients = not isinstance(phase, LeastSquaresPhase)
        return self.settings.weights == "auto" and by_gradients and self.epoch % _REWEIGH == 0

    def _residual_size(self, points: Tensor) -> Tensor:
        return self.objective.size(self.views.anywhere(), points, self.engine)

    def _gradient(self, optimizer: torch.optim.Optimizer, parts: list[Part]) -> tuple[float, Mapping[str, Tensor]]:
        optimizer.zero_grad(set_to_none=True)
        views = self.views.training([part.points for part in parts])
        total, by_name = self.objective.gradient(views, parts, self.engine)
        loss = float(total)
        if not np.isfinite(loss):
            raise DivergedError
        return loss, by_name

    def calibrate(self) -> None:
        """Calibrate the engine's steps, if it has any, for the present network, and record the calibrations."""
        s = self.settings
        self.calibrated_at = self._phase.damping
        # Any points will do to list the derivatives; they must not come from the training's generator.
        parts = self.objective.draw(torch.Generator(self.device).manual_seed(s.seed))
        self.engine = self.engine.calibrated(
            self.views.calibration(),
            self.calibration_points,
            self.objective.derivatives(parts),
            candidates=s.calibration_candidates,
            smallest=s.calibration_smallest,
            largest=s.calibration_largest,
        )
        self.records.add_calibrations(self.epoch, self.engine.calibrations)

    def _result(self, status: str, reached: int, stopped: str) -> dict[str, Any]:
        arrays = self.evaluation.arrays()
        facts = {
            **self._ending(status, reached, stopped),
            "step": step_text(self.engine) or None,
            "compile_seconds": self.objective.compile_seconds,
            "parameters": sum(p.numel() for p in self.parameters),
        }
        if self.settings.estimate and status != "diverged":
            # The estimate linearises a network of independent samples.
            found = (
                None
                if self.views.isolating
                else estimate(self.problem, self.model, self.engine, seed=self.settings.seed)
            )
            facts["estimate"] = None if found is None else asdict(found)
        if file_scores := self.evaluation.file_scores():
            facts["file_reference"] = file_scores
        write_trained(self.records.folder, self.problem, [self.views.trained()])
        return self.records.write_result(scored(arrays), arrays, facts)
