"""Operators of many terms by a few of them, drawn anew for each point and call: unbiased, in any dimension."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from math import comb, factorial

import torch
from torch import Generator, Tensor

from dudx.engines.first_use import sound_derivatives
from dudx.engines.interface import (
    Counted,
    Coupled,
    Engine,
    Planned,
    Prepared,
    RowsPerPoint,
    Stepped,
    prepared,
    refuse_unset,
    rows_per_point,
)
from dudx.engines.request import Request, request_of
from dudx.engines.taylor.taylor_engine import Taylor
from dudx.errors import InputError, whole_number
from dudx.network.model_checks import Model
from dudx.operators import Directional, Operator, Partial, Term

#: How often each of the different axes of a partial derivative occurs, from the most frequent.
Pattern = tuple[int, ...]


@dataclass(frozen=True)
class STDE(Counted, Planned, Stepped):
    """The randomised estimate of any operator: a few of its terms, drawn anew for each point and call.

    Terms with the same coefficient and the same orders along their axes make a stratum. Of a stratum with more terms
    than `samples` so many are drawn without repetition, and their mean stands for all; smaller ones are computed whole.
    A drawn term is a derivative along a vector, or a few of them where it is mixed. The estimate is unbiased, and its
    square, in a loss, is too large by its variance on average.

    Args:
        samples: how many terms of a stratum are computed.
        inner: the engine that computes them.
        generator: makes the draws repeatable by themselves; without one, torch's global generator is used.

    Example:
        >>> x = torch.rand(10, 1000, dtype=torch.float64)
        >>> quarter = lambda x: (x**2).sum(1, keepdim=True) / 4
        >>> laplacian = dudx.evaluate(quarter, x, dudx.Laplacian(), dudx.STDE(samples=4))
        >>> torch.allclose(laplacian, torch.full_like(laplacian, 500.0))  # exact here: the same along every axis
        True
    """

    name = "stde"
    approximate = True

    samples: int = 16
    inner: Engine = field(default_factory=Taylor)
    generator: Generator | None = field(default=None, compare=False)
    coupled: Coupled | None = field(default="refuse", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        whole_number(self.samples, "samples")
        if not isinstance(self.inner, Engine):
            raise InputError(f"STDE computes with an engine such as dudx.Taylor(); got {self.inner!r}.")
        object.__setattr__(self, "coupled", self.inner.coupled)

    def derivatives(self, model: Model, x: Tensor, request: Request) -> Sequence[Tensor]:
        return sound_derivatives(self.inner, model, x, self._mean(x, request))

    def prepared(self, x: Tensor, request: Request) -> Prepared | None:
        if not isinstance(self.inner, Planned):
            return None  # nothing is drawn for a plan that there is none of
        return prepared(self.inner, x, self._mean(x, request))

    def rows_for(self, x: Tensor, request: Request) -> RowsPerPoint:
        """Rows that a point takes whatever is drawn."""
        point = x[:1]
        return rows_per_point(self.inner, point, self._mean(point, request.at_rows(slice(0, 1)), first=True))

    def refuse_unset(self, request: Request) -> None:
        refuse_unset(self.inner, request)

    def estimated(self, model: Model, x: Tensor, operators: Sequence[Operator]) -> list[tuple[Tensor, Tensor]]:
        """For each operator its estimate and the standard error of that, both (B, m), from the spread of the samples.

        Example:
            >>> x = torch.rand(5, 300, dtype=torch.float64)
            >>> ((value, error),) = dudx.STDE(32).estimated(torch.nn.Linear(300, 1).double(), x, [dudx.Laplacian()])
            >>> value.shape, bool((error < 1e-9).all())  # a linear function has no curvature to be uncertain of
            (torch.Size([5, 1]), True)
        """
        if self.samples < 2:
            raise InputError("The spread of one sample is unknown; take two or more, dudx.STDE(samples=2).")
        request = request_of(operators, x)
        vectors = list(request.vectors)
        drawn = [self._drawn(operator, x, vectors) for operator in request]
        asked = [part for one in drawn for part in (one.whole, *itertools.chain(*(s for s, _ in one.strata)))]
        values = iter(sound_derivatives(self.inner, model, x, Request(tuple(asked), tuple(vectors))))
        found = []
        for one in drawn:
            total = next(values)
            variance = torch.zeros_like(total)
            for samples, count in one.strata:
                table = torch.stack([next(values) for _ in samples])
                total = total + table.mean(0)
                variance = variance + table.var(0) / len(samples) * (1 - len(samples) / count)
            found.append((total, variance.sqrt()))
        return found

    def _mean(self, x: Tensor, request: Request, first: bool = False) -> Request:
        """The request of the estimates: drawn terms are along vectors, in slots after those of the request."""
        vectors = list(request.vectors)
        operators = [self._drawn(operator, x, vectors, first).mean for operator in request]
        return Request(tuple(operators), tuple(vectors))

    def _drawn(self, operator: Operator, x: Tensor, vectors: list[Tensor], first: bool = False) -> _Drawn:
        """Draw terms of an operator; the vectors that they are along are added to `vectors`."""
        whole: dict[Term, float] = {}
        strata = []
        for (coefficient, pattern), axes in terms_by_pattern(operator).items():
            if len(axes) <= self.samples:
                whole |= {_term(pattern, one): coefficient for one in axes}
                continue
            if first or x.is_meta:
                chosen = torch.arange(self.samples, device=x.device).unsqueeze(1).expand(-1, len(x))
            else:
                chosen = _different_numbers(x, self.samples, len(axes), self.generator)
            table = torch.tensor(axes, device=x.device)[chosen]  # (samples, B, different axes)
            scale = coefficient * len(axes)
            strata.append(([_sample(pattern, places, scale, x, vectors) for places in table], len(axes)))
        whole |= {term: c for term, c in operator.terms.items() if isinstance(term, Directional)}
        return _Drawn(Operator(whole), strata)


@dataclass(frozen=True)
class _Drawn:
    """The terms of an operator that are computed as they are, and samples of each stratum with its size."""

    whole: Operator
    strata: list[tuple[list[Operator], int]]

    @property
    def mean(self) -> Operator:
        total = dict(self.whole.terms)
        for samples, _ in self.strata:
            for sample in samples:
                total |= {term: c / len(samples) for term, c in sample.terms.items()}
        return Operator(total)


def _different_numbers(x: Tensor, samples: int, count: int, generator: Generator | None) -> Tensor:
    """For each point random numbers below `count`, each without repetition, (samples, B)."""
    device = x.device if generator is None else generator.device
    # The largest of independent random keys stand at random places. A seed that the points were drawn with too gives
    # the same keys: moved, they are those of other coordinates.
    keys = torch.rand(len(x), count, generator=generator, device=device).roll((1, 1), (0, 1))
    return keys.topk(samples, dim=1).indices.T.to(x.device)


def terms_by_pattern(operator: Operator) -> Mapping[tuple[float, Pattern], list[tuple[int, ...]]]:
    """By coefficient and pattern the terms, each by its different axes."""
    strata: dict[tuple[float, Pattern], list[tuple[int, ...]]] = {}
    for term, coefficient in operator.terms.items():
        if isinstance(term, Partial):
            pattern, axes = _pattern(term)
            strata.setdefault((coefficient, pattern), []).append(axes)
    return strata


def _pattern(term: Partial) -> tuple[Pattern, tuple[int, ...]]:
    counted = sorted(((term.axes.count(axis), axis) for axis in set(term.axes)), key=lambda pair: (-pair[0], pair[1]))
    return tuple(count for count, _ in counted), tuple(axis for _, axis in counted)


def _term(pattern: Pattern, axes: Sequence[int]) -> Partial:
    return Partial(tuple(sorted(axis for count, axis in zip(pattern, axes, strict=True) for _ in range(count))))


def _sample(pattern: Pattern, places: Tensor, scale: float, x: Tensor, vectors: list[Tensor]) -> Operator:
    """A term at each point, whose axes are (B, different axes), as derivatives along vectors in further slots."""
    terms: dict[Term, float] = {}
    for mixture, weight in polarisation(pattern):
        vector = torch.zeros_like(x)
        for part, axis in zip(mixture, places.unbind(1), strict=True):
            vector.scatter_(1, axis.unsqueeze(1), float(part))
        terms[Directional(len(vectors), sum(pattern))] = scale * float(weight)
        vectors.append(vector)
    return Operator(terms)


@cache
def polarisation(pattern: Pattern) -> tuple[tuple[tuple[Fraction, ...], Fraction], ...]:
    """A mixed derivative as a sum of derivatives along mixtures of its axes: their parts, and the weight of each.

    x₁^n₁ … x_k^n_k = 1/N! Σ_ν (-1)^|ν| Π C(n_i, ν_i) (Σ (n_i/2 - ν_i) x_i)^N with N = Σ n_i; opposite mixtures are one.
    """
    if len(pattern) == 1:
        return (((Fraction(1),), Fraction(1)),)
    order = sum(pattern)
    weights: dict[tuple[Fraction, ...], Fraction] = {}
    for removed in itertools.product(*(range(n + 1) for n in pattern)):
        mixture = tuple(Fraction(n, 2) - k for n, k in zip(pattern, removed, strict=True))
        leading = next((part for part in mixture if part), None)
        if leading is None:
            continue
        weight = Fraction((-1) ** sum(removed), factorial(order))
        for n, k in zip(pattern, removed, strict=True):
            weight *= comb(n, k)
        if leading < 0:
            mixture, weight = tuple(-part for part in mixture), weight * (-1) ** order
        weights[mixture] = weights.get(mixture, Fraction(0)) + weight
    return tuple((mixture, weight) for mixture, weight in weights.items() if weight)
