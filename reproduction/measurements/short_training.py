"""Trainings that take seconds, for experiments that need many: a problem, a small network, fixed points, one engine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import dudx
from dudx.errors import DudxError
from dudx.lab.problems import Problem
from dudx.lab.problems import problem as problem_named
from dudx.lab.problems.conditions import Dirichlet, Neumann
from dudx.lab.problems.geometry import Box, Disc, Domain
from dudx.lab.run.networks import MLP, Separable
from dudx.lab.run.objective import Objective, Part
from dudx.lab.run.settings import make_settings
from dudx.lab.sweep.sweep_run import sentence
from dudx.operators import Operator
from dudx.optim import LevenbergMarquardt, Term
from reproduction.measurement_server import in_own_process, peak_megabytes
from reproduction.profile import Profile

#: Number of points at which errors and memory are measured, and steps are calibrated before memory is measured.
_COMPARED, _MEMORY_POINTS, _CALIBRATED = 2000, 4096, 400
#: Steps between new points, and the share of past batches that is kept if points are new at each step.
_REDRAWN, _MEMORY = 25, 0.7
#: Factor of the number of points for domains with time and two axes in space.
_MORE = 2
_W = 2 * math.pi
#: First seed. Points, steps and sizes were chosen with seeds 0 and 1, which are therefore not used.
FRESH = 100


LossParts = Sequence[Part]


@dataclass(frozen=True)
class Task:
    """Training task: the parts of the loss at their points, and a reference solution.

    Attributes:
        draw: draws new points for the equation, which comes first, and its conditions.
        domain: of the problem.
        ansatz: makes a trial function of a network, for instance one that is defined in the domain alone.
        points: where the network is compared with the reference.
        values: the reference there.
        count: number of points of the equation.
        moves: the solution changes so much in time that points are drawn anew at each step.
    """

    draw: Callable[[], LossParts]
    domain: Domain
    ansatz: Callable[[nn.Module], Callable[[Tensor], Tensor]]
    points: Tensor
    values: Tensor
    count: int
    moves: bool = False

    def large(self) -> Task:
        """Return this task with as many points as memory is measured at."""
        return self.asked_at(self.domain.sample(_MEMORY_POINTS, torch.Generator().manual_seed(0)))

    def asked_at(self, points: Tensor) -> Task:
        """Return this task with the equation always at these points."""
        fixed = points.to(self.points.dtype)

        def draw() -> LossParts:
            equation, *conditions = self.draw()
            return [replace(equation, points=fixed), *conditions]

        return replace(self, draw=draw, count=len(points))

    def error(self, network: nn.Module) -> float:
        """Return the relative L2 error."""
        with torch.no_grad():
            found = self.ansatz(network)(self.points).double()
        return float((found - self.values).norm() / self.values.norm())


def _plate_load(x: Tensor, y: Tensor) -> Tensor:
    """Load of a plate with the deflection sin² πx sin² πy."""
    a, b = torch.cos(_W * x), torch.cos(_W * y)
    return _W**4 / 4 * (4 * a * b - a - b)


def _plate() -> Problem:
    # Divided by its size, so that terms are of the same order.
    return Problem(
        lambda u, x, y: (u.xxxx + 2 * u.xxyy + u.yyyy - _plate_load(x, y)) / _W**4,
        inputs=("x", "y"),
        domain=Box((0, 0), (1, 1)),
        conditions=[Dirichlet(u=0.0), Neumann(u=0.0)],
    )


def _at(points: np.ndarray, of: Callable[[Tensor], Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    chosen = torch.as_tensor(points)
    return chosen.to(dtype), of(chosen.double()).double()


def task(name: str, seed: int, sizes: Mapping[str, int], dtype: torch.dtype) -> Task:
    """Return the task of a problem of the paper, "plate", or "disc", with points that follow from the seed."""
    generator = torch.Generator().manual_seed(FRESH + seed)
    if name == "disc":
        return _disc(sizes["batch"], generator, dtype)
    problem = _plate() if name == "plate" else problem_named(name)
    if len(problem.inputs) > 2:  # a domain with one more axis takes more points
        sizes = {key: _MORE * size for key, size in sizes.items()}
    settings = make_settings("poisson" if name == "plate" else name, "cpu", **sizes)
    settings = settings.model_copy(update={"dtype": str(dtype).removeprefix("torch."), "compile": False})
    objective = Objective(problem, settings)

    def draw() -> LossParts:
        return objective.draw(generator)

    if name == "plate":
        square = lambda x: (torch.sin(_W / 2 * x) ** 2).prod(1, keepdim=True)  # noqa: E731
        places = np.random.default_rng(0).random((_COMPARED, 2))
        return Task(draw, problem.domain, lambda network: network, *_at(places, square, dtype), sizes["batch"])
    solution: Any = problem.solution()  # type: ignore[misc]
    chosen = np.random.default_rng(0).permutation(len(solution.points))[:_COMPARED]
    points, values = (torch.as_tensor(a[chosen]) for a in (solution.points, solution.values.reshape(-1, 1)))
    there, moves = (points.to(dtype), values.double()), "t" in problem.inputs
    return Task(draw, problem.domain, lambda network: network, *there, sizes["batch"], moves=moves)


def _disc(count: int, generator: torch.Generator, dtype: torch.dtype) -> Task:
    """Poisson's equation on the unit disc with the solution (1 - r²) eˣ; the ansatz is NaN outside."""

    def ansatz(network: nn.Module) -> Callable[[Tensor], Tensor]:
        def only_inside(x: Tensor) -> Tensor:
            room = 1 - x.square().sum(1, keepdim=True)
            return torch.where(room < 0, torch.nan, room * network(x))

        return only_inside

    def equation(u: Any, x: Any, y: Any) -> Any:
        return u.xx + u.yy + torch.exp(x) * (3 + 4 * x + x * x + y * y)

    domain, residual = Disc((0.0, 0.0), 1.0), dudx.Residual(equation, ("x", "y"))

    def draw() -> LossParts:
        return [Part("pde", 1.0, residual, domain.sample(count, generator, torch.device("cpu"), dtype), {})]

    places = domain.sample(_COMPARED, generator, torch.device("cpu"), torch.float64)
    truth = (1 - places.square().sum(1, keepdim=True)) * torch.exp(places[:, :1])
    return Task(draw, domain, ansatz, places.to(dtype), truth, count)


