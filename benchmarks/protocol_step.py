"""Compare an epoch of the laboratory's trainer with a bare PyTorch loop over the same compiled residual.

    python benchmarks/protocol_step.py [--problems poisson burgers heat] [--engines ad fd sfd] [--rounds 8]

Both sides train the same network with Adam and a cosine schedule on points that are resampled every epoch. The bare
loop is a typical script without the laboratory: rejection sampling by hand, `Residual(..., compile=True).loss`,
boundary terms in eager PyTorch, one backward pass. The trainer runs as users run it, with records, display and
checkpoints. Rounds of both alternate in one process, and CPU times are compared, so that other load affects both
equally.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import dudx
from dudx.backend.memory import keep_freed_memory
from dudx.lab import make_settings, problem
from dudx.lab.problems.heat import BIG, SMALL
from dudx.lab.run.trainer import Trainer

#: One bare training step.
Step = Callable[[], None]
#: The loss of one bare training step at fresh points.
Loss = Callable[[torch.nn.Module, dudx.Engine], Tensor]
#: Points on the boundary and at the initial time, as in the profile `paper`.
EDGE = 2048


class ToUnit(torch.nn.Module):
    """A layer that maps the box of heat's domain to [-1, 1]."""

    scale: Tensor
    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([1 / 8, 1 / 12, 2 / 3]))
        self.register_buffer("shift", torch.tensor([0.0, 0.0, -1.0]))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.shift


def network(inputs: int, width: int) -> torch.nn.Module:
    """Return a tanh network with four hidden layers; with three inputs, for heat, it rescales them."""
    sizes = [inputs, *[width] * 4, 1]
    layers = [layer for pair in itertools.pairwise(sizes) for layer in (torch.nn.Linear(*pair), torch.nn.Tanh())]
    return torch.nn.Sequential(*[ToUnit()] * (inputs == 3), *layers[:-1])


def outside(points: Tensor, centers: Tensor, radii: Tensor) -> Tensor:
    """Return the points outside all discs."""
    squares = (points[:, None, :2] - centers).square().sum(dim=2)
    return points[(squares > radii.square()).all(dim=1)]


def on_circles(count: int, centers: Tensor, radii: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return points uniform by length on circles, normals into the circles, and each point's circle index."""
    which = torch.multinomial(radii, count, replacement=True)
    angle = 2 * math.pi * torch.rand(count)
    direction = torch.stack([angle.cos(), angle.sin()], dim=1)
    return centers[which] + radii[which, None] * direction, -direction, which


def on_rectangle(count: int, half: Tensor) -> tuple[Tensor, Tensor]:
    """Return points uniform by length on the edge of [-half, half], and outward normals."""
    vertical = torch.rand(count) < half[1] / half.sum()
    side = 2.0 * torch.randint(2, (count,)) - 1
    normals = torch.stack([side * vertical, side * ~vertical], dim=1)
    along = half * (2 * torch.rand(count, 2) - 1)
    return torch.where(normals == 0, along, half * normals), normals


def poisson(batch: int) -> Loss:
    """Laplace's equation on a square with four holes."""
    equation = dudx.Residual(lambda u: u.xx + u.yy, inputs=("x", "y"), compile=True)
    centers = torch.tensor(list(itertools.product((-0.3, 0.3), repeat=2)))
    radii, half = torch.full((4,), 0.1), torch.tensor([0.5, 0.5])
    circles = round(EDGE * 0.8 * math.pi / (4 + 0.8 * math.pi))
    values = torch.cat([torch.ones(EDGE - circles, 1), torch.zeros(circles, 1)])

    def loss(model: torch.nn.Module, engine: dudx.Engine) -> Tensor:
        x = outside(torch.rand(int(1.3 * batch), 2) - 0.5, centers, radii)[:batch]
        edge = torch.cat([on_rectangle(EDGE - circles, half)[0], on_circles(circles, centers, radii)[0]])
        return equation.loss(model, x, engine) + 1000 * (model(edge) - values).square().mean()

    return loss


def burgers(batch: int) -> Loss:
    """The viscous Burgers equation."""
    nu = 0.01 / math.pi
    equation = dudx.Residual(lambda u: u.t + u * u.x - nu * u.xx, inputs=("x", "t"), compile=True)

    def loss(model: torch.nn.Module, engine: dudx.Engine) -> Tensor:
        x = torch.rand(batch, 2) * torch.tensor([2.0, 1.0]) - torch.tensor([1.0, 0.0])
        first = torch.cat([2 * torch.rand(EDGE, 1) - 1, torch.zeros(EDGE, 1)], dim=1)
        edge = torch.cat([2.0 * torch.randint(2, (EDGE, 1)) - 1, torch.rand(EDGE, 1)], dim=1)
        start = (model(first) + torch.sin(math.pi * first[:, :1])).square().mean()
        return equation.loss(model, x, engine) + 10 * start + 10 * model(edge).square().mean()

    return loss


def heat(batch: int) -> Loss:
    """Heat in a plate with 17 holes; the Robin condition is a compiled residual too."""
    equation = dudx.Residual(lambda u: u.t - u.xx - u.yy, inputs=("x", "y", "t"), compile=True)
    robin = dudx.Residual(lambda u, n, g: u.along(n) + u - g, inputs=("x", "y", "t"), data=("n", "g"), compile=True)
    discs = [*BIG, *SMALL]
    centers, radii = torch.tensor([disc.center for disc in discs]), torch.tensor([disc.radius for disc in discs])
    half, lengths = torch.tensor([8.0, 12.0]), (80.0, float(2 * math.pi * radii.sum()))
    circles = round(EDGE * lengths[1] / sum(lengths))
    flux = torch.tensor([5.0] * len(BIG) + [1.0] * len(SMALL))[:, None]

    def inside(count: int) -> Tensor:
        drawn = half * (2 * torch.rand(int(1.25 * count), 2) - 1)
        return outside(drawn, centers, radii)[:count]

    def loss(model: torch.nn.Module, engine: dudx.Engine) -> Tensor:
        x = torch.cat([inside(batch), 3 * torch.rand(batch, 1)], dim=1)
        first = torch.cat([inside(EDGE), torch.zeros(EDGE, 1)], dim=1)
        outer, normals = on_rectangle(EDGE - circles, half)
        inner, into, which = on_circles(circles, centers, radii)
        edge = torch.cat([torch.cat([outer, inner]), 3 * torch.rand(EDGE, 1)], dim=1)
        n = torch.cat([torch.cat([normals, into]), torch.zeros(EDGE, 1)], dim=1)
        g = torch.cat([torch.full((len(outer), 1), 0.1), flux[which]])
        flow = robin.loss(model, edge, engine, n=n, g=g)
        return equation.loss(model, x, engine) + 10 * model(first).square().mean() + 10 * flow

    return loss


LOSSES = {"poisson": poisson, "burgers": burgers, "heat": heat}


def bare(name: str, engine: dudx.Engine, batch: int, width: int) -> Step:
    """Return a training step without the laboratory."""
    model = network(3 if name == "heat" else 2, width)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20_000)
    loss = LOSSES[name](batch)

    def step() -> None:
        optimizer.zero_grad()
        loss(model, engine).backward()
        optimizer.step()
        schedule.step()

    return step


