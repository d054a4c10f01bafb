"""Time several ways to differentiate a physics-informed DeepONet for many functions at the same points.

python benchmarks/functions.py [functions] [points]

"a row for each pair" repeats the points per function, as is necessary without functions=. "one after the other" is AD
over the outputs in turn. "together" is zero coordinate shift, which AD uses by default for many outputs. All residuals
are compared before they are timed.

A second table compares the last two for networks with few outputs. AD uses zero coordinate shift from
`dudx.engines.autodiff._TOGETHER` outputs on.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import dudx
from dudx.engines.autodiff import _TOGETHER
from dudx.residual.field import Field

SENSORS, WIDTH, DEPTH = 32, 64, 3


def mlp(inputs: int) -> nn.Sequential:
    """Return a tanh network."""
    sizes = [inputs, *[WIDTH] * DEPTH]
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(WIDTH, WIDTH))


class DeepONet(nn.Module):
    """A network of functions, given by their values at sensors, and of points."""

    def __init__(self) -> None:
        super().__init__()
        self.branch, self.trunk = mlp(SENSORS), mlp(2)

    def forward(self, x: Tensor, a: Tensor) -> Tensor:
        """Map functions (N, sensors) and points (B, 2) to values (N, B)."""
        return self.branch(a) @ self.trunk(x).T


class InPairs(nn.Module):
    """A DeepONet with one function per point."""

    def __init__(self, network: DeepONet):
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, a: Tensor) -> Tensor:
        return (self.network.branch(a) * self.network.trunk(x)).sum(1, keepdim=True)


def diffusion(u: Field, f: Tensor) -> Field:
    """Residual of a reaction-diffusion equation with a source."""
    return u.t - 0.01 * u.xx - 0.01 * u**2 - f


def main(functions: int = 32, points: int = 500) -> None:
    """Print CPU ms of a loss and its gradient for each subject."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = DeepONet()
    x, a, f = torch.rand(points, 2), torch.randn(functions, SENSORS), torch.randn(points, functions)
    shared = dudx.Residual(diffusion, ("x", "t"), data=("f",), functions=("a",))
    paired = dudx.Residual(diffusion, ("x", "t"), data=("f",), network_data=("a",))
    pairs = InPairs(network)
    every_x, every_a = x.repeat_interleave(functions, 0), a.repeat(points, 1)

    def of_pairs(engine: dudx.Engine) -> Callable[[], Tensor]:
        return lambda: paired(pairs, every_x, engine, a=every_a, f=f.reshape(-1, 1)).view(points, functions)

    def of_functions(engine: dudx.Engine) -> Callable[[], Tensor]:
        return lambda: shared(network, x, engine, a=a, f=f)

    step = dudx.FD().calibrated(dudx.given(network, functions={"a": a}), x, shared.operators(x, a=a, f=f))
    ways = {
        "AD, a row for each pair": of_pairs(dudx.AD()),
        "AD, outputs one after the other": of_functions(dudx.AD(together=False)),
        "AD, outputs together": of_functions(dudx.AD(together=True)),
        "Taylor, a row for each pair": of_pairs(dudx.Taylor()),
        "Taylor": of_functions(dudx.Taylor()),
        "FD": of_functions(step),
    }
    truth = ways["AD, a row for each pair"]().detach()
    for name, way in ways.items():
        off = float((way().detach() - truth).abs().max() / truth.abs().max())
        if off > (1e-2 if name == "FD" else 1e-5):
            raise SystemExit(f"{name} is off by {off:.1e}.")
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(5):
        for name, way in ways.items():
            network.zero_grad()
            start = time.process_time()
            way().square().mean().backward()
            times[name].append(time.process_time() - start)
    plain = statistics.median(times["AD, a row for each pair"])
    print(f"{functions} functions at {points} points, a loss and its gradient, median of 5, CPU time")
    for name, seconds in times.items():
        median = statistics.median(seconds)
        print(f"{name:34} {1e3 * median:8.1f} ms {plain / median:6.1f}×")


def few_outputs(points: int = 500, most: int = 8, rounds: int = 9) -> None:
    """Print the times of AD, one after the other and together, for networks with few outputs."""
    x = torch.rand(points, 2)
    asked = [dudx.D(), dudx.D(1), dudx.D(0, 0)]
    print(f"\noutputs of a tanh network at {points} points, u_t and u_xx with gradients, median of {rounds}, CPU time")
    print("outputs   one after the other   together")
    for outputs in range(1, most + 1):
        network = nn.Sequential(mlp(2), nn.Linear(WIDTH, outputs))
        times: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(rounds + 1):  # the first round is a warm-up
            for together, seconds in times.items():
                start = time.process_time()
                values = dudx.evaluate(network, x, asked, dudx.AD(together=together))
                torch.cat(list(values)).square().mean().backward()
                seconds.append(time.process_time() - start)
        one, all_ = (1e3 * statistics.median(times[together][1:]) for together in (False, True))
        chosen = "together" if outputs >= _TOGETHER else "one after the other"
        print(f"{outputs:7} {one:18.2f} ms {all_:7.2f} ms   AD takes {chosen}")


if __name__ == "__main__":
    few_outputs()
    main(*map(int, sys.argv[1:]))
