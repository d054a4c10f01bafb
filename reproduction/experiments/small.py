"""Trainings of seconds, for experiments that need many: a problem, a small network, fixed points, one engine."""

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
from reproduction.experiments.profile import Profile
from reproduction.measuring import in_own_process, peak_megabytes

#: Points at which errors are measured, at which memory is, and at which steps are set for that.
_COMPARED, _WEIGHED, _SETTLED = 2000, 4096, 400
#: Steps between new points, and what is kept of earlier ones where all are new at each step.
_REDRAWN, _MEMORY = 25, 0.7
#: How many times as many points there are where there is time beside two axes.
_MORE = 2
_W = 2 * math.pi
#: What seeds are counted from. Points, steps and sizes were tried out with the first two seeds, and which differences
#: stay inside: with seed 1, on the plate.
FRESH = 100


Parts = Sequence[Part]


@dataclass(frozen=True)
class Task:
    """What is trained: the parts of the loss at their points, and where and with what the network is compared."""

    #: Draws new points for the equation, which comes first, and its conditions.
    draw: Callable[[], Parts]
    domain: Domain
    #: What a network is made into: an ansatz that is defined in the domain alone, for instance.
    ansatz: Callable[[nn.Module], Callable[[Tensor], Tensor]]
    points: Tensor
    values: Tensor
    #: At how many points the equation is asked for.
    count: int
    defined_outside: bool = True
    #: Whether something moves or gets steep in time, which points that stay would miss: new ones at each step then.
    moves: bool = False

    def large(self) -> Task:
        """The same with as many points as memory is measured at."""
        return self.asked_at(self.domain.sample(_WEIGHED, torch.Generator().manual_seed(0)))

    def asked_at(self, points: Tensor) -> Task:
        """The same with an equation that is always asked for at these points."""
        fixed = points.to(self.points.dtype)

        def draw() -> Parts:
            equation, *conditions = self.draw()
            return [replace(equation, points=fixed), *conditions]

        return replace(self, draw=draw, count=len(points))

    def error(self, network: nn.Module) -> float:
        """The relative L2 error."""
        with torch.no_grad():
            found = self.ansatz(network)(self.points).double()
        return float((found - self.values).norm() / self.values.norm())


def _plate_load(x: Tensor, y: Tensor) -> Tensor:
    """Under which the deflection is sin² πx sin² πy."""
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
    """A problem of the paper, "plate", or "disc", on which nothing is defined outside; points follow from the seed."""
    generator = torch.Generator().manual_seed(FRESH + seed)
    if name == "disc":
        return _disc(sizes["batch"], generator, dtype)
    problem = _plate() if name == "plate" else problem_named(name)
    if len(problem.inputs) > 2:  # a domain with one more axis takes more points
        sizes = {key: _MORE * size for key, size in sizes.items()}
    settings = make_settings("poisson" if name == "plate" else name, "cpu", **sizes)
    settings = settings.model_copy(update={"dtype": str(dtype).removeprefix("torch."), "compile": False})
    objective = Objective(problem, settings)

    def draw() -> Parts:
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
    """Poisson's equation on the unit disc, whose solution is (1 - r²) eˣ; outside the ansatz is no number."""

    def ansatz(network: nn.Module) -> Callable[[Tensor], Tensor]:
        def only_inside(x: Tensor) -> Tensor:
            room = 1 - x.square().sum(1, keepdim=True)
            return torch.where(room < 0, torch.nan, room * network(x))

        return only_inside

    def equation(u: Any, x: Any, y: Any) -> Any:
        return u.xx + u.yy + torch.exp(x) * (3 + 4 * x + x * x + y * y)

    domain, residual = Disc((0.0, 0.0), 1.0), dudx.Residual(equation, ("x", "y"))

    def draw() -> Parts:
        return [Part("pde", 1.0, residual, domain.sample(count, generator, torch.device("cpu"), dtype), {})]

    places = domain.sample(_COMPARED, generator, torch.device("cpu"), torch.float64)
    truth = (1 - places.square().sum(1, keepdim=True)) * torch.exp(places[:, :1])
    return Task(draw, domain, ansatz, places.to(dtype), truth, count, defined_outside=False)