def trainer_rounds(trainer: Trainer, epochs: int) -> Step:
    """Run epochs with everything except the scores, which are computed only occasionally."""
    trainer._result = lambda *_: {}  # type: ignore[method-assign]
    trainer._scores = dict  # type: ignore[method-assign]

    def run() -> None:
        trainer.epochs = trainer.epoch + epochs
        trainer.run()

    return run


def repeated(step: Step, times: int) -> Step:
    """Return one call that runs several steps."""

    def run() -> None:
        for _ in range(times):
            step()

    return run


def cpu_seconds(work: Step) -> float:
    """Return the CPU time of a call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Measure each problem and engine, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", default=["poisson", "burgers", "heat"], choices=LOSSES)
    parser.add_argument("--engines", nargs="+", default=["ad", "fd", "sfd"])
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=50, help="steps per round")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    table = Table(title=f"CPU milliseconds per step: interior batch {options.batch}, {EDGE} points per condition")
    for column in ("problem", "engine", "bare loop", "trainer", "ratio", "min – max of rounds", "minutes per 20 000"):
        table.add_column(column, justify="right")
    for name, engine in itertools.product(options.problems, options.engines):
        settings = make_settings(
            name, "paper", engine=engine, batch=options.batch, width=128, compile=True, threads=1,
            evaluate_every=10**9, log_every=100, checkpoint_every=1000,
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(problem(name), settings, Path(folder))
            ours = trainer_rounds(trainer, options.steps)
            ours()  # calibrates, compiles
            theirs = repeated(bare(name, trainer.engine, options.batch, 128), options.steps)
            theirs()
            rounds = [(cpu_seconds(theirs), cpu_seconds(ours)) for _ in range(options.rounds)]
        ratios = [own / other for other, own in rounds]
        per_step = [1e3 * statistics.median(side) / options.steps for side in zip(*rounds, strict=True)]
        table.add_row(
            name, engine, *(f"{ms:.1f}" for ms in per_step), f"{statistics.median(ratios):.2f}",
            f"{min(ratios):.2f} – {max(ratios):.2f}", f"{per_step[1] * 20_000 / 60_000:.1f}",
        )  # fmt: skip
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
