"""Solve a diffusion equation for any initial state with one DeepONet, trained without solution data.

    python examples/deeponet.py [--steps 2000] [--picture deeponet.png]

A DeepONet takes a function, given by its values at sensors, and points. Here the function is the initial state
u₀ = Σ c_k sin kπx with random c, and the points are (x, t). The network is trained on u_t = κ u_xx for many functions
at once. With `functions=` the residual has one column per function. The network of the points (the trunk) evaluates
each point once, so derivatives cost as much as for one function. The exact solution Σ c_k exp(-κ k²π² t) sin kπx is
used only at the end, to measure the error for new functions.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import dudx
from dudx.errors import percent

KAPPA, WAVES, SENSORS, FUNCTIONS, POINTS = 0.05, 3, 24, 40, 200


class DeepONet(nn.Module):
    """Map functions (N, sensors) and points (B, 2) to values (N, B), zero at both ends."""

    def __init__(self, width: int = 40):
        super().__init__()
        # The solution is linear in the initial state, so the branch is linear.
        self.branch = nn.Linear(SENSORS, width, bias=False)
        layers = [nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width)]
        self.trunk = nn.Sequential(*layers)

    def forward(self, x: Tensor, a: Tensor) -> Tensor:
        ends = 4 * x[:, :1] * (1 - x[:, :1])
        return self.branch(a) @ (ends * self.trunk(2 * x - 1)).T


def waves(x: Tensor, t: Tensor | float, c: Tensor) -> Tensor:
    """Return the exact solution (N, B) for coefficients (N, waves) at positions and times (B,)."""
    k = torch.pi * torch.arange(1, WAVES + 1)
    return c @ (torch.sin(k[:, None] * x) * torch.exp(-KAPPA * k[:, None] ** 2 * t))


def drawn(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return random functions: their coefficients and their values at the sensors."""
    c = torch.randn(count, WAVES, generator=generator) / torch.arange(1, WAVES + 1)
    return c, waves(torch.linspace(0, 1, SENSORS), 0.0, c)


def solve(steps: int) -> tuple[DeepONet, float]:
    """Train a network; return it and its relative error for 200 new functions."""
    torch.manual_seed(0)
    draws = torch.Generator().manual_seed(1)
    network = DeepONet()
    equation = dudx.Residual(lambda u: u.t - KAPPA * u.xx, inputs=("x", "t"), functions=("a",))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        c, a = drawn(FUNCTIONS, draws)
        x = torch.rand(POINTS, 2, generator=draws)
        start = x * torch.tensor([1.0, 0.0])
        missed = network(start, a) - waves(x[:, 0], 0.0, c)
        loss = equation.loss(network, x, dudx.Taylor(), a=a) + 10 * missed.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    c, a = drawn(200, torch.Generator().manual_seed(2))
    x = torch.rand(1000, 2, generator=torch.Generator().manual_seed(3))
    truth = waves(x[:, 0], x[:, 1], c)
    with torch.no_grad():
        return network, float((network(x, a) - truth).norm() / truth.norm())


def picture(network: DeepONet, path: Path) -> None:
    """Draw the network's solution and the exact one for three new functions."""
    from dudx.lab import plots

    c, a = drawn(3, torch.Generator().manual_seed(4))
    places = torch.linspace(0, 1, 101)
    with plots.figure(path, 3, (11, 3.2)) as panels:
        for number, axes in enumerate(panels):
            for colour, moment in zip(plots.COLOURS, (0.0, 0.25, 1.0), strict=False):
                x = torch.stack([places, torch.full_like(places, moment)], dim=1)
                with torch.no_grad():
                    found = network(x, a)[number]
                axes.plot(places, found, color=colour, label=f"t = {moment:g}")
                axes.plot(places, waves(places, moment, c)[number], color="black", linestyle=":", linewidth=1.2)
            axes.set(xlabel="x", title="u, dotted: closed form" if number == 0 else "")
        panels[0].legend()


def main() -> None:
    """Train the network, print its error and write the picture."""
    parser = argparse.ArgumentParser(description="Train a DeepONet on diffusion.")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--picture", type=Path, default=Path("deeponet.png"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    start = time.process_time()
    network, error = solve(chosen.steps)
    print(f"relative error {percent(error)} for 200 new functions, {time.process_time() - start:.0f} CPU s")
    picture(network, chosen.picture)
    print(f"picture: {chosen.picture}")


if __name__ == "__main__":
    main()