def network(
    trained: Task, seed: int, width: int, depth: int, dtype: torch.dtype, rescale: bool = True, separable: bool = False
) -> nn.Module:
    """A tanh network whose inputs are brought to [-1, 1], or one for each axis."""
    torch.manual_seed(FRESH + seed)
    bounds = trained.domain.bounds if rescale else None
    kind = Separable if separable else MLP
    return kind(trained.points.shape[1], width=width, depth=depth, bounds=bounds).to(dtype)


def plan(profile: Profile) -> dict[str, Any]:
    """The sizes of a training."""
    return profile.methods.model_dump(exclude={"problems", "methods", "seeds", "formats", "outcomes", "short"})


def some(names: Iterable[str], only: Collection[str] | None) -> list[str]:
    """Of these names those that a profile wants."""
    return [name for name in names if only is None or name in only]


def operators(parts: Parts) -> list[Operator]:
    """What steps are set for: what the equation asks for, and an order along all axes that only a condition has."""
    equation, *conditions = parts
    asked = equation.operators()
    known = {order for operator in asked for order in operator.orders}
    others = {order for part in conditions for operator in part.operators() for order in operator.orders}
    axes = range(equation.points.shape[1])
    return [*asked, *(dudx.D(*[axis] * order) for order in sorted(others - known - {0}) for axis in axes)]


#: A step of an optimizer on the parts, each by its engine; the loss before it.
Step = Callable[[Parts, Sequence[dudx.Engine]], float]


def levenberg_marquardt(trained: Task, model: nn.Module) -> Step:
    """Steps of Levenberg and Marquardt's method, which balances the parts."""
    optimizer = LevenbergMarquardt(model.parameters(), memory=_MEMORY if trained.moves else 0.0)
    seen = trained.ansatz(model)
    return lambda parts, engines: optimizer.step(
        [Term(p.residual, seen, p.points, engine, data=p.data) for p, engine in zip(parts, engines, strict=True)]
    )


def adam(trained: Task, model: nn.Module, rate: float = 1e-3) -> Step:
    """Steps of Adam on the sum of the parts, with the weights that the problem gives them."""
    optimizer, seen = torch.optim.Adam(model.parameters(), lr=rate), trained.ansatz(model)

    def step(parts: Parts, engines: Sequence[dudx.Engine]) -> float:
        optimizer.zero_grad()
        each = zip(parts, engines, strict=True)
        loss = torch.stack([p.weight * p.residual.loss(seen, p.points, engine, **p.data) for p, engine in each]).sum()
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
    by: Callable[[Task, nn.Module], Step] = levenberg_marquardt,
    look: Callable[[int, dudx.Engine], None] = lambda step, engine: None,
    at_conditions: dudx.Engine | None = None,
) -> dict[str, Any]:
    """So many steps, the engine calibrated and looked at every so often, and points drawn anew; what came of it."""
    take, seen, parts = by(trained, model), trained.ansatz(model), trained.draw()
    x, asked = parts[0].points, operators(parts)
    began, loss = time.process_time(), math.nan
    try:
        for step in range(steps):
            if step % every == 0:
                engine = engine.calibrated(seen, x, asked)
                look(step, engine)
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
    look(steps, engine)
    return {"status": "ok", "error": trained.error(model), "loss": loss, "seconds": seconds}


def megabytes(trained: Task, engine: dudx.Engine, make: Callable[[], nn.Module]) -> float | None:
    """The memory of one loss of the equation and its gradient, in a process of its own."""
    equation = trained.draw()[0]
    some = equation.points[:_SETTLED]  # few, so that what they leave behind hides nothing

    def step() -> Callable[[], None]:
        model = make()
        seen = trained.ansatz(model)
        settled = engine.calibrated(seen, some, equation.operators())
        return lambda: equation.residual.loss(seen, equation.points, settled, **equation.data).backward()

    return in_own_process(lambda: {"status": "ok", "found": peak_megabytes(step, "cpu")}).get("found")
