"""Time a full training step on small networks, as a multiple of plain autograd's time.

Every subject takes ten steps in turn, so that other load affects all of them and each finds its code in the caches, as
in training. The result is the median over all steps.

    python benchmarks/small_networks.py            # 3×24 tanh, 256 and 1024 points, Burgers and Poisson, one thread
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import dudx

NU = 0.01 / torch.pi
Step = Callable[[], None]
#: Steps per turn of a subject.
STEPS = 10


def network(width: int, depth: int) -> nn.Module:
    """Return a tanh network with two inputs and one output."""
    torch.manual_seed(0)
    sizes = [2, *[width] * depth]
    layers = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def plain_burgers(model: nn.Module, x: Tensor) -> Tensor:
    """Return the loss of Burgers' equation as in most scripts."""
    x = x.detach().requires_grad_(True)
    u = model(x)
    (gradient,) = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)
    u_x, u_t = gradient[:, 0:1], gradient[:, 1:2]
    (second,) = torch.autograd.grad(u_x, x, torch.ones_like(u_x), create_graph=True)
    return (u_t + u * u_x - NU * second[:, 0:1]).square().mean()


def plain_poisson(model: nn.Module, x: Tensor) -> Tensor:
    """Return the loss of Poisson's equation as in most scripts."""
    x = x.detach().requires_grad_(True)
    u = model(x)
    (gradient,) = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)
    total = torch.zeros_like(u)
    for axis in range(2):
        first = gradient[:, axis : axis + 1]
        (second,) = torch.autograd.grad(first, x, torch.ones_like(first), create_graph=True)
        total = total + second[:, axis : axis + 1]
    return total.square().mean()


RESIDUALS = {
    "burgers": (dudx.Residual(lambda u: u.t + u * u.x - NU * u.xx, ("x", "t")), plain_burgers),
    "poisson": (dudx.Residual(lambda u: u.xx + u.yy, ("x", "y")), plain_poisson),
}


def steps(problem: str, model: nn.Module, x: Tensor) -> dict[str, Step]:
    """Return the subjects: a loss and its gradient, all with the same network and points."""
    residual, plain = RESIDUALS[problem]
    fd = dudx.FD().calibrated(model, x, residual.operators(x), smallest=1e-4, largest=1.0)
    compiled = residual.compiled()
    losses = {
        "plain autograd": lambda: plain(model, x),
        "AD": lambda: residual.loss(model, x, dudx.AD()),
        "FD": lambda: residual.loss(model, x, fd),
        "Taylor": lambda: residual.loss(model, x, dudx.Taylor()),
        "Taylor compiled": lambda: compiled.loss(model, x, dudx.Taylor()),
    }
    value = float(plain(model, x).detach())
    for name, loss in losses.items():
        assert abs(float(loss().detach()) - value) < 1e-2 * value, f"{name} computes something else"

    def step(loss: Callable[[], Tensor]) -> Step:
        def taken() -> None:
            model.zero_grad(set_to_none=True)
            loss().backward()

        return taken

    return {name: step(loss) for name, loss in losses.items()}


def measured(subjects: dict[str, Step], repeats: int, clock: Callable[[], float]) -> dict[str, float]:
    """Return the median time of each subject."""
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for round_ in range(1 + repeats // STEPS):
        for name, step in subjects.items():
            for _ in range(STEPS):
                start = clock()
                step()
                if round_:  # the first round is a warm-up
                    times[name].append(clock() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    """Print one row per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--batches", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--busy", action="store_true", help="measure CPU time, for a machine with other load")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.busy else time.perf_counter
    torch.set_num_threads(1)
    model = network(arguments.width, arguments.depth)
    for problem in RESIDUALS:
        for batch in arguments.batches:
            found = measured(steps(problem, model, torch.rand(batch, 2) * 2 - 1), arguments.repeats, clock)
            base = found["plain autograd"]
            told = "  ".join(f"{name} {seconds / base:.2f}" for name, seconds in found.items())
            print(f"{problem:8} B = {batch:5}  plain {1e3 * base:.2f} ms   {told}", flush=True)


if __name__ == "__main__":
    main()
