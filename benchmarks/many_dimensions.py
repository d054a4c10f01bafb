"""Compare the randomised Laplacian with its closed form in 10 000 dimensions, and measure memory.

python benchmarks/many_dimensions.py [dimensions] [points] [samples]
"""

from __future__ import annotations

import resource
import sys
import time

import torch
from torch import Tensor, nn

import dudx


class Waves(nn.Module):
    """The function u = sin(w·x) + Σ c_i cos(x_i): one part couples all axes, the other differs per axis."""

    def __init__(self, dimensions: int):
        super().__init__()
        self.w = nn.Parameter(torch.randn(dimensions, 1) / dimensions**0.5)
        self.c = nn.Parameter(0.5 + torch.rand(dimensions, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x @ self.w) + torch.cos(x) @ self.c

    def laplacian(self, x: Tensor) -> Tensor:
        """Return the Laplacian in closed form."""
        return -self.w.square().sum() * torch.sin(x @ self.w) - torch.cos(x) @ self.c


def main(dimensions: int = 10_000, points: int = 64, samples: int = 16) -> None:
    """Print the true and the reported error of the estimate, then time a training step."""
    torch.manual_seed(0)
    before = _megabytes()
    x, waves = torch.rand(points, dimensions), Waves(dimensions)
    engine = dudx.STDE(samples, generator=torch.Generator().manual_seed(0))
    start = time.perf_counter()
    with torch.no_grad():
        ((value, said),) = engine.estimated(waves, x, [dudx.Laplacian()])
        exact = waves.laplacian(x)
    print(f"{points} points in {dimensions} dimensions, {samples} samples per point")
    print(f"Laplacian in closed form: rms {_rms(exact):.2f}")
    print(f"estimate: rms error {_rms(value - exact):.2f}, standard error it reports {_rms(said):.2f}")
    print(f"mean over the points: error {float((value - exact).mean()):+.2f}, expected to be within "
          f"{_rms(said) / points**0.5:.2f} or so; {time.perf_counter() - start:.2f} s")  # fmt: skip
    model = nn.Sequential(nn.Linear(dimensions, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    operator = dudx.Laplacian()
    right = exact.detach()
    (dudx.evaluate(model, x, operator, engine) - right).square().mean().backward()  # which plans
    start = time.perf_counter()
    (dudx.evaluate(model, x, operator, engine) - right).square().mean().backward()
    print(f"a training step of a tanh network on Poisson's equation: {time.perf_counter() - start:.2f} s")
    print(f"peak memory {_megabytes():.0f} MB, of which {before:.0f} MB before the computation")


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
