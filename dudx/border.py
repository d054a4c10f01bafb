"""The border: the one way to an engine; nothing unchecked gets past it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from dudx import checks
from dudx.checks import Model
from dudx.engines.base import Engine, Prepared
from dudx.errors import InputError
from dudx.network.detect import refuse_if_coupled
from dudx.network.slices import slicing
from dudx.operators import Operator, fitting


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
    expanded = fitting(operators, x)
    # A slice of a coupled batch is another batch, so there even engines that are right for coupled networks are not.
    if engine.coupled == "refuse" or slicing():
        refuse_if_coupled(model, x)
    return model, x, expanded
