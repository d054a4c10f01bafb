"""Engine that propagates derivatives forward together with the values (Taylor mode)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from dudx import errors
from dudx.backend.active_modes import lasting_constants
from dudx.engines.interface import Engine, Prepared, in_common_format
from dudx.engines.registry import modules_in
from dudx.engines.taylor.fallback import without_rule
from dudx.engines.taylor.jet import Jet, constant
from dudx.engines.taylor.networks_on_jets import output_of
from dudx.engines.taylor.rotation import Vectors, rotated
from dudx.engines.taylor.stream_layout import Layout
from dudx.engines.taylor.symbols import Monomial, Symbol, closure, mixing
from dudx.network import model_checks
from dudx.network.model_checks import Model
from dudx.operators import Directional, Operator

list(modules_in("dudx.engines.taylor.rules"))  # importing them fills the table


@dataclass(frozen=True)
class Taylor(Engine):
    """Forward-mode differentiation in one pass. Exact, any order, through any function torch can differentiate.

    The fewest possible derivatives are propagated, with each operator as one of them. Including the value, Burgers'
    residual takes four streams, the Laplacian in d variables d + 2, the biharmonic operator in the plane nine.

    Example:
        >>> x = torch.rand(10, 1, dtype=torch.float64)
        >>> fourth = dudx.evaluate(torch.sin, x, dudx.D(0, 0, 0, 0), dudx.Taylor())
        >>> torch.allclose(fourth, torch.sin(x))
        True
    """

    name = "taylor"
    label = "Taylor (ours)"
    summary = "Taylor propagation, forward; exact"
    recommended = True
    rank = 4
    by_code = True
    gains_by_compilation = True

    coupled: str | None = field(default="refuse", kw_only=True)

    @classmethod
    def for_training(cls, accuracy: int, generator: torch.Generator, coupled: str) -> Taylor:
        return cls(coupled=coupled)

    def __post_init__(self) -> None:
        errors.one_of(self.coupled, ("refuse", "ignore"), "coupled")

    def derivatives(self, model: Model, x: Tensor, operators: Sequence[Operator]) -> list[Tensor]:
        plan = self.prepared(x, operators)
        return plan.run(model, x, plan.tensors)

    def prepared(self, x: Tensor, operators: Sequence[Operator]) -> Prepared:
        operators = tuple(operators)
        for operator in operators:
            if operator.holds_vectors:
                vectors: list[Tensor] = []
                plan = _plan(x.shape[1], tuple(_symbol(operator, x.shape[1], vectors) for operator in operators))
                return _prepared(plan, x.dtype, x.device, *vectors)
        return _without_vectors(x.shape[1], operators, x.dtype, x.device)


@dataclass(frozen=True)
class _Seed:
    """Initial value of a stream: constant · x plus multiples of per-point vectors."""

    constant: tuple[float, ...]
    vectors: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class _Reading:
    """An operator as a sum of multiples of streams, by number, and of the value."""

    streams: tuple[tuple[int, float], ...]
    value: float


@dataclass(frozen=True)
class _Plan:
    """Streams of a request, their initial values, and how the operators are computed from them."""

    layout: Layout
    seeds: tuple[_Seed, ...]
    readings: tuple[_Reading, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Hash computed once: a plan in many variables is long, and every call uses it as a key."""
        return hash((self.layout, self.seeds, self.readings))

    @lru_cache(maxsize=8)  # noqa: B019  (plans are cached for good themselves)
    def constants(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return the constant part of the seeds, (streams, d), as data: as constants it would bloat compiled graphs."""
        with lasting_constants():
            return torch.tensor([seed.constant for seed in self.seeds], dtype=dtype, device=device)

    def __call__(self, model: Model, x: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
        if not self.seeds:
            u = model_checks.forward(model, x)
            return in_common_format([reading.value * u for reading in self.readings], x.dtype, u.dtype)
        jet = Jet(self.layout, x, self._streams(x, *tensors))
        u = model_checks.forward(
            lambda jet: output_of(model, jet),
            jet,  # type: ignore[arg-type]
            kinds=(Jet, Tensor),
        )
        if isinstance(u, Tensor):  # the output does not depend on x
            u = constant(jet, u)
        results = [self._read(reading, u) for reading in self.readings]
        return results if u.dtype == x.dtype else in_common_format(results, x.dtype, u.dtype)

    def _streams(self, x: Tensor, constants: Tensor, *vectors: Tensor) -> Tensor:
        # A stream that is equal at every point has one row, which broadcasts until a nonlinear function mixes streams.
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
    def _read(reading: _Reading, u: Jet) -> Tensor:
        total: Any = reading.value * u.value if reading.value or not reading.streams else None
        for number, coefficient in reading.streams:
            stream = u.stream(number)
            part = coefficient * stream if coefficient != 1 or total is not None else stream.clone()
            total = part if total is None else total + part
        return total


def _symbol(operator: Operator, dimensions: int, vectors: list[Tensor]) -> tuple[tuple[Monomial, float], ...]:
    """An operator as a polynomial in the axes and, after these, the per-point vectors, which are collected."""

    def variable(vector: Tensor) -> int:
        known = [i for i, v in enumerate(vectors) if v is vector]
        if not known:
            known = [len(vectors)]
            vectors.append(vector)
        return dimensions + known[0]

    found: dict[Monomial, float] = {}
    for term, coefficient in operator.terms.items():
        axes = (variable(term.direction),) * term.order if isinstance(term, Directional) else tuple(sorted(term.axes))
        found[axes] = found.get(axes, 0.0) + coefficient
    return tuple(found.items())


@lru_cache(maxsize=256)
def _without_vectors(
    dimensions: int, operators: tuple[Operator, ...], dtype: torch.dtype, device: torch.device
) -> Prepared:
    """Operators are compared faster than their symbols, but may hold vectors, which a cache would keep alive."""
    plan = _plan(dimensions, tuple(_symbol(operator, dimensions, []) for operator in operators))
    return _prepared(plan, dtype, device)


def _prepared(plan: _Plan, dtype: torch.dtype, device: torch.device, *vectors: Tensor) -> Prepared:
    return Prepared(plan, plan, (plan.constants(dtype, device), *vectors), rows=1 + len(plan.seeds))


@lru_cache(maxsize=256)
def _plan(dimensions: int, symbols: tuple[tuple[tuple[Monomial, float], ...], ...]) -> _Plan:
    asked = [dict(symbol) for symbol in symbols]
    turned = rotated(asked, dimensions)
    asked, axes = (asked, None) if turned is None else turned
    basis = closure(asked)
    keys = list(basis)
    numbers = {key: number for number, key in enumerate(keys)}
    readings = [
        _Reading(tuple((numbers[key], c) for key, c in symbol.items() if key in numbers), symbol.get((), 0.0))
        for symbol in asked
    ]
    return _Plan(
        Layout(tuple(mixing(symbol, keys) for symbol in basis.values()), without_rule),
        tuple(_seed(symbol, dimensions, axes) for symbol in basis.values()),
        tuple(readings),
    )


def _seed(symbol: Symbol, dimensions: int, axes: Vectors | None = None) -> _Seed:
    """An operator applied to x itself: only its first-order terms are left, along the axes of its variables."""
    constant = [0.0] * dimensions
    vectors = []
    for monomial, c in symbol.items():
        if len(monomial) == 1:
            if monomial[0] < dimensions:
                constant[monomial[0]] = c
            else:
                vectors.append((monomial[0] - dimensions, c))
    if axes is not None:
        constant = (axes @ constant).tolist()
    return _Seed(tuple(constant), tuple(vectors))
