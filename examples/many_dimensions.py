"""Poisson's equation in 100 or 1000 variables, with the exact Laplacian or a random estimate of it.

    python examples/many_dimensions.py [--dimensions 100] [--samples 8] [--epochs 1000] [--batch 128]

The equation is Δu = f in the unit ball with u = 0 on the sphere. The solution u = (1 - |x|²) sin(w·x) is known, so the
error can be computed. The network is multiplied by 1 - |x|², so there is no boundary condition to learn.

`Taylor` propagates d + 2 streams for the exact Laplacian. `STDE` takes second derivatives along a few random axes,
which are drawn again per point and step: 2 rows per axis, for any d. The expected square of an estimate is too
large by its variance, so the loss is the product of two independent estimates.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from torch import Tensor, nn

import dudx
from dudx.errors import percent


class Ball(nn.Module):
    """A tanh network that is zero on the unit sphere."""

    def __init__(self, dimensions: int, width: int = 64):
        super().__init__()
        layers = [nn.Linear(dimensions, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)]
        self.inner = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return (1 - (x * x).sum(1, keepdim=True)) * self.inner(x)


def points(count: int, dimensions: int, generator: torch.Generator) -> Tensor:
    """Return points with random directions and radii; uniform points would all lie close to the sphere."""
    direction = torch.randn(count, dimensions, generator=generator)
    return direction / direction.norm(dim=1, keepdim=True) * torch.rand(count, 1, generator=generator)


def solution(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Return the exact solution (1 - |x|²) sin(w·x) and its Laplacian."""
    along, inside = x @ w, 1 - (x * x).sum(1, keepdim=True)
    sine, cosine = torch.sin(along), torch.cos(along)
    return inside * sine, -2 * x.shape[1] * sine - 4 * along * cosine - inside * w.square().sum() * sine


def solve(dimensions: int, samples: int | None, epochs: int, batch: int) -> tuple[float, float]:
    """Train a network; return its relative error and ms per epoch. `samples=None` uses the exact Laplacian."""
    torch.manual_seed(0)
    draws = torch.Generator().manual_seed(1)
    # Along a random unit vector w·x is of the order of 1 in any number of dimensions.
    w = torch.randn(dimensions, 1, generator=draws)
    model = Ball(dimensions)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    names = tuple(f"x{i}" for i in range(dimensions))

    residual: Any = dudx.Residual(lambda u, f: (u.laplacian() - f) / dimensions, inputs=names, data=("f",))
    engine = dudx.Taylor() if samples is None else dudx.STDE(samples, generator=draws)
    start = time.perf_counter()
    for _ in range(epochs):
        x = points(batch, dimensions, draws)
        _, f = solution(x, w)
        first = residual(model, x, engine, f=f)
        second = first if samples is None else residual(model, x, engine, f=f)
        optimizer.zero_grad()
        (first * second).mean().backward()
        optimizer.step()
        schedule.step()
    milliseconds = 1e3 * (time.perf_counter() - start) / epochs
    x = points(4096, dimensions, draws)
    truth, _ = solution(x, w)
    with torch.no_grad():
        return float((model(x) - truth).norm() / truth.norm()), milliseconds


def main() -> None:
    """Solve with both Laplacians and print errors and times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[100])
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--exact-epochs", type=int, help="epochs with the exact Laplacian; 0 skips it")
    options = parser.parse_args()
    exact_epochs = options.epochs if options.exact_epochs is None else options.exact_epochs
    for d in options.dimensions:
        error, milliseconds = solve(d, options.samples, options.epochs, options.batch)
        print(f"d = {d}, {options.samples} axes: error {percent(error)}, {milliseconds:.1f} ms/epoch", flush=True)
        if exact_epochs:
            error, milliseconds = solve(d, None, exact_epochs, options.batch)
            print(f"d = {d}, exact: error {percent(error)}, {milliseconds:.1f} ms/epoch", flush=True)


if __name__ == "__main__":
    main()
