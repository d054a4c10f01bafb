"""The loss of a problem: the mean square of its equation and conditions at freshly drawn points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from dudx.coupling.isolation import Isolated
from dudx.engines.interface import Engine
from dudx.errors import InputError
from dudx.evaluate import backward, suggested_chunk
from dudx.lab.problems.conditions import Condition
from dudx.lab.problems.conditions.condition import subset_sampler
from dudx.lab.problems.problem import Points, Problem, Sampler
from dudx.lab.run.engine_choice import gains_by_compilation
from dudx.lab.run.pieces import FACTOR, Pieces, multiplied
from dudx.lab.run.settings import Settings
from dudx.lab.sampling import SamplingContext, sampling
from dudx.lab.sampling.early import time_span
from dudx.network.model_checks import Model
from dudx.operators import D, Directional, Operator
from dudx.residual.residual_function import Residual

#: Of measurements that are at least so many, one in so many is kept back where weights are found automatically.
_MANY, _SHARE = 50, 10


@dataclass(frozen=True)
class Part:
    """One term of the loss, at the points drawn for it."""

    name: str
    weight: float
    residual: Residual
    points: Tensor
    data: Mapping[str, Tensor]
    #: Measurements that no step is made with, which tell how much the others miss by their noise.
    kept_back: Points | None = None

    def operators(self) -> list[Operator]:
        """What the residual asks for."""
        return self.residual.operators(self.points, **self.data)

    def backward(self, model: Model, engine: Engine, chunk: int) -> Tensor:
        """Add the gradient of the weighted loss to the parameters, slice by slice; returns the unweighted loss."""
        names = tuple(self.data)

        def weighted(points: Tensor, *data: Tensor) -> Tensor:
            return self.weight * self.residual.loss(model, points, engine, **dict(zip(names, data, strict=True)))

        if self.weight == 0:
            with torch.no_grad():
                return self.residual.loss(model, self.points, engine, **self.data)
        return backward(weighted, (self.points, *self.data.values()), chunk) / self.weight


class Objective:
    """L_PDE + λ_IC · L_IC + λ_BC · L_BC."""

    def __init__(self, problem: Problem, settings: Settings):
        self.problem = problem
        self.settings = settings
        self.device = _device(settings.device)
        self.dtype: torch.dtype = getattr(torch, settings.dtype)
        sizes = {"boundary": settings.boundary_batch, "initial": settings.initial_batch, "data": settings.batch}
        weights = {
            "boundary": settings.weight_boundary,
            "initial": settings.weight_initial,
            "data": settings.weight_data,
        }
        self.kept_back: dict[str, Points] = {}
        by_itself = settings.weights == "auto" and settings.optimizer == "lm"  # which finds the weights of data by them
        self.conditions = [(self._divided(c) if by_itself else c, sizes[c.kind]) for c in problem.conditions]
        #: By the parts' names; they change where they are found automatically.
        self.weights = {"pde": 1.0} | {c.name: weights[c.kind] for c in problem.conditions}
        self.sampling = sampling(
            settings.sampling,
            settings.ramp,
            power=settings.adaptive_power,
            floor=settings.adaptive_floor,
            candidates=settings.adaptive_candidates,
        )
        pieces = Pieces(problem.domain)
        #: The pieces of boundary that are averaged one by one; None where there is one mean over all of it.
        self.pieces = pieces if settings.boundary_mean == "pieces" and pieces.several else None
        self.residuals = [problem.residual, *(self._averaged(condition) for condition in problem.conditions)]
        if settings.ramp:
            time_span(problem.domain)  # which says so where there is none
        self.chunks: dict[str, int] = {}
        if gains_by_compilation(settings.engine) if settings.compile == "auto" else settings.compile:
            self.residuals = [residual.compiled() for residual in self.residuals]

    @property
    def names(self) -> list[str]:
        """The names of the parts, the equation first."""
        return ["pde", *(condition.name for condition, _ in self.conditions)]

    def draw(self, generator: Generator, residual: Callable[[Tensor], Tensor] | None = None) -> list[Part]:
        """New points for every part; `residual` gives the size of the equation's residual at points."""
        context = SamplingContext(self.problem.domain, generator, self.device, self.dtype, residual)
        drawn: list[Points] = [(self.sampling.interior(self.settings.batch, context), {})]
        for condition, size in self.conditions:

            def draw(n: int, sample: Sampler = condition.sample) -> Points:
                return sample(n, generator, self.device, self.dtype)

            # Points where something was measured, or at one time, are where they are.
            if condition.kind != "boundary":
                drawn.append(draw(size))
                continue
            points, data = self.sampling.boundary(size, draw, context)
            factors = {} if self.pieces is None else {FACTOR: self.pieces.factors(points)}
            drawn.append((points, {**data, **factors}))
        return self.at(drawn)

    def _averaged(self, condition: Condition) -> Residual:
        """The residual of a condition whose mean square is the term of the loss."""
        by_piece = self.pieces is not None and condition.kind == "boundary"
        return multiplied(condition.residual) if by_piece else condition.residual

    def _divided(self, condition: Condition) -> Condition:
        """A condition without the measurements that are kept back, where there are many."""
        if condition.measured is None or len(condition.measured[0]) < _MANY:
            return condition
        points, data = condition.measured
        order = torch.randperm(len(points), generator=Generator().manual_seed(0))
        count = len(points) // _SHARE
        back, rest = (
            (points[rows], {name: values[rows] for name, values in data.items()})
            for rows in (order[:count], order[count:])
        )
        self.kept_back[condition.name] = subset_sampler(back)(count, Generator(), self.device, self.dtype)
        return replace(condition, sample=subset_sampler(rest), measured=rest)

    def at(self, drawn: Sequence[Points]) -> list[Part]:
        """The parts at some points, with their data."""
        return [
            Part(name, self.weights[name], residual, points, data, self.kept_back.get(name))
            for name, residual, (points, data) in zip(self.names, self.residuals, drawn, strict=True)
        ]

    def size(self, model: Model, points: Tensor, engine: Engine) -> Tensor:
        """How far the equation is from holding at points: the length of the residual of all equations, (N,)."""
        with torch.no_grad():
            values = self.residuals[0](model, points, engine)
        equations = values if isinstance(values, tuple) else (values,)
        return torch.stack([value.reshape(-1) for value in equations]).norm(dim=0)

    def gradient(
        self, models: Sequence[Model], parts: Sequence[Part], engine: Engine
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Add the gradient of the loss to the parameters; returns the loss and, by name, its unweighted parts.

        Each part has a model of its own, the network as its points see it.
        """
        by_name = {
            part.name: part.backward(model, engine, self.chunk(model, part, engine))
            for model, part in zip(models, parts, strict=True)
        }
        return torch.stack([part.weight * by_name[part.name] for part in parts]).sum(), by_name

    def chunk(self, model: Model, part: Part, engine: Engine) -> int:
        """Number of points of a part per slice; a batch whose samples influence each other stays whole."""
        if self.settings.chunk == "whole" or isinstance(model, Isolated) or engine.coupled != "refuse":
            return len(part.points)
        if self.settings.chunk != "auto":
            return self.settings.chunk
        if part.name not in self.chunks:  # what decides it stays the same throughout
            # A run that is resumed asks for these once more than another.
            with self._unchanged_random_numbers():
                rows = engine.rows(part.points, part.operators())
            self.chunks[part.name] = suggested_chunk(model, self.device, rows)
        return self.chunks[part.name]

    @property
    def compile_seconds(self) -> float:
        """How long compilation took so far."""
        return sum(residual.compile_seconds for residual in self.residuals)

    def derivatives(self, parts: Sequence[Part]) -> list[Operator]:
        """The single derivatives that occur, so that a step can be calibrated for each order along its axes.

        A derivative along normals counts as one along every axis that the normals have a share in.
        """
        found: dict[Operator, None] = {}
        with self._unchanged_random_numbers():
            asked = [(part, operator) for part in parts for operator in part.operators()]
        for part, operator in asked:
            for term in operator.expanded(part.points.shape[1]).terms:
                if isinstance(term, Directional):
                    used = operator.vectors[term.slot].abs().amax(dim=0).nonzero().flatten().tolist()
                    found.update(dict.fromkeys(D(*[axis] * term.order) for axis in used))
                else:
                    found[D(*term.axes)] = None
        return list(found)

    def _unchanged_random_numbers(self) -> AbstractContextManager[None]:
        """Operators may be drawn at random; to ask which there are must not change what is drawn later."""
        return torch.random.fork_rng([self.device] if self.device.type == "cuda" else [])


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
        if device.type == "meta":
            raise RuntimeError("it holds no numbers")
    except (RuntimeError, AssertionError, ImportError) as error:
        raise InputError(f"The device {name!r} cannot be used here: {str(error).splitlines()[0]}.") from error
    return device
