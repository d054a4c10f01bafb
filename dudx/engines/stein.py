"""Derivatives of the smoothed network, by forward passes at random places around each point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor

from dudx import errors
from dudx.engines.interface import Engine, RowsPerPoint
from dudx.engines.stochastic_taylor import Pattern, terms_by_pattern, whole_number
from dudx.errors import InputError
from dudx.network import model_checks
from dudx.network.model_checks import Model
from dudx.operators import Directional, Operator


@dataclass(frozen=True)
class Stein(Engine):
    """Derivatives of u_σ(x) = E u(x + σz), z normal, by Stein's identity: E u(x + σz) He(z) / σ^order.

    Nothing is differentiated, and the number of evaluations does not grow with the dimension. Opposite places are
    taken in pairs and the value at the point is subtracted, which takes most of the noise away. What is left falls with
    the square root of the samples, and what smoothing changes with σ². Values, D(), are those of the network itself.

    Args:
        sigma: the standard deviation of the places around a point.
        samples: how many pairs of places a point has.
        generator: makes them repeatable by themselves; without one, torch's global generator is used.

    Example:
        >>> x = torch.zeros(1, 1, dtype=torch.float64)
        >>> engine = dudx.Stein(sigma=0.1, samples=100_000, generator=torch.Generator().manual_seed(0))
        >>> slope = dudx.evaluate(torch.sin, x, dudx.D(0), engine)
        >>> bool((slope - 1).abs() < 0.02)
        True
    """

    name = "stein"
    label = "Stein"
    summary = "derivatives of the smoothed network by random forward passes; nothing is differentiated"
    approximate = True
    rank = 8

    sigma: float = 0.05
    samples: int = 256
    generator: Generator | None = field(default=None, compare=False)
    coupled: str | None = field(default="refuse", kw_only=True, repr=False)

    @classmethod
    def for_training(cls, accuracy: int, generator: Generator, coupled: str) -> Stein:
        return cls(generator=generator, coupled=coupled)

    def __post_init__(self) -> None:
        errors.positive_step(self.sigma, "sigma of Stein")
        whole_number(self.samples, "samples")
        errors.one_of(self.coupled, ("refuse", "ignore"), "coupled")
        if self.generator is not None and not isinstance(self.generator, Generator):
            raise InputError(f"The generator of Stein must be a torch.Generator; got {type(self.generator).__name__}.")

    def rows(self, x: Tensor, operators: Sequence[Operator]) -> RowsPerPoint:
        count = 2 * self.samples + 1
        return RowsPerPoint(count, count)

    def derivatives(self, model: Model, x: Tensor, operators: Sequence[Operator]) -> list[Tensor]:
        if not any(order for operator in operators for order in operator.orders):
            u = model_checks.forward(model, x.clone())
            return [sum(operator.terms.values()) * u for operator in operators]
        device = x.device if self.generator is None else self.generator.device
        if x.is_meta:
            device = x.device
        z = torch.randn(self.samples, *x.shape, generator=None if x.is_meta else self.generator, device=device).to(x)
        rows = torch.cat([x.unsqueeze(0), x + self.sigma * z, x - self.sigma * z])
        table = model_checks.forward(model, rows.view(-1, x.shape[1])).view(len(rows), len(x), -1)
        u, above, below = table[0], table[1 : 1 + self.samples], table[1 + self.samples :]
        halves = ((above + below) / 2 - u, (above - below) / 2)  # the even and the odd part around the point
        results = []
        for operator in operators:
            total = torch.zeros_like(u)
            for parity, half in enumerate(halves):
                weights = self._weights(operator, z, parity)
                if weights is not None:
                    total = total + (weights.unsqueeze(2) * half).mean(0)
            value = sum(c for term, c in operator.terms.items() if not term.order)
            results.append(total + value * u if value else total)
        return results

    def _weights(self, operator: Operator, z: Tensor, parity: int) -> Tensor | None:
        """What the even or odd parts are weighted with, (samples, B)."""
        total = None
        for (coefficient, pattern), axes in terms_by_pattern(operator).items():
            if pattern and sum(pattern) % 2 == parity:
                one = coefficient * self._hermite(pattern, torch.tensor(axes, device=z.device), z)
                total = one if total is None else total + one
        for term, coefficient in operator.terms.items():
            if isinstance(term, Directional) and term.order % 2 == parity:
                length = torch.linalg.vector_norm(term.direction, dim=1)
                unit = term.direction / torch.where(length > 0, length, torch.ones_like(length)).unsqueeze(1)
                along = _polynomial(term.order, (z * unit).sum(2))
                one = coefficient * (length / self.sigma) ** term.order * along
                total = one if total is None else total + one
        return total

    def _hermite(self, pattern: Pattern, axes: Tensor, z: Tensor) -> Tensor:
        """The sum over terms of the product over their axes of Hermite polynomials, divided by the power of σ."""
        product = torch.ones(1, dtype=z.dtype, device=z.device)
        for number, order in enumerate(pattern):
            product = product * _polynomial(order, z[:, :, axes[:, number]])
        return product.sum(2) / self.sigma ** sum(pattern)


def _polynomial(order: int, z: Tensor) -> Tensor:
    """The Hermite polynomial whose weight is the normal density: 1, z, z² - 1, z³ - 3z, …"""
    before, now = torch.zeros_like(z), torch.ones_like(z)
    for n in range(order):
        before, now = now, z * now - n * before
    return now
