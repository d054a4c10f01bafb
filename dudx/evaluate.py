"""The border: the one way to an engine; nothing unchecked gets past it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, overload

import torch
from torch import Tensor, nn

from dudx.backend import tensor_checks
from dudx.backend.active_modes import vmap_active
from dudx.backend.outer_compile import uncompiled
from dudx.engines.autodiff import AD
from dudx.engines.first_use import can_be_planned, sound_derivatives
from dudx.engines.interface import Engine, Prepared, RowsPerPoint
from dudx.engines.interface import prepared as prepared_by
from dudx.engines.request import Request, request_of
from dudx.errors import CoupledModelError, InputError, whole_number
from dudx.network import model_checks
from dudx.network.batch_bound import samples_of
from dudx.network.chunking import in_chunks
from dudx.network.compiled_plan import graphs_for, run_compiled
from dudx.network.ensemble import Ensemble
from dudx.network.model_checks import Model
from dudx.network.probe_schedule import probed_on_schedule
from dudx.network.row_dependence import refuse_if_rows_are_counted
from dudx.operators import Operator


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
    request = request_of(operators, tensor_checks.batch(x))
    found = compiled_derivatives(model, x, request, engine) if compile else derivatives(model, x, request, engine)
    return found[0] if isinstance(operators, Operator) else tuple(found)


def derivatives(model: Model, x: Tensor, request: Request, engine: Engine) -> Sequence[Tensor]:
    """One (B, m) tensor for each operator of a request that was checked against the points."""
    if isinstance(model, Ensemble):
        check_members(model, x, request, engine)
        return model.map(lambda member: tuple(derivatives(member, x, request, engine)))
    return sound_derivatives(engine, _admitted(model, x, engine), x, request)


def check_members(
    several: Ensemble,
    x: Tensor,
    request: Request,
    engine: Engine,
    seen_as: Callable[[Any], Any] = lambda member: member,
) -> None:
    """Check points, engine and members of an ensemble as for a single network; members at the 1st, 2nd, 4th ... call.

    Args:
        several: the ensemble, whose members torch.func.vmap hides from the checks.
        x: the points, (B, d).
        request: what to compute.
        engine: how to compute it.
        seen_as: what a member is given to engines as, such as the member with its data.
    """
    _admitted(several.kind, x, engine)
    if vmap_active() or torch.compiler.is_compiling():
        return

    def check() -> None:
        for member in several.members():
            can_be_planned(engine, seen_as(member), x, request)

    probed_on_schedule(several.kind, ("members", type(engine), engine.coupled, request.operators), check)


def derivatives_elsewhere(
    model: Model, engine: Engine, points: int, request: Request, rows: Tensor
) -> Sequence[Tensor]:
    """Derivatives at the nodes (K, B, d) of each of B points, or (K, 1, d) where these are the same for all."""
    if samples_of(model) > 1:
        rows = rows.expand(-1, points, -1)
    if not request.orders:  # values need no engine, and some engines have points of their own
        engine = AD(coupled=engine.coupled if engine.coupled == "ignore" else "refuse")
    if engine.coupled != "ignore" and not torch.compiler.is_compiling():
        what = "an integral or a fractional derivative passes"
        at = rows[0] if samples_of(model) > 1 else rows.flatten(0, 1)
        probed_on_schedule(model, "elsewhere", lambda: refuse_if_rows_are_counted(model, at, what, points, len(at)))
    try:
        return derivatives(model, rows.reshape(-1, rows.shape[2]), request, engine)
    except CoupledModelError as error:
        raise CoupledModelError(
            "The samples of this network's batch influence each other, and an integral or a fractional "
            "derivative looks at it elsewhere than at the batch: use dudx.isolate(model, x) as the model."
        ) from error


def compiled_derivatives(model: Model, x: Tensor, request: Request, engine: Engine) -> Sequence[Tensor]:
    """Derivatives from a compiled graph, where there is one."""
    kind = model.kind if isinstance(model, Ensemble) else model
    if not vmap_active() and callable(model):
        if isinstance(model, Ensemble):
            check_members(model, x, request, engine)
        graphs = graphs_for(model)
        plan = prepared(kind, x, request, engine) if graphs.can_compile(kind) else None
        if plan is not None:
            return run_compiled(graphs, plan, model, x, _own)
    return derivatives(model, x, request, engine)


def _own(_: None, computed: Sequence[Tensor], x: Tensor, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Derivatives in tensors of their own, rather than views of a buffer that the graph uses again."""
    return tuple(value.clone() for value in computed)


def prepared(model: Model, x: Tensor, request: Request, engine: Engine) -> Prepared | None:
    """Plan a request, after all checks; None where the engine has no plan apart from execution for this network."""
    can = can_be_planned(engine, _admitted(model, x, engine), x, request)
    return prepared_by(engine, x, request) if can else None


