"""Finite differences: one engine, three policies of which step each order of derivative uses."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from dudx import errors
from dudx.engines.autodiff import AD
from dudx.engines.difference.calibration import SIDES, Calibration, deep_inside, find_eps
from dudx.engines.difference.domain_stencils import derivatives_inside, distance_of
from dudx.engines.difference.shifted_batches import HALF, Step, prepare
from dudx.engines.difference.steps import ByOrder, as_step, fitting_step, step_by_order
from dudx.engines.interface import Adjustable, Counted, Coupled, Planned, Prepared, RowsPerPoint, Side, Stepped
from dudx.engines.request import Request
from dudx.errors import InputError, StepNotSetError
from dudx.network.model_checks import Model
from dudx.operators import Directional


@dataclass(frozen=True)
class Difference(Adjustable, Counted, Planned, Stepped):
    """Differences in one forward pass; a subclass says which step each derivative order uses."""

    side: Side = field(default="central", kw_only=True, repr=False)
    inside: Any = field(default=None, kw_only=True, repr=False)
    floor: float = field(default=0.25, kw_only=True, repr=False)
    coupled: Coupled | None = field(default="refuse", kw_only=True, repr=False)
    #: The searches that set the steps, by order; empty when the steps were given.
    calibrations: Mapping[int, Calibration] = field(default=ByOrder(), kw_only=True, repr=False, compare=False)

    approximate = True
    by_shifts = True
    accuracy = 2  # a field of every subclass, declared there so that it follows the step
    one_step = True  # True where all orders share one step, and so the evaluations that go with it
    #: The field that holds the steps.
    step_field: ClassVar[str] = "steps"
    #: Orders that are calibrated beside those that occur.
    also_calibrated: ClassVar[frozenset[int]] = frozenset()

    @abstractmethod
    def steps_for(self, orders: Collection[int], x: Tensor) -> dict[int, Step]:
        """The step of each order; orders that share a step also share evaluations of the network."""

    @abstractmethod
    def steps_from(self, best: Mapping[int, float]) -> Any:
        """The steps of the engine, made of the best step of each order."""

    def derivatives(self, model: Model, x: Tensor, request: Request) -> list[Tensor]:
        if self.inside is not None and not x.is_meta and (orders := request.orders):
            steps = self.steps_for(orders, x)
            return derivatives_inside(model, x, request, steps, self.accuracy, self.inside, self.floor)
        plan = self._plan(x, request)
        return plan.run(model, x, plan.tensors)

    def prepared(self, x: Tensor, request: Request) -> Prepared | None:
        return self._plan(x, request) if self.inside is None else None  # where points lie decides on their stencils

    def _plan(self, x: Tensor, request: Request) -> Prepared:
        return prepare(x, request, self.steps_for(request.orders, x), self.accuracy, SIDES[self.side])

    def rows_for(self, x: Tensor, request: Request) -> RowsPerPoint:
        """The evaluations a point takes, whatever the steps are; none are drawn for it."""
        stand_ins = {order: 1.0 if self.one_step else float(order) for order in request.orders}
        evaluations = prepare(x, request, stand_ins, self.accuracy, SIDES[self.side]).rows
        return RowsPerPoint(evaluations, evaluations)

    def calibrated_for(self, model: Model, x: Tensor, request: Request, search: Mapping[str, Any]) -> Self:
        """The engine with its steps set by `find_eps`, along the axes that the operators use."""
        axes = _axes_by_order(request, x.shape[1])
        # Derivatives in half precision are no reference: "exact" takes those of a copy in single precision.
        copied = x.dtype in HALF and isinstance(model, nn.Module) and self.coupled == "refuse"
        reference = "exact" if copied else AD(coupled=self.coupled)
        search = {"reference": reference, **search, "accuracy": self.accuracy, "side": self.side}
        found = {}
        for order in sorted({*axes, *self.also_calibrated} if axes else ()):
            along = sorted(axes.get(order, range(x.shape[1])))
            at, limits = (x, search) if self.inside is None else deep_inside(model, x, order, self.inside, search)
            found[order] = find_eps(model, at, order, axes=along, **limits)
        if not found:
            return self
        steps = self.steps_from({order: one.step for order, one in found.items()})
        return replace(self, calibrations=ByOrder(found), **{self.step_field: steps})

    def refuse_unset(self, request: Request) -> None:
        self.given_steps(request.orders)

    def given_steps(self, orders: Collection[int]) -> Any:
        """The steps, which are set for these orders; otherwise raise `StepNotSetError`."""
        steps: Any = getattr(self, self.step_field)
        name = type(self).__name__
        if not orders:
            return steps
        if steps is None:
            example = "step=1e-2" if self.step_field == "step" else "steps={1: 1e-2, 2: 5e-2}"
            raise StepNotSetError(
                f"{name} has no step yet: find one with {name}().calibrated(model, x, operators), or give it as "
                f"{name}({example})."
            )
        missing = [] if self.one_step else [order for order in orders if order not in steps]
        if missing:
            raise StepNotSetError(
                f"{name} has no step for derivatives of order {missing[0]} (it has orders {sorted(steps)}): add one, "
                "or call calibrated with operators of that order."
            )
        return steps

    @property
    def state(self) -> dict[str, Any]:
        steps = getattr(self, self.step_field)
        return {} if steps is None else {"steps": dict(steps) if isinstance(steps, Mapping) else steps}

    def with_state(self, state: Mapping[str, Any]) -> Self:
        if not state:
            return self
        if state.keys() != {"steps"}:
            raise InputError(f"{type(self).__name__} keeps its steps, and was given another state: {state!r}.")
        return replace(self, **{self.step_field: state["steps"]})

    def _check(self) -> None:
        errors.one_of(self.side, Side, "side")
        errors.difference_accuracy(self.accuracy, self.side)
        if self.inside is not None:
            distance_of(self.inside)
            if self.side != "central":
                raise InputError("Give side= or inside=: inside a domain the room decides which way a stencil looks.")
        if not isinstance(self.floor, float) or not 0 < self.floor <= 1:
            raise InputError(f"The floor is a share of the step, above 0 and up to 1.0; got {self.floor!r}.")
        errors.one_of(self.coupled, Coupled, "coupled")


@dataclass(frozen=True)
class FD(Difference):
    """One step for all orders: when calibrated, the geometric mean of the optimal steps of the orders that occur.

    Args:
        step: the step, or one for each axis.
        accuracy: the even order of convergence in the step.
        side: "central", or "forward" or "backward" for stencils that look one way only, of any accuracy.
        inside: a domain that no row of a stencil leaves, or the signed distance to its boundary, negative inside.
        floor: the share of the step down to which it shrinks there before a stencil looks one way.

    Example:
        >>> x = torch.rand(10, 1, dtype=torch.float64)
        >>> slope = dudx.evaluate(torch.sin, x, dudx.D(0), dudx.FD(step=1e-4))
        >>> torch.allclose(slope, torch.cos(x), atol=1e-8)
        True
    """

    name = "fd"
    step_field = "step"

    step: float | tuple[float, ...] | None = None
    accuracy: int = 2

    def __post_init__(self) -> None:
        self._check()
        if self.step is not None:
            object.__setattr__(self, "step", as_step(self.step))

    def steps_for(self, orders: Collection[int], x: Tensor) -> dict[int, Step]:
        step = self.given_steps(orders)
        return {order: fitting_step(step, x) for order in orders}

    def steps_from(self, best: Mapping[int, float]) -> float:
        return math.exp(sum(math.log(step) for step in best.values()) / len(best))


@dataclass(frozen=True)
class EFD(Difference):
    """The optimal step of each order for that order.

    Args:
        steps: a step for each derivative order, `{1: 5e-3, 2: 3e-2}`; a step may be a number for each axis.
        accuracy: the even order of convergence in the step.
        side, inside, floor: as in `FD`.

    Example:
        >>> x = torch.rand(10, 1, dtype=torch.float64)
        >>> engine = dudx.EFD(steps={1: 1e-5, 2: 1e-3})
        >>> first, second = dudx.evaluate(torch.sin, x, [dudx.D(0), dudx.D(0, 0)], engine)
        >>> torch.allclose(first, torch.cos(x), atol=1e-8), torch.allclose(second, -torch.sin(x), atol=1e-6)
        (True, True)
    """

    name = "efd"

    steps: Mapping[int, float | tuple[float, ...]] | None = None
    accuracy: int = 2

    one_step = False

    def __post_init__(self) -> None:
        self._check()
        if self.steps is not None:
            object.__setattr__(self, "steps", step_by_order(self.steps, "EFD"))

    def steps_for(self, orders: Collection[int], x: Tensor) -> dict[int, Step]:
        steps = self.given_steps(orders)
        return {order: fitting_step(steps[order], x) for order in orders}

    def steps_from(self, best: Mapping[int, float]) -> Mapping[int, float]:
        return best


@dataclass(frozen=True)
class SFD(Difference):
    """A random step for each point and call, log-uniform between the smallest and the largest optimal step.

    Args:
        steps: the optimal steps by order, `{1: 5e-3, 2: 3e-2}`, or just the two ends of the range.
        accuracy: the even order of convergence in the step.
        generator: makes the random steps repeatable by themselves; without one, torch's global generator is used.
        side, inside, floor: as in `FD`.

    Example:
        >>> x = torch.rand(10, 1, dtype=torch.float64)
        >>> engine = dudx.SFD(steps=(1e-5, 1e-4), generator=torch.Generator().manual_seed(0))
        >>> slope = dudx.evaluate(torch.sin, x, dudx.D(0), engine)
        >>> torch.allclose(slope, torch.cos(x), atol=1e-8)
        True
    """

    name = "sfd"

    steps: Mapping[int, float] | tuple[float, float] | None = None
    accuracy: int = 2
    also_calibrated = frozenset({1, 2})
    generator: torch.Generator | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._check()
        if self.generator is not None and not isinstance(self.generator, torch.Generator):
            raise InputError(f"The generator of SFD must be a torch.Generator; got {type(self.generator).__name__}.")
        if self.steps is None:
            return
        if isinstance(self.steps, Mapping):
            object.__setattr__(self, "steps", step_by_order(self.steps, "SFD"))
        elif not isinstance(self.steps, Sequence) or len(self.steps) != 2:
            raise InputError(f"SFD takes steps={{1: a, 2: b}} or the ends of a range (a, b); got {self.steps!r}.")
        else:
            object.__setattr__(self, "steps", tuple(errors.positive_step(end) for end in self.steps))
        for end in self._ends():
            errors.positive_step(end)  # a number for each axis has no place in a range

    def _ends(self) -> list[Any]:
        assert self.steps is not None
        return list(self.steps.values()) if isinstance(self.steps, Mapping) else list(self.steps)

    def steps_for(self, orders: Collection[int], x: Tensor) -> dict[int, Step]:
        if self.given_steps(orders) is None or not orders:
            return {}
        low, high = math.log(min(self._ends())), math.log(max(self._ends()))
        device = x.device if self.generator is None else self.generator.device
        uniform = torch.rand(len(x), 1, generator=self.generator, device=device)
        step = torch.exp(low + (high - low) * uniform).to(x)
        return dict.fromkeys(orders, step)

    def steps_from(self, best: Mapping[int, float]) -> Mapping[int, float]:
        return best


def _axes_by_order(request: Request, dimensions: int) -> dict[int, set[int]]:
    """For each derivative order that occurs, the axes it is taken along; a vector takes all of them."""
    found: dict[int, set[int]] = {}
    for term in (term for operator in request for term in operator.terms if term.order):
        axes = range(dimensions) if isinstance(term, Directional) else term.axes
        found.setdefault(term.order, set()).update(axes)
    return found
