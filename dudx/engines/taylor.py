"""Exact forward propagation of truncated Taylor series, through the unchanged module."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from dudx import checks
from dudx.checks import Model
from dudx.engines import jet_functions, jet_layers, jet_rules  # noqa: F401  (importing them fills the table)
from dudx.engines.base import Engine, Prepared
from dudx.engines.jet import Jet
from dudx.engines.jet_layout import Collapsed, Layout, Power, Quadratic
from dudx.operators import Directional, Operator, Partial

#: A direction: a vector of whole numbers, or the place of a per-point vector among those given.
_Direction = tuple[int, ...] | int


@dataclass(frozen=True)
class Taylor(Engine):
    """Derivatives carried forward beside the values, exact for any order; needs a rule for each torch function used.

    The value, one stream for each direction that occurs in a second derivative, and one stream for each operator pass
    through the network together: Burgers' residual takes three streams, the Laplacian in d variables d + 2.
    """

    coupled: str | None = field(default="refuse", kw_only=True)

    def __post_init__(self) -> None:
        checks.choice(self.coupled, ("refuse", "ignore"), "coupled")

    def derivatives(self, model: Model, x: Tensor, operators: Sequence[Operator]) -> list[Tensor]:
        return self.prepared(x, operators)(model, x)

    def prepared(self, x: Tensor, operators: Sequence[Operator]) -> Prepared:
        vectors: list[Tensor] = []
        if any(isinstance(term, Directional) for operator in operators for term in operator.terms):
            plan = _Planner(x.shape[1], vectors).plan(operators)
        else:
            plan = _plan_without_vectors(x.shape[1], tuple(operators))
        return Prepared(plan, plan, (plan.constants(x.dtype, x.device), *vectors), rows=1 + len(plan.seeds))


@dataclass(frozen=True)
class _Seed:
    """Where a stream starts: constant · x, plus multiples of the per-point vectors given."""

    constant: tuple[float, ...]
    vectors: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class _Reading:
    """How an operator is read off: a stream (or none) plus a multiple of the value."""

    stream: int | None
    value: float


@dataclass(frozen=True)
class _Plan:
    """Which streams a request takes, where they start, and how the operators are read off them."""

    layout: Layout
    seeds: tuple[_Seed, ...]
    readings: tuple[_Reading, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Computed once: a plan in many variables is long, and it is the key of every call."""
        return hash((self.layout, self.seeds, self.readings))

    @lru_cache(maxsize=8)  # noqa: B019  (plans are cached for good themselves)
    def constants(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """The constant part of the seeds, (streams, d): data, as a compiled graph would drown in it."""
        with torch.inference_mode(False):
            return torch.tensor([seed.constant for seed in self.seeds], dtype=dtype, device=device)

    def __call__(self, model: Model, x: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
        if not self.seeds:
            u = checks.forward(model, x)
            return [reading.value * u for reading in self.readings]
        jet = Jet(self.layout, x, self._streams(x, *tensors))
        u = checks.forward(model, jet, kinds=(Jet, Tensor))
        if isinstance(u, Tensor):  # a constant: nothing in it depends on x
            u = jet_rules.constant(jet, u)
        streams = u.full()
        return [self._read(reading, u.value, streams) for reading in self.readings]

    def _streams(self, x: Tensor, constants: Tensor, *vectors: Tensor) -> Tensor:
        # A stream that is the same at every point has one row, which broadcasts until a nonlinearity mixes with it.
        start = constants.unsqueeze(1)
        if not any(seed.vectors for seed in self.seeds):
            return start
        rows = []
        for number, seed in enumerate(self.seeds):
            row = start[number].expand_as(x)
            for vector, coefficient in seed.vectors:
                row = row + coefficient * vectors[vector]
            rows.append(row)
        return torch.stack(rows)

    @staticmethod
    def _read(reading: _Reading, value: Tensor, streams: Tensor) -> Tensor:
        if reading.stream is None:
            return reading.value * value
        derivative = streams[reading.stream]
        return derivative + reading.value * value if reading.value else derivative.clone()


@lru_cache(maxsize=256)
def _plan_without_vectors(dimensions: int, operators: tuple[Operator, ...]) -> _Plan:
    return _Planner(dimensions, []).plan(operators)


class _Planner:
    """Makes the plan: the directions that terms of order 2 and above need, then one collapsed stream an operator."""

    def __init__(self, dimensions: int, vectors: list[Tensor]):
        self.dimensions, self.vectors = dimensions, vectors
        #: The highest order each direction is carried to.
        self.highest: dict[_Direction, int] = {}

    def plan(self, operators: Sequence[Operator]) -> _Plan:
        """Directions first, in a fixed order: operators refer to them by number."""
        for operator in operators:
            self._collect(operator)
        numbers = {direction: k for k, direction in enumerate(self.highest)}
        carried = sum(self.highest.values())
        collapsed: list[Collapsed] = []
        seeds = [self._direction_seed(direction) for direction in self.highest]
        seeds += [_Seed((0.0,) * self.dimensions)] * (carried - len(seeds))
        readings = []
        for operator in operators:
            derivative = Operator({term: c for term, c in operator.terms.items() if term.order})
            axis = self._single_axis(derivative)
            stream = None if axis is None else numbers.get(axis)
            if derivative.terms and stream is None:
                stream = carried + len(collapsed)
                collapsed.append(self._collapse(derivative, numbers))
                seeds.append(self._operator_seed(derivative))
            readings.append(_Reading(stream, operator.terms.get(Partial(), 0.0)))
        return _Plan(Layout(tuple(self.highest.values()), tuple(collapsed)), tuple(seeds), tuple(readings))

    def _single_axis(self, operator: Operator) -> _Direction | None:
        """The axis of a bare ∂/∂x_k, which may be carried already for a second derivative."""
        if len(operator.terms) != 1:
            return None
        ((term, coefficient),) = operator.terms.items()
        bare = isinstance(term, Partial) and term.order == 1 and coefficient == 1
        return self._axis(term.axes[0]) if bare else None  # type: ignore[union-attr]

    def _axis(self, axis: int) -> _Direction:
        return tuple(int(i == axis) for i in range(self.dimensions))

    def _vector(self, direction: Tensor) -> int:
        known = [i for i, v in enumerate(self.vectors) if v is direction]
        if not known:
            known = [len(self.vectors)]
            self.vectors.append(direction)
        return known[0]

    def _collect(self, operator: Operator) -> None:
        """Note the directions that the terms of order 2 and above need, and to which order they are carried."""

        def need(direction: _Direction, order: int) -> None:
            self.highest[direction] = max(order, self.highest.get(direction, 1))

        for term in operator.terms:
            if isinstance(term, Directional):
                if term.order > 1:
                    need(self._vector(term.direction), term.order - 1)
            elif term.order == 2:
                for axis in term.axes:
                    need(self._axis(axis), 1)
            elif term.order > 2:
                for direction in polarised(term.axes, self.dimensions):
                    need(direction, term.order - 1)

    def _collapse(self, operator: Operator, numbers: dict[_Direction, int]) -> Collapsed:
        quadratics: dict[tuple[int, int], float] = {}
        powers: dict[tuple[int, int], float] = {}
        for term, coefficient in operator.terms.items():
            if isinstance(term, Directional) and term.order > 1:
                k = numbers[self._vector(term.direction)]
                table, key = (quadratics, (k, k)) if term.order == 2 else (powers, (k, term.order))
                table[key] = table.get(key, 0.0) + coefficient
            elif isinstance(term, Partial) and term.order == 2:
                i, j = sorted(numbers[self._axis(axis)] for axis in term.axes)
                quadratics[i, j] = quadratics.get((i, j), 0.0) + coefficient
            elif isinstance(term, Partial) and term.order > 2:
                for direction, weight in polarised(term.axes, self.dimensions).items():
                    key = numbers[direction], term.order
                    powers[key] = powers.get(key, 0.0) + coefficient * weight
        return Collapsed(
            tuple(Quadratic(i, j, c) for (i, j), c in sorted(quadratics.items())),
            tuple(Power(k, p, c) for (k, p), c in sorted(powers.items()) if c),
        )

    def _direction_seed(self, direction: _Direction) -> _Seed:
        if isinstance(direction, int):
            return _Seed((0.0,) * self.dimensions, ((direction, 1.0),))
        return _Seed(tuple(float(entry) for entry in direction))

    def _operator_seed(self, operator: Operator) -> _Seed:
        """An operator applied to x itself: only its first-order terms are left."""
        constant = [0.0] * self.dimensions
        vectors = []
        for term, coefficient in operator.terms.items():
            if isinstance(term, Directional) and term.order == 1:
                vectors.append((self._vector(term.direction), coefficient))
            elif isinstance(term, Partial) and term.order == 1:
                constant[term.axes[0]] += coefficient
        return _Seed(tuple(constant), tuple(vectors))


def polarised(axes: Sequence[int], dimensions: int) -> dict[tuple[int, ...], float]:
    """A mixed derivative as a combination of pure ones: ∂_{a₁}…∂_{a_p} = Σ weight · (∂ along direction)^p.

    From a₁…a_p = Σ_ε (Π ε) (a₁ + ε₂ a₂ + … + ε_p a_p)^p / (2^(p-1) p!); directions that are multiples of each other
    are one. ∂⁴/∂x²∂y² takes the directions x, y, x + y and x - y.
    """
    order = len(axes)
    if len(set(axes)) == 1:
        return {tuple(int(i == axes[0]) for i in range(dimensions)): 1.0}
    found: dict[tuple[int, ...], float] = {}
    for signs in itertools.product((1, -1), repeat=order - 1):
        vector = [0] * dimensions
        for axis, sign in zip(axes, (1, *signs), strict=True):
            vector[axis] += sign
        length = math.gcd(*vector)
        if length == 0:
            continue
        if next(entry for entry in vector if entry) < 0:
            length = -length
        direction = tuple(entry // length for entry in vector)
        weight = math.prod(signs) * length**order / (2 ** (order - 1) * math.factorial(order))
        found[direction] = found.get(direction, 0.0) + weight
    return {direction: weight for direction, weight in found.items() if weight}
