"""A training run at work: the loop over epochs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dudx.errors import InputError
from dudx.lab.names import look_up
from dudx.lab.problems import Problem
from dudx.lab.run.checkpoint import Checkpoint, RandomNumbers, Stateful, kept
from dudx.lab.run.engines import make_engine
from dudx.lab.run.evaluation import Evaluation, scored
from dudx.lab.run.interruption import stop_request
from dudx.lab.run.networks import knowledge_taken, networks, sizes_taken
from dudx.lab.run.objective import Objective, Part
from dudx.lab.run.phases import first_phase, second_phase
from dudx.lab.run.progress import display
from dudx.lab.run.ranks import OneProcess, Ranks
from dudx.lab.run.records import Records
from dudx.lab.run.settings import Settings
from dudx.lab.run.views import Views


class DivergedError(Exception):
    """The loss is not finite."""


class Trainer:
    """One run: its network, optimizer, engine and random numbers, and the epochs it has come through."""

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        folder: Path,
        ranks: Ranks | None = None,
        saved: Callable[[], None] | None = None,
    ):
        self.problem, self.settings = problem, settings
        self.ranks, self.saved = ranks or OneProcess(), saved
        self.objective = Objective(problem, settings)
        self.device, self.dtype = self.objective.device, self.objective.dtype
        torch.manual_seed(settings.seed)
        self.generator = torch.Generator(self.device).manual_seed(settings.seed)
        # A stream of its own: the points are the same whatever the engine draws.
        self.engine_generator = torch.Generator(self.device).manual_seed(settings.seed + 2**32)
        self.model = _network(problem, settings).to(self.device, self.dtype)
        ignoring = settings.coupled == "ignore"
        self.engine = make_engine(settings.engine, settings.accuracy, self.engine_generator, ignoring)
        self.unknowns = nn.ParameterDict(dict(problem.unknowns or {})).to(self.device, self.dtype)
        self.parameters = [*self.model.parameters(), *self.unknowns.parameters()]
        self.optimizer, self.schedule = first_phase(settings, self.parameters)
        self.lbfgs = second_phase(self.parameters) if settings.lbfgs_epochs else None
        self.calibration_points = problem.domain.sobol(
            settings.calibration_points, settings.seed, self.device, self.dtype
        )
        self.views = Views(
            self.model, self.calibration_points, isolating=self.engine.coupled == "refuse" and not ignoring
        )
        self.ranks.same_start(self.model, self.unknowns, self.calibration_points)
        self.evaluation = Evaluation(problem, self.model, self.views, settings.reference_file)
        self.records = Records(folder, settings, self.objective.names, self.unknowns)
        self.checkpoint = Checkpoint(folder, settings.problem, self._parts())
        self.epochs = settings.epochs + settings.lbfgs_epochs
        self.epoch = 0
        self.seconds = 0.0

    # -- what a checkpoint keeps ---------------------------------------------------------------------------------

    def _parts(self) -> dict[str, Stateful]:
        parts: dict[str, Stateful] = {
            "loop": self,
            "model": self.model,
            "unknowns": self.unknowns,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "random": RandomNumbers(self.device, points=self.generator, engine=self.engine_generator),
            "records": self.records,
        }
        return parts if self.lbfgs is None else {**parts, "lbfgs": self.lbfgs}

    def state_dict(self) -> dict[str, Any]:
        engine = kept(self.engine.state, f"the engine {self.settings.engine!r}")
        return {"epoch": self.epoch, "seconds": self.seconds, "engine": engine}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        self.epoch, self.seconds = state["epoch"], state["seconds"]
        self.engine = self.engine.with_state(state["engine"])

    def save(self) -> None:
        """Write the checkpoint, and tell who wants to know."""
        self.checkpoint.save()
        if self.saved is not None:
            self.saved()

    # -- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Train to the last epoch; interrupted or diverged, leave the folder so that nothing is lost."""
        self.records.begin()
        if self.epoch == 0:
            self.save()
        self.began = time.perf_counter() - self.seconds
        status = "finished"
        try:
            with stop_request() as stop, display(self.settings.problem, self.epochs, self.epoch) as shown:
                while self.epoch < self.epochs and status == "finished":
                    self._epoch()
                    shown.update(self.epoch, self.records.facts(self.engine.shown))
                    if self.ranks.any(stop()):
                        status = "interrupted"
                        self.save()
                    elif self.epoch % self.settings.checkpoint_every == 0:
                        self.save()
        except DivergedError:
            status = "diverged"
        reached = self.epoch
        if status == "finished":
            self.save()
        elif status == "diverged":  # what is left to look at is the last network that was saved
            self.checkpoint.load()
        return self._result(status, reached)

    def _epoch(self) -> None:
        if self.epoch % self.settings.recalibrate == 0:
            self.calibrate()
        parts = self.objective.draw(self.generator)
        in_first_phase = self.epoch < self.settings.epochs
        learning_rate = self.optimizer.param_groups[0]["lr"] if in_first_phase else 1.0
        loss, by_name = self.first_step(parts) if in_first_phase else self._second_step(parts)
        self.epoch += 1
        self.seconds = time.perf_counter() - self.began
        evaluating = self.epoch % self.settings.evaluate_every == 0 or self.epoch == self.epochs
        if evaluating or self.epoch % self.settings.log_every == 0 or self.epoch == 1:
            self.records.add_losses(loss, by_name)
            scores = self.evaluation.scores() if evaluating else {}
            self.records.add_row(self.epoch, self.seconds, learning_rate, self.engine.shown, scores)

    def first_step(self, parts: list[Part]) -> tuple[float, Mapping[str, Tensor]]:
        """A step of the main optimizer; returns the loss before it, and its parts."""
        loss, by_name = self._gradient(self.optimizer, parts)
        self.optimizer.step()
        self.schedule.step()
        return loss, by_name

    def _second_step(self, parts: list[Part]) -> tuple[float, Mapping[str, Tensor]]:
        assert self.lbfgs is not None
        # The line search compares losses, so every look at the batch must use the same random steps.
        state = self.engine_generator.get_state()
        seen: list[tuple[float, Mapping[str, Tensor]]] = []

        def closure() -> float:
            self.engine_generator.set_state(state)
            seen.append(self._gradient(self.lbfgs, parts))
            return seen[-1][0]

        self.lbfgs.step(closure)  # type: ignore[arg-type]
        return seen[0]

    def _gradient(
        self, optimizer: torch.optim.Optimizer | None, parts: list[Part]
    ) -> tuple[float, Mapping[str, Tensor]]:
        assert optimizer is not None
        optimizer.zero_grad(set_to_none=True)
        total, by_name = self.ranks.gradient(self._share, parts, self.parameters, self.engine_generator)
        loss = float(total)
        if not np.isfinite(loss):
            raise DivergedError
        return loss, by_name

    def _share(self, parts: list[Part]) -> tuple[Tensor, Mapping[str, Tensor]]:
        return self.objective.gradient(self.views.training([part.points for part in parts]), parts, self.engine)

    def calibrate(self) -> None:
        """Let the engine set its steps for the network as it is now, if it has any, and record the searches."""
        s = self.settings
        # Points of a generator of its own: which derivatives occur does not depend on them.
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
        self.engine = self.engine.with_state(self.ranks.same(self.engine.state))

    def _result(self, status: str, reached: int) -> dict[str, Any]:
        arrays = self.evaluation.arrays()
        facts = {
            "epochs": self.epoch,
            "status": status,
            "seconds": self.seconds,
            "step": self.engine.shown or None,
            "compile_seconds": self.objective.compile_seconds,
            "parameters": sum(p.numel() for p in self.parameters),
        }
        if status == "diverged":
            facts["diverged_at"] = reached
        if file_scores := self.evaluation.file_scores():
            facts["file_reference"] = file_scores
        return self.records.write_result(scored(arrays), arrays, facts)


def _network(problem: Problem, settings: Settings) -> nn.Module:
    maker = look_up(settings.network, networks(), "network")
    rescaled = problem.rescaled if settings.rescale is None else settings.rescale
    shape = {
        **sizes_taken(maker, settings.width, settings.depth),
        "bounds": problem.domain.bounds if rescaled else None,
        **knowledge_taken(maker, problem),
    }
    try:
        return maker(len(problem.inputs), problem.outputs, **shape)
    except TypeError as error:
        raise InputError(
            f"The network {settings.network!r} cannot be made from (inputs, outputs, "
            f"{', '.join(f'{key}=...' for key in shape)}): {error}."
        ) from error
