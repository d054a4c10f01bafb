"""The loss of a problem: mean squares of its equation and conditions at random points."""

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

#: With automatic weights and at least `_MANY` measurements, one in `_SHARE` is withheld from training.
_MANY, _SHARE = 50, 10


@dataclass(frozen=True)
class Part:
    """One term of the loss at its points."""

    name: str
    weight: float
    residual: Residual
    points: Tensor
    data: Mapping[str, Tensor]
    #: Measurements withheld from training; their error shows how large the noise is.
    kept_back: Points | None = None

    def operators(self) -> list[Operator]:
        """Return the operators that the residual uses."""
        return self.residual.operators(self.points, **self.data)

    def backward(self, model: Model, engine: Engine, chunk: int) -> Tensor:
        """Add the gradient of the weighted loss to the parameters, slice by slice; return the unweighted loss."""
        names = tuple(self.data)

        def weighted(points: Tensor, *data: Tensor) -> Tensor:
            return self.weight * self.residual.loss(model, points, engine, **dict(zip(names, data, strict=True)))

        if self.weight == 0:
            with torch.no_grad():
                return self.residual.loss(model, self.points, engine, **self.data)
        return backward(weighted, (self.points, *self.data.values()), chunk) / self.weight


class Objective:
    """The loss L_PDE + λ_IC · L_IC + λ_BC · L_BC + λ_data · L_data, and the sampling of its points."""

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
        #: The weight of each part by name; automatic weights change during training.
        self.weights = {"pde": 1.0} | {c.name: weights[c.kind] for c in problem.conditions}
        self.sampling = sampling(
            settings.sampling,
            settings.ramp,
            power=settings.adaptive_power,
            floor=settings.adaptive_floor,
            candidates=settings.adaptive_candidates,
        )
        pieces = Pieces(problem.domain)
        #: Pieces of boundary that are averaged one by one; None for one mean over the whole boundary.
        self.pieces = pieces if settings.boundary_mean == "pieces" and pieces.several else None
        self.residuals = [problem.residual, *(self._averaged(condition) for condition in problem.conditions)]
        if settings.ramp:
            time_span(problem.domain)  # which says so where there is none
        self.chunks: dict[str, int] = {}
        if gains_by_compilation(settings.engine) if settings.compile == "auto" else settings.compile:
            self.residuals = [residual.compiled() for residual in self.residuals]

    @property
    def names(self) -> list[str]:
        """Names of the parts, the equation first."""
        return ["pde", *(condition.name for condition, _ in self.conditions)]

    def draw(self, generator: Generator, residual: Callable[[Tensor], Tensor] | None = None) -> list[Part]:
        """Draw new points for every part; `residual` computes the size of the equation's residual at points."""
        context = SamplingContext(self.problem.domain, generator, self.device, self.dtype, residual)
        drawn: list[Points] = [(self.sampling.interior(self.settings.batch, context), {})]
        for condition, size in self.conditions:

            def draw(n: int, sample: Sampler = condition.sample) -> Points:
                return sample(n, generator, self.device, self.dtype)

            # Measured and initial points are not redistributed.
            if condition.kind != "boundary":
                drawn.append(draw(size))
                continue
            points, data = self.sampling.boundary(size, draw, context)
            factors = {} if self.pieces is None else {FACTOR: self.pieces.factors(points)}
            drawn.append((points, {**data, **factors}))
        return self.at(drawn)

    def _averaged(self, condition: Condition) -> Residual:
        """Return the residual of a condition whose mean square is its term of the loss."""
        by_piece = self.pieces is not None and condition.kind == "boundary"
        return multiplied(condition.residual) if by_piece else condition.residual

    def _divided(self, condition: Condition) -> Condition:
        """Withhold a share of a condition's measurements if there are many."""
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
        """Return the parts at given points with their data."""
        return [
            Part(name, self.weights[name], residual, points, data, self.kept_back.get(name))
            for name, residual, (points, data) in zip(self.names, self.residuals, drawn, strict=True)
        ]

    def size(self, model: Model, points: Tensor, engine: Engine) -> Tensor:
        """Return the norm of the residual over all equations at each point, (N,)."""
        with torch.no_grad():
            values = self.residuals[0](model, points, engine)
        equations = values if isinstance(values, tuple) else (values,)
        return torch.stack([value.reshape(-1) for value in equations]).norm(dim=0)

    def gradient(
        self, models: Sequence[Model], parts: Sequence[Part], engine: Engine
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Add the gradient of the loss to the parameters; return the loss and, by name, its unweighted parts.

        Each part has a model of its own, the network as its points see it.
        """
        by_name = {
            part.name: part.backward(model, engine, self.chunk(model, part, engine))
            for model, part in zip(models, parts, strict=True)
        }
        return torch.stack([part.weight * by_name[part.name] for part in parts]).sum(), by_name

    def chunk(self, model: Model, part: Part, engine: Engine) -> int:
        """Return the points per slice of a part; a batch whose samples influence each other stays whole."""
        if self.settings.chunk == "whole" or isinstance(model, Isolated) or engine.coupled != "refuse":
            return len(part.points)
        if self.settings.chunk != "auto":
            return self.settings.chunk
        if part.name not in self.chunks:  # what decides it stays the same throughout
            # A resumed run computes this once more than an undisturbed one.
            with self._unchanged_random_numbers():
                rows = engine.rows(part.points, part.operators())
            self.chunks[part.name] = suggested_chunk(model, self.device, rows)
        return self.chunks[part.name]

    @property
    def compile_seconds(self) -> float:
        """Seconds of compilation so far."""
        return sum(residual.compile_seconds for residual in self.residuals)

    def derivatives(self, parts: Sequence[Part]) -> list[Operator]:
        """Return the single derivatives that occur, for the calibration of a step per order.

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
        """Restore torch's random state afterwards: listing random operators must not change training."""
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
