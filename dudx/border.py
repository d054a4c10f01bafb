"""The border: the one way to an engine; nothing unchecked gets past it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from torch import Tensor

from dudx import checks
from dudx.checks import Model
from dudx.compile.around import uncompiled
from dudx.compile.planned import from_graph, graphs_of
from dudx.engines.autodiff import AD
from dudx.engines.base import Engine, Prepared
from dudx.engines.meeting import can_be_planned, sound_derivatives
from dudx.errors import CoupledModelError, InputError
from dudx.network.ensemble import Ensemble
from dudx.network.pointwise import samples_of
from dudx.operators import Operator, fitting, orders_of
from dudx.private_torch import mapped


@overload
def evaluate(model: Model, x: Tensor, operators: Operator, engine: Engine, compile: bool = False) -> Tensor: ...
@overload
def evaluate(
    model: Model, x: Tensor, operators: Sequence[Operator], engine: Engine, compile: bool = False
) -> tuple[Tensor, ...]: ...
@uncompiled
def evaluate(
    model: Model, x: Tensor, operators: Sequence[Operator] | Operator, engine: Engine, compile: bool = False
) -> tuple[Tensor, ...] | Tensor:
    """Apply each operator to the model at the points `x`.

    Args:
        model: maps (B, d) to (B, m); a module or any callable.
        x: the points, (B, d).
        operators: what to compute, for example `[D(), Laplacian()]`, or a single operator.
        engine: how to compute it, for example `AD()` or `FD(step=1e-2)`.
        compile: compile network and derivatives into one graph, for engines that can (Taylor, FD, EFD, SFD). The graph
            is kept with the network; the first call takes seconds.

    Returns:
        One (B, m) tensor for each operator, in order, differentiable in the model's parameters; for a single operator
        the tensor itself.

    Example:
        >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> cubes = lambda x: (x**3).sum(1, keepdim=True)
        >>> dudx.evaluate(cubes, x, dudx.Laplacian(), dudx.AD()).tolist()  # 6x + 6y
        [[18.0], [42.0]]
        >>> value, u_x = dudx.evaluate(cubes, x, [dudx.D(), dudx.D(0)], dudx.AD())
        >>> u_x.tolist()
        [[3.0], [27.0]]
    """
    asked = fitting(operators, checks.batch(x))
    found = compiled_derivatives(model, x, asked, engine) if compile else derivatives(model, x, asked, engine)
    return found[0] if isinstance(operators, Operator) else tuple(found)


def derivatives(model: Model, x: Tensor, operators: Sequence[Operator], engine: Engine) -> Sequence[Tensor]:
    """The same for operators that are known to fit the points."""
    if isinstance(model, Ensemble):
        _admitted(model.kind, x, engine)
        return model.map(lambda member: tuple(derivatives(member, x, operators, engine)))
    return sound_derivatives(engine, _admitted(model, x, engine), x, operators)


def derivatives_elsewhere(
    model: Model, engine: Engine, points: int, operators: Sequence[Operator], rows: Tensor, side: str | None = None
) -> Sequence[Tensor] | None:
    """The same at the nodes (K, B, d) of each of B points, or (K, 1, d) where these are the same for all.

    With a side by the engine that looks there; None if that is the engine itself, so that nothing is to be computed.
    """
    if side is not None:
        looking = engine.looking(side)
        if looking is engine:
            return None
        engine = looking
    if samples_of(model) > 1:
        rows = rows.expand(-1, points, -1)
    if not orders_of(tuple(operators)):  # values need no engine, and some engines have points of their own
        engine = AD(coupled=engine.coupled if engine.coupled == "ignore" else "refuse")
    try:
        return derivatives(model, rows.reshape(-1, rows.shape[2]), operators, engine)
    except CoupledModelError as error:
        raise CoupledModelError(
            "The samples of this network's batch influence each other, and an integral, a fractional or upwind "
            "derivative looks at it elsewhere than at the batch: use dudx.isolate(model, x) as the model."
        ) from error


def compiled_derivatives(model: Model, x: Tensor, operators: Sequence[Operator], engine: Engine) -> Sequence[Tensor]:
    """The same from a compiled graph, where there is one."""
    kind = model.kind if isinstance(model, Ensemble) else model
    if not mapped() and callable(model):
        graphs = graphs_of(model)
        plan = prepared(kind, x, operators, engine) if graphs.takes(kind) else None
        if plan is not None:
            return from_graph(graphs, plan, model, x, _own)
    return derivatives(model, x, operators, engine)


def _own(_: None, computed: Sequence[Tensor], x: Tensor, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Derivatives in tensors of their own, rather than views of a buffer that the graph uses again."""
    return tuple(value.clone() for value in computed)


def prepared(model: Model, x: Tensor, operators: Sequence[Operator], engine: Engine) -> Prepared | None:
    """The plan of such a request after the same checks; None where the engine has no plan apart for this network."""
    can = can_be_planned(engine, _admitted(model, x, engine), x, operators)
    return engine.prepared(x, operators) if can else None


def _admitted(model: Model, x: Tensor, engine: Engine) -> Model:
    if not isinstance(engine, Engine):
        name = engine.__name__ if isinstance(engine, type) else repr(engine)
        raise InputError(f"The engine must be an instance such as dudx.AD() or dudx.FD(step=1e-2); got {name}.")
    checks.finite(x, "points")
    return checks.model(model, x)
