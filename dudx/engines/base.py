"""The interface every engine has, and `evaluate`, the one way to call it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from torch import Tensor

from dudx import checks
from dudx.checks import Model
from dudx.coupling import refuse_if_coupled
from dudx.errors import InputError
from dudx.operators import Operator
from dudx.streaming import Rows, slicing


@dataclass(frozen=True)
class Prepared:
    """A request planned once: what is left is arithmetic on tensors, which `torch.compile` can follow.

    Two requests with equal keys have equal plans; `tensors` (steps, directions) are what may differ between calls.
    """

    key: Hashable
    run: Callable[[Model, Tensor, Sequence[Tensor]], list[Tensor]]
    tensors: tuple[Tensor, ...] = ()
    #: How many rows pass through the network for each point.
    rows: int = 4

    def __call__(self, model: Model, x: Tensor) -> list[Tensor]:
        return self.run(model, x, self.tensors)


class Engine(ABC):
    """A way to compute derivatives. Immutable: what changes a setting returns another engine.

    A new engine is one class with one method, `derivatives`. It gets checked points, and operators whose terms are
    `Partial` (with `axes` only) and `Directional`, and returns one (B, m) tensor for each operator, differentiable
    with respect to the model's parameters. It calls the model through `checks.forward`.
    """

    #: What to do with a network whose samples influence each other: "refuse" it, "ignore" the fact and compute
    #: something else than the derivative, or None where the engine is right for such networks too.
    coupled: str | None = "refuse"

    @abstractmethod
    def derivatives(self, model: Model, x: Tensor, operators: Sequence[Operator]) -> Sequence[Tensor]:
        """One (B, m) tensor per operator."""

    def prepared(self, x: Tensor, operators: Sequence[Operator]) -> Prepared | None:
        """The plan for a request apart from its execution; None where the engine cannot be compiled."""
        return None

    def rows(self, x: Tensor, operators: Sequence[Operator]) -> Rows:
        """What a point costs in a pass through the network; `suggested_chunk` cuts the batch by it."""
        prepared = self.prepared(x, checks.operators(operators, x))
        return Rows(4, 4) if prepared is None else Rows(prepared.rows, prepared.rows)

    def calibrated(self, model: Model, x: Tensor, operators: Sequence[Operator], **search: object) -> Engine:
        """The same engine with its steps set for this model; exact engines have none and return themselves."""
        return self


def evaluate(model: Model, x: Tensor, operators: Sequence[Operator] | Operator, engine: Engine) -> tuple[Tensor, ...]:
    """Apply each operator to the model at the points `x`.

    Args:
        model: maps (B, d) to (B, m); a module or any callable.
        x: the points, (B, d).
        operators: what to compute, for example `[D(), Laplacian()]`.
        engine: how to compute it, for example `AD()` or `FD(step=1e-2)`.

    Returns:
        One (B, m) tensor for each operator, in order, differentiable in the model's parameters.
    """
    model, x, expanded = _checked(model, x, operators, engine)
    return tuple(engine.derivatives(model, x, expanded))


def prepare(model: Model, x: Tensor, operators: Sequence[Operator], engine: Engine) -> Prepared | None:
    """The plan of a request after the same checks as in `evaluate`; None where the engine has no plan apart."""
    model, x, expanded = _checked(model, x, operators, engine)
    return engine.prepared(x, expanded)


def _checked(
    model: Model, x: Tensor, operators: Sequence[Operator] | Operator, engine: Engine
) -> tuple[Model, Tensor, list[Operator]]:
    if not isinstance(engine, Engine):
        name = engine.__name__ if isinstance(engine, type) else repr(engine)
        raise InputError(f"The engine must be an instance such as dudx.AD() or dudx.FD(step=1e-2); got {name}.")
    x = checks.points(x)
    model = checks.model(model, x)
    expanded = checks.operators(operators, x)
    # A slice of a coupled batch is another batch, so there even engines that are right for coupled networks are not.
    if engine.coupled == "refuse" or slicing():
        refuse_if_coupled(model, x)
    return model, x, expanded
