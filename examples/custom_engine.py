"""An engine of your own is one class with one method.

Complex-step differentiation: for an analytic network f, Im f(x + ih) / h is the first derivative without any
subtraction. The step can be as small as 1e-20, and the result is exact to rounding. The engine computes first
derivatives only and raises an error for higher orders.

    python examples/custom_engine.py
    dudx train custom_engine:transport --engine custom_engine:ComplexStep --out runs/transport       (from this folder)

An engine whose step is calibrated during training derives from `dudx.engines.interface.Adjustable`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

import dudx
from dudx.engines.request import Request
from dudx.errors import UnsupportedError
from dudx.lab import Dirichlet, Initial, Interval, Problem
from dudx.network.model_checks import Model
from dudx.operators import Partial, Term


@dataclass(frozen=True)
class ComplexStep(dudx.Engine):
    """Complex-step differentiation: first derivatives of an analytic network."""

    step: float = 1e-20

    def derivatives(self, model: Model, x: Tensor, request: Request) -> list[Tensor]:
        assert isinstance(model, nn.Module)
        terms = {term for operator in request for term in operator.terms}
        if not all(isinstance(term, Partial) and term.order <= 1 for term in terms):
            raise UnsupportedError("ComplexStep computes values and first derivatives; use dudx.AD() for more.")
        shifts = torch.zeros(1 + x.shape[1], *x.shape, dtype=x.dtype, device=x.device)
        for axis in range(x.shape[1]):
            shifts[1 + axis, :, axis] = self.step
        complex_type = torch.complex64 if x.dtype == torch.float32 else torch.complex128
        weights = {name: weight.to(complex_type) for name, weight in model.named_parameters()}
        u = functional_call(model, weights, torch.complex(x.expand_as(shifts), shifts).flatten(0, 1))
        u = u.unflatten(0, (len(shifts), len(x)))
        values: dict[Term, Tensor] = {Partial(): u[0].real}
        for axis in range(x.shape[1]):
            values[Partial((axis,))] = u[1 + axis].imag / self.step
        return [
            torch.stack([coefficient * values[term] for term, coefficient in operator.terms.items()]).sum(0)
            for operator in request
        ]


def transport() -> Problem:
    """Transport of a wave, u = sin π(x - t): a first-order equation to train with."""
    return Problem(
        lambda u: u.t + u.x,
        inputs=("x", "t"),
        domain=Interval(-1.0, 1.0) * Interval(0.0, 1.0),
        conditions=[
            Initial(u=lambda x: torch.sin(math.pi * x)),
            Dirichlet(u=lambda x, t: torch.sin(math.pi * (x - t))),
        ],
        title="Transport of a wave",
    )


def main() -> None:
    """Compare the engine with automatic differentiation."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)).double()
    x = torch.rand(1000, 2, dtype=torch.float64)
    residual = dudx.Residual(lambda u: u.t + u * u.x, inputs=("x", "t"))
    difference = residual(model, x, ComplexStep()) - residual(model, x, dudx.AD())  # type: ignore[operator]
    print(f"complex step against automatic differentiation: largest difference {difference.abs().max():.1e}")
    try:
        dudx.evaluate(model, x, [dudx.Laplacian()], ComplexStep())
    except UnsupportedError as error:
        print(f"second derivatives: {error}")


if __name__ == "__main__":
    main()
