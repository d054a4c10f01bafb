"""Engine that propagates derivatives forward together with the values (Taylor mode)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from dudx import errors
from dudx.backend.active_modes import lasting_constants
from dudx.engines.interface import Coupled, Planned, Prepared, in_common_format
from dudx.engines.registry import modules_in
from dudx.engines.request import Request
from dudx.engines.taylor.jet import Jet, constant
from dudx.engines.taylor.missing_rules import without_rule
from dudx.engines.taylor.networks_on_jets import output_of
from dudx.engines.taylor.rotation import Vectors, rotated
from dudx.engines.taylor.stream_layout import Layout
from dudx.engines.taylor.symbols import Monomial, Symbol, closure, mixing
from dudx.network import model_checks
from dudx.network.model_checks import Model
from dudx.operators import Directional, Operator

list(modules_in("dudx.engines.taylor.rules"))  # importing them fills the table


@dataclass(frozen=True)
class Taylor(Planned):
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
    by_code = True

    coupled: Coupled | None = field(default="refuse", kw_only=True)

    def __post_init__(self) -> None:
        errors.one_of(self.coupled, Coupled, "coupled")

    def derivatives(self, model: Model, x: Tensor, request: Request) -> list[Tensor]:
        plan = self.prepared(x, request)
        return plan.run(model, x, plan.tensors)

    def prepared(self, x: Tensor, request: Request) -> Prepared:
        plan = _prepared(x.shape[1], request.operators, x.dtype, x.device)
        return replace(plan, tensors=plan.tensors + request.vectors) if request.vectors else plan


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


@lru_cache(maxsize=256)
def _prepared(dimensions: int, operators: tuple[Operator, ...], dtype: torch.dtype, device: torch.device) -> Prepared:
    """The plan without vectors, which come after its tensors."""
    plan = _plan(dimensions, tuple(_symbol(operator, dimensions) for operator in operators))
    return Prepared(plan, plan, (plan.constants(dtype, device),), rows=1 + len(plan.seeds))


def _symbol(operator: Operator, dimensions: int) -> tuple[tuple[Monomial, float], ...]:
    """An operator as a polynomial in the axes and, after these, the vectors by slot."""
    return tuple(
        ((dimensions + term.slot,) * term.order if isinstance(term, Directional) else tuple(sorted(term.axes)), c)
        for term, c in operator.terms.items()
    )


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
