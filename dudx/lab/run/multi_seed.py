"""Runs that differ in their seed, trained as one: one batched product of matrices a layer for all members.

Each member draws its points, calibrates its steps and finds its weights as a run by itself does; only the gradients of
all are computed together, and an optimizer that looks at each number by itself makes all steps at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn, optim

from dudx.errors import InputError
from dudx.gradients.rewind import Rewind, generators_of
from dudx.lab.problems import Problem
from dudx.lab.run.checkpoint import Checkpoint, RandomNumbers, Stateful, kept
from dudx.lab.run.evaluation import scored
from dudx.lab.run.loop import Loop
from dudx.lab.run.metrics import scores
from dudx.lab.run.objective import Objective, Part
from dudx.lab.run.phases import Descent, DivergedError, first_phase
from dudx.lab.run.ranks import OneProcess, Ranks
from dudx.lab.run.records import SCORES, Records
from dudx.lab.run.settings import Settings
from dudx.lab.run.stopping import Stopping
from dudx.lab.run.trainer import Trainer
from dudx.network.detector import coupled
from dudx.network.ensemble import Ensemble, ensemble
from dudx.residual.residual_function import Residual

#: Engines whose plans members share, or that have nothing of their own to remember.
_ENGINES = ("ad", "fd", "efd", "sfd", "taylor")
#: Optimizers that look at each number by itself, so that stacked parameters move as those of single networks do.
_ELEMENTWISE = (optim.Adam, optim.AdamW, optim.SGD, optim.RMSprop, optim.Adagrad, optim.Adadelta, optim.Adamax,
                optim.NAdam, optim.RAdam)  # fmt: skip


@dataclass(frozen=True)
class _JointPart:
    """One term of the loss, at the points (M, B, d) of all members, each with its weight."""

    name: str
    weights: Tensor
    residual: Residual
    points: Tensor
    data: Mapping[str, Tensor]

    def backward(self, several: Ensemble, engines: Sequence[Any], chunk: int) -> Tensor:
        """Add the gradient of all weighted losses to the parameters, slice by slice; returns the losses (M,)."""
        total, count = torch.zeros_like(self.weights), self.points.shape[1]
        with torch.set_grad_enabled(bool(self.weights.any())):
            for begin in range(0, count, chunk):
                rows = slice(begin, begin + chunk)
                data = {name: values[:, rows] for name, values in self.data.items()}
                losses = self.residual.loss(several, self.points[:, rows], engines, **data)
                share = len(range(count)[rows]) / count
                if losses.requires_grad:
                    (share * self.weights * losses).sum().backward()
                total += share * losses.detach()
        return total


class Together(Loop):
    """Members with the seeds seed, seed + 1, …, and one optimizer for all of them."""

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        folder: Path,
        ranks: Ranks | None = None,
        saved: Callable[[], None] | None = None,
    ):
        _refuse_settings(problem, settings, ranks)
        self.settings, self.ranks, self.saved = settings, OneProcess(), saved
        #: Its residuals are those that are compiled, once for all members.
        self.objective = Objective(problem, settings)
        self.members = [Trainer(problem, _of_member(settings, m), folder) for m in range(settings.members)]
        _refuse_random_numbers(self.members[0])
        _refuse_networks([member.model for member in self.members], self.members[0].calibration_points)
        self.model = _stacked([member.model for member in self.members])
        optimizer, schedule = first_phase(settings, self.model.parameters())
        assert schedule is not None
        self.descent = Descent(optimizer, schedule, self._gradient)
        self.epochs = settings.epochs
        self.stopping = Stopping(0, settings.seconds)
        self.records = Records(folder, settings, self.objective.names, nn.ParameterDict())
        self.checkpoint = Checkpoint(folder, settings.problem, self._parts())
        #: The loss of each member before its latest step.
        self.losses: list[float] = []

    # -- what a checkpoint keeps ---------------------------------------------------------------------------------

    def _parts(self) -> dict[str, Stateful]:
        generators = {f"points {m.settings.seed}": m.generator for m in self.members}
        generators |= {f"engine {m.settings.seed}": m.engine_generator for m in self.members}
        random = RandomNumbers(self.objective.device, **generators)
        parts: dict[str, Stateful] = {"loop": self, "model": self.model, **self.descent.stateful, "random": random}
        for member in self.members:
            of_member = {
                name: part for name, part in member.checkpoint.parts.items() if name in ("weighting", "batches")
            }
            parts |= {f"{name} {member.settings.seed}": part for name, part in of_member.items()}
        return {**parts, "records": self.records}

    def state_dict(self) -> dict[str, Any]:
        engines = [kept(m.engine.state, f"the engine {self.settings.engine!r}") for m in self.members]
        times = {"seconds": self.seconds, "cpu_seconds": self.stopping.spent}
        return {"epoch": self.epoch, **times, "engines": engines, "losses": list(self.losses)}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        self.epoch, self.seconds, self.stopping.spent = state["epoch"], state["seconds"], state["cpu_seconds"]
        if not 0 <= self.epoch <= self.epochs:
            raise ValueError(f"it is of epoch {self.epoch} of {self.epochs}")
        self.losses = list(state["losses"])
        for member, of_engine in zip(self.members, state["engines"], strict=True):
            member.engine = member.engine.with_state(of_engine)

    # -- an epoch ------------------------------------------------------------------------------------------------

    def _epoch(self) -> None:
        began, learning_rate = time.process_time(), self.descent.learning_rate
        loss, by_name = self.descent.step(self._drawn())  # type: ignore[arg-type]
        self._note(began, loss, by_name, learning_rate)

    def _drawn(self) -> list[_JointPart]:
        """The parts of all members, each of which does what it would do by itself."""
        drawn: list[list[Part]] = []
        for member in self.members:
            known = len(self.records.calibrations)
            member.epoch, member.records.calibrations = self.epoch, self.records.calibrations
            drawn.append(member.drawn()[0])
            for search in self.records.calibrations[known:]:
                search["seed"] = member.settings.seed
        residuals = self.objective.residuals
        return [_joint(parts, residual) for parts, residual in zip(zip(*drawn, strict=True), residuals, strict=True)]

    def _gradient(self, optimizer: optim.Optimizer, parts: Sequence[Any]) -> tuple[float, dict[str, Tensor]]:
        optimizer.zero_grad(set_to_none=True)
        engines = [member.engine for member in self.members]
        by_name = {part.name: part.backward(self.model, engines, self._chunk(part)) for part in parts}
        losses = torch.stack([part.weights * by_name[part.name] for part in parts]).sum(0).tolist()
        if not np.isfinite(losses).all():
            self.diverged = [m.settings.seed for m, loss in zip(self.members, losses, strict=True) if loss - loss != 0]
            raise DivergedError
        self.losses = losses
        return float(np.mean(losses)), {name: values.mean() for name, values in by_name.items()}

    def _chunk(self, part: _JointPart) -> int:
        """How many points of each member are taken at once: a point of all of them is as many rows as they are."""
        first = self.members[0]
        single = Part(part.name, 1.0, part.residual, part.points[0], {k: v[0] for k, v in part.data.items()})
        return self.objective.chunk(first.model, single, first.engine, networks=len(self.members))

    # -- what comes of it ----------------------------------------------------------------------------------------

    def _facts(self) -> dict[str, str]:
        return self.records.facts("")

    def _predictions(self, points: np.ndarray) -> np.ndarray:
        return np.stack([member.evaluation.predict(points) for member in self.members])

    def _scores(self) -> Mapping[str, float]:
        return scored(self._arrays())

    def _arrays(self) -> dict[str, np.ndarray]:
        """Points, reference, the mean of all predictions, and their standard deviation."""
        solution = self.members[0].evaluation.solution
        if solution is None:
            return {}
        found = self._predictions(solution.points)
        mean, spread = found.mean(axis=0), found.std(axis=0, ddof=1)
        return {"points": solution.points, "prediction": mean, "reference": solution.values, "spread": spread}

    def _result(self, status: str, reached: int, stopped: str) -> dict[str, Any]:
        arrays, of_members = self._arrays(), [self._of(member) for member in self.members]
        for row, loss in zip(of_members, self.losses, strict=False):
            row["loss"] = loss
        facts = {
            **self._ending(status, reached, stopped),
            "step": None,
            "compile_seconds": self.objective.compile_seconds,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "members": of_members,
        }
        if arrays:
            errors = {name: [row[name] for row in of_members] for name in SCORES}
            facts["mean"] = {name: float(np.mean(values)) for name, values in errors.items()}
            facts["spread"] = {name: float(np.std(values, ddof=1)) for name, values in errors.items()}
        if status == "diverged":
            facts["diverged"] = self.diverged
        if (file := self.members[0].evaluation.file) is not None:
            facts["file_reference"] = scores(self._predictions(file[0]).mean(axis=0), file[1])
        return self.records.write_result(scored(arrays), arrays, facts)

    def _of(self, member: Trainer) -> dict[str, Any]:
        """What a member by itself came to."""
        found = {"seed": member.settings.seed, **dict.fromkeys(SCORES), **member.evaluation.scores()}
        return {**found, "step": member.engine.shown or None}


def _of_member(settings: Settings, number: int) -> Settings:
    """The settings of one member; the run of all members compiles, and tells loggers."""
    own = {"members": 1, "seed": settings.seed + number, "compile": False, "loggers": "", "tensorboard": False}
    return settings.model_copy(update=own)


def _joint(parts: Sequence[Part], residual: Residual) -> _JointPart:
    first = parts[0]
    if any(part.points.shape != first.points.shape for part in parts):
        raise InputError(
            f"The points of {first.name!r} are not as many in each draw, so members cannot share a batch; train them "
            "one by one."
        )
    points = torch.stack([part.points for part in parts])
    data = {name: torch.stack([part.data[name] for part in parts]) for name in first.data}
    return _JointPart(first.name, points.new_tensor([part.weight for part in parts]), residual, points, data)


def _stacked(networks: Sequence[nn.Module]) -> Ensemble:
    """The networks as one, whose parameters they have from now on."""
    several = ensemble(networks)
    for number, network in enumerate(networks):
        for parameter, stacked in zip(network.parameters(), several.stacked, strict=True):
            parameter.data = stacked.data[number]
    return several


def _refuse_settings(problem: Problem, settings: Settings, ranks: Ranks | None) -> None:
    optimizer, schedule = first_phase(settings, [nn.Parameter(torch.zeros(1))])
    if schedule is None or type(optimizer) not in _ELEMENTWISE:
        raise InputError(
            f"The optimizer {settings.optimizer!r} looks at a whole network or matrix at once, and members are trained "
            "by one that looks at each number by itself: --profile soap --optimizer adam, or torch.optim:NAME with "
            f"NAME among {', '.join(kind.__name__ for kind in _ELEMENTWISE)}."
        )
    reason = None
    if ranks is not None:
        reason = "are trained in one process; start without torchrun"
    elif settings.engine not in _ENGINES:
        reason = f"are trained with the engines {', '.join(_ENGINES)}, not {settings.engine!r}"
    elif problem.unknowns:
        reason = f"are networks alone, and {', '.join(problem.unknowns)} would be one constant for all"
    elif settings.lbfgs_epochs or settings.settled or settings.estimate:
        word = "lbfgs_epochs" if settings.lbfgs_epochs else "settled" if settings.settled else "estimate"
        reason = f"are trained side by side to the last epoch; leave out {word} = {getattr(settings, word)!r}"
    if reason is not None:
        raise InputError(f"Several members {reason}, or train with seeds one by one.")


def _refuse_networks(networks: Sequence[nn.Module], x: Tensor) -> None:
    if coupled(networks[0], x):
        raise InputError(
            "The samples of this network's batch influence each other, and members are seen point by point; train "
            "with seeds one by one."
        )
    with torch.no_grad():
        together, apart = ensemble(networks)(x), torch.stack([network(x) for network in networks])
    if not torch.allclose(together, apart, rtol=1e-4, atol=1e-4 * float(apart.abs().max())):
        raise InputError(
            "The networks of different seeds differ in more than their parameters and buffers, a tensor drawn at "
            "random perhaps; use register_buffer for it, or train with seeds one by one."
        )


def _refuse_random_numbers(member: Trainer) -> None:
    """Refuse what draws from torch's own generator, which members would share."""
    generators = generators_of(None, member.device)
    states, rewind = [generator.get_state() for generator in generators], Rewind(generators)
    parts = member.objective.draw(torch.Generator(member.device).manual_seed(0))
    for part in parts:
        part.operators()
    with torch.no_grad():
        member.model(parts[0].points)
    drew = any(not torch.equal(g.get_state(), state) for g, state in zip(generators, states, strict=True))
    rewind()
    if drew:
        raise InputError(
            "This network or problem draws from torch's own generator while it is trained, and each member would need "
            "one of its own; train with seeds one by one."
        )