def _admitted(model: Model, x: Tensor, engine: Engine) -> Model:
    if not isinstance(engine, Engine):
        name = engine.__name__ if isinstance(engine, type) else repr(engine)
        raise InputError(f"The engine must be an instance such as dudx.AD() or dudx.FD(step=1e-2); got {name}.")
    tensor_checks.finite_on_schedule(x, "points")
    return model_checks.model(model, x)


def backward(loss: Callable[..., Tensor], x: Tensor | Sequence[Tensor], chunk: int | None = None) -> Tensor:
    """Add the gradient of a mean loss to the parameters' `.grad`, slice by slice of the batch.

    The result is that of `loss(x).backward()` up to rounding, in the memory of one slice. Slices that fit into the
    processor's cache are also faster, more so after `keep_freed_memory()`. A network whose samples influence each other
    has no slices, and is refused; `isolate(model, x).at(which)`, made of the whole batch, has them.

    Args:
        loss: from a slice of the points to the mean over that slice; with several tensors, from a slice of each.
        x: the points (B, d), or several tensors of B rows each, such as points and normals.
        chunk: rows in a slice; None takes the whole batch at once. `suggested_chunk(model)` knows a good number.

    Returns:
        The loss of the whole batch, detached.

    >>> model, x = torch.nn.Linear(2, 1), torch.rand(1000, 2)
    >>> equation = dudx.Residual(lambda u: u.x + u.y, inputs=("x", "y"))
    >>> loss = dudx.backward(lambda part: equation.loss(model, part, dudx.AD()), x, chunk=256)
    >>> torch.allclose(loss, equation.loss(model, x, dudx.AD())), model.weight.grad is not None
    (True, True)
    """
    tensors = (x,) if isinstance(x, Tensor) else tuple(x)
    if not tensors or any(not isinstance(t, Tensor) or t.ndim == 0 or len(t) != len(tensors[0]) for t in tensors):
        raise InputError("backward slices one tensor or several with the same number of rows.")
    count = len(tensors[0])
    if count == 0:
        raise InputError("The batch is empty; give at least one point.")
    if chunk is None:
        chunk = count
    chunk = whole_number(chunk, "chunk")
    total: Any = 0.0
    with in_chunks(count if chunk < count else 0):
        for slices in zip(*(t.split(chunk) for t in tensors), strict=True):
            mean = loss(*slices)
            if not isinstance(mean, Tensor) or mean.numel() != 1:
                raise InputError("The loss given to backward must return one number, the mean over its points.")
            share = len(slices[0]) / count
            mean.backward(torch.full_like(mean, share))
            total = total + share * mean.detach()
    return total


#: Bytes of one layer's activations that a thread has to do with in a pass, by measurement on widths 64, 128 and 256:
#: with more, the next layer finds them gone from the cache; with less, the cost of each call shows.
_LAYER = 2 * 2**20
#: How much more it may be where several threads share a call: at its end they wait for each other, which costs more
#: than what is gone from the cache (`benchmarks/streaming.py --threads 2 --chunks auto 512 1024 2048 4096 8192`).
_SHARED = 4
#: Bytes that a slice may keep for its backward pass, and how many tensors a layer keeps for each row.
_KEPT, _TENSORS = 2**28, 3


def suggested_chunk(model: object, device: torch.device | str = "cpu", rows: RowsPerPoint | int = 4) -> int:
    """How many points a slice should have so that a layer's activations stay in the cache, a power of two.

    The threads that torch works with (`torch.get_num_threads()`) share a slice: each has a cache of its own, and all
    wait for the last one, so that several want larger slices. On a GPU slices only save memory, so they are as large as
    keeps it busy.

    Args:
        model: its widest layer decides.
        device: where it runs.
        rows: what the engine makes of a point, `engine.rows(x, operators)`; a number stands for both.

    >>> narrow, wide = torch.nn.Linear(2, 64), torch.nn.Linear(2, 256)
    >>> dudx.suggested_chunk(narrow) == 4 * dudx.suggested_chunk(wide)
    True
    """
    if torch.device(device).type != "cpu":
        return 2**16
    rows = RowsPerPoint(rows, rows) if isinstance(rows, int) else rows
    weights = [p for p in model.parameters() if p.ndim == 2] if isinstance(model, nn.Module) else []
    widths = [p.shape[0] for p in weights] or [128] * 5
    size = weights[0].element_size() if weights else 4
    threads = torch.get_num_threads()
    by_cache = _LAYER * (_SHARED * threads if threads > 1 else 1) / (max(widths) * size * rows.at_once)
    by_memory = _KEPT / (sum(widths) * size * rows.kept * _TENSORS)
    return 2 ** max(4, min(16, int(math.log2(min(by_cache, by_memory)))))