def network(
    trained: Task, seed: int, width: int, depth: int, dtype: torch.dtype, rescale: bool = True, separable: bool = False
) -> nn.Module:
    """Return a tanh network with inputs rescaled to [-1, 1], or a separable network."""
    torch.manual_seed(FRESH + seed)
    bounds = trained.domain.bounds if rescale else None
    kind = Separable if separable else MLP
    return kind(trained.points.shape[1], width=width, depth=depth, bounds=bounds).to(dtype)


def plan(profile: Profile) -> dict[str, Any]:
    """Return the sizes of a training."""
    return profile.methods.model_dump(exclude={"problems", "methods", "seeds", "formats", "outcomes", "short"})


def some(names: Iterable[str], only: Collection[str] | None) -> list[str]:
    """Return those of these names that a profile selects."""
    return [name for name in names if only is None or name in only]


def operators(parts: LossParts) -> list[Operator]:
    """Return the operators to calibrate for: the equation's, and pure derivatives of orders that conditions add."""
    equation, *conditions = parts
    asked = equation.operators()
    known = {order for operator in asked for order in operator.orders}
    others = {order for part in conditions for operator in part.operators() for order in operator.orders}
    axes = range(equation.points.shape[1])
    return [*asked, *(dudx.D(*[axis] * order) for order in sorted(others - known - {0}) for axis in axes)]


#: Optimizer step on the parts of the loss, each by its engine; returns the loss before the step.
OptimizerStep = Callable[[LossParts, Sequence[dudx.Engine]], float]


def levenberg_marquardt(trained: Task, model: nn.Module) -> OptimizerStep:
    """Return the step of the Levenberg-Marquardt method, which balances the parts."""
    optimizer = LevenbergMarquardt(model.parameters(), memory=_MEMORY if trained.moves else 0.0)
    trial = trained.ansatz(model)
    return lambda parts, engines: optimizer.step(
        [Term(p.residual, trial, p.points, engine, data=p.data) for p, engine in zip(parts, engines, strict=True)]
    )


def adam(trained: Task, model: nn.Module, rate: float = 1e-3) -> OptimizerStep:
    """Return the step of Adam on the sum of the parts, with the weights of the problem."""
    optimizer, trial = torch.optim.Adam(model.parameters(), lr=rate), trained.ansatz(model)

    def step(parts: LossParts, engines: Sequence[dudx.Engine]) -> float:
        optimizer.zero_grad()
        each = zip(parts, engines, strict=True)
        loss = torch.stack([p.weight * p.residual.loss(trial, p.points, engine, **p.data) for p, engine in each]).sum()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def train(
    trained: Task,
    model: nn.Module,
    engine: dudx.Engine,
    steps: int,
    every: int,
    by: Callable[[Task, nn.Module], OptimizerStep] = levenberg_marquardt,
    evaluate: Callable[[int, dudx.Engine], None] = lambda step, engine: None,
    at_conditions: dudx.Engine | None = None,
) -> dict[str, Any]:
    """Train, and return status, error, loss and CPU seconds.

    Args:
        trained: the task.
        model: its network.
        engine: of the derivatives.
        steps: number of optimizer steps.
        every: steps between calibrations of the engine, at which `evaluate` is called too.
        by: the optimizer.
        evaluate: called with the step and the engine, and at the end.
        at_conditions: engine for the conditions, if another one.
    """
    take, trial, parts = by(trained, model), trained.ansatz(model), trained.draw()
    x, asked = parts[0].points, operators(parts)
    began, loss = time.process_time(), math.nan
    try:
        for step in range(steps):
            if step % every == 0:
                engine = engine.calibrated(trial, x, asked)
                evaluate(step, engine)
            if step and (trained.moves or step % _REDRAWN == 0):
                parts = trained.draw()
            loss = take(parts, [engine, *[at_conditions or engine] * (len(parts) - 1)])
            if not math.isfinite(loss):
                break
    except DudxError as error:
        return {"status": "refused", "reason": sentence(error)}
    if not math.isfinite(loss):
        return {"status": "diverged", "reason": "its loss is not finite"}
    seconds = time.process_time() - began
    evaluate(steps, engine)
    return {"status": "ok", "error": trained.error(model), "loss": loss, "seconds": seconds}


def megabytes(trained: Task, engine: dudx.Engine, make: Callable[[], nn.Module]) -> float | None:
    """Measure the memory of one loss of the equation and its gradient, in a process of its own."""
    equation = trained.draw()[0]
    few = equation.points[:_CALIBRATED]  # so that the memory they leave behind does not hide the peak

    def step() -> Callable[[], None]:
        model = make()
        trial = trained.ansatz(model)
        settled = engine.calibrated(trial, few, equation.operators())
        return lambda: equation.residual.loss(trial, equation.points, settled, **equation.data).backward()

    return in_own_process(lambda: {"status": "ok", "found": peak_megabytes(step, "cpu")}).get("found")
