"""An engine meets a network: what it finds the first time is looked at, and is right or refused.

Nothing is computed for the sake of the look while there is no reason for doubt: the pass that was asked for is
watched. What training changes later is found at the 2nd, 4th, 8th … meeting.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from dudx.backend.tensor_checks import readable
from dudx.engines.crosscheck import Trial, refusal, some_of, unverified, values_of
from dudx.engines.interface import Engine, Stepped, prepared, refuse_unset, rows_per_point, state_of
from dudx.engines.request import Request
from dudx.engines.step_rounding import refuse_lost_steps
from dudx.errors import KinkWarning, NotFiniteWarning, UnsupportedError
from dudx.network import model_checks
from dudx.network.batch_bound import BatchBound, Pointwise, samples_of, unbound
from dudx.network.chunking import chunked_rows
from dudx.network.coupling_check import refuse_if_coupled
from dudx.network.foreign_noise import refuse_foreign_noise
from dudx.network.function_monitor import FunctionMonitor, describe_kink
from dudx.network.model_checks import Model
from dudx.network.modules import owner_of
from dudx.network.probe_schedule import NetworkRecord, probed_on_schedule
from dudx.network.random_numbers import KernelMonitor, PrivateRandomNumbers, unchanged_generator
from dudx.network.row_dependence import refuse_if_rows_are_counted
from dudx.network.sandbox import output_of, sandboxed
from dudx.network.vmapped_batches import SameRandomNumbers
from dudx.operators import D, Directional, Partial

#: Requests that are each checked; further ones are checked if they have an axis or an order that none of these had.
_MOST = 32
#: The share of rounding in a difference from which on it is refused.
_NOISE = 0.25
_NOISE_ROWS = 16
#: With more axes than this a backward pass asks for all slopes.
_MANY = 256


def sound_derivatives(engine: Engine, model: Model, x: Tensor, request: Request) -> Sequence[Tensor]:
    """One (B, m) tensor per operator by an engine; looked at where it meets the network for the first time."""
    if isinstance(engine, Stepped):
        engine.refuse_unset(request)
    known = _acquaintance(engine, model, x)
    if known is None:
        return engine.derivatives(model, x, request)
    if _is_to_be_looked_at(known, engine, x, request):
        results = _looked_at(engine, model, x, request, known)
        _remember(known, engine, x, request)
        return results
    if known.random and engine.approximate:
        return engine.derivatives(SameRandomNumbers(model, len(x)), x, request)
    return engine.derivatives(model, x, request)


def can_be_planned(engine: Engine, model: Model, x: Tensor, request: Request) -> bool:
    """Check a network at its first use as `sound_derivatives` does; False where it cannot run as it is."""
    refuse_unset(engine, request)
    known = _acquaintance(engine, model, x)
    if known is None:
        return True
    if _is_to_be_looked_at(known, engine, x, request):
        with torch.no_grad(), sandboxed(model), unchanged_generator(getattr(engine, "generator", None)):
            _looked_at(engine, model, x, request, known)
        _remember(known, engine, x, request)
    return not (known.random and engine.approximate)


def _acquaintance(engine: Engine, model: Model, x: Tensor) -> NetworkRecord | None:
    if x.is_meta or torch.compiler.is_compiling():
        return None
    if isinstance(model, Pointwise):
        return probed_on_schedule(model.unbound()[0], type(model), NetworkRecord)
    # A slice of a coupled batch is another batch, so there even engines that are right for coupled networks are not.
    if engine.coupled == "refuse" or chunked_rows():
        return refuse_if_coupled(model, x)
    return probed_on_schedule(model, engine.coupled, NetworkRecord)


def _is_to_be_looked_at(known: NetworkRecord, engine: Engine, x: Tensor, request: Request) -> bool:
    asked, way = request.operators, _way(engine, x)
    if known.last_request is not None and known.last_request[0] is asked and known.last_request[1] == way:
        return False
    if (asked, way) in known.checked:
        return False
    return len(known.checked) < _MOST or not _coverage(engine, x, request) <= known.covered


def _remember(known: NetworkRecord, engine: Engine, x: Tensor, request: Request) -> None:
    latest = (request.operators, _way(engine, x))
    if len(known.checked) < _MOST:
        known.checked.add(latest)
    known.covered |= _coverage(engine, x, request)
    known.last_request = latest


def _coverage(engine: Engine, x: Tensor, request: Request) -> set[object]:
    """The axes and the highest order that a check of these operators covers."""
    order, way = max(request.orders, default=0), _way(engine, x)
    return {(way, axis, order) for axis in _axes(request, x)}


def _way(engine: Engine, x: Tensor) -> object:
    """How it is asked for: the method of engines that differentiate code, the steps of differences."""
    matters = engine.by_code or torch.is_autocast_enabled(x.device.type)
    steps = getattr(engine, "step", getattr(engine, "steps", None)) if engine.by_shifts else None
    return type(engine), torch.is_grad_enabled(), engine if matters else steps


def _looked_at(engine: Engine, model: Model, x: Tensor, request: Request, known: NetworkRecord) -> Sequence[Tensor]:
    if not request.orders:
        return engine.derivatives(model, x, request)
    if engine.approximate:
        return _differences(engine, model, x, request, known)
    if not engine.by_code or engine.coupled == "ignore":
        return engine.derivatives(model, x, request)
    return _by_code(engine, model, x, request)


class _Seen(BatchBound):
    """A network that is looked at while it runs; it may have to run again, then with random numbers of our own."""

    def __init__(self, model: Model, *modes: AbstractContextManager[Any]):
        self.model, self.modes = model, modes
        self.__self__ = owner_of(model)  # so that it is known by its owner, as a method is

    @property
    def samples(self) -> int:
        return samples_of(self.model)

    def __call__(self, x: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for mode in self.modes:
                stack.enter_context(mode)
            return self.model(x)


# -- engines that differentiate the network's code -----------------------------------------------------------------


def _by_code(engine: Engine, model: Model, x: Tensor, request: Request) -> Sequence[Tensor]:
    observed = FunctionMonitor(len(x), unbound(model)[1])
    with observed.active():
        results = engine.derivatives(_Seen(model, observed), x, request)
    order = max(request.orders)
    try:
        bare = model.model if isinstance(model, _Seen) else model  # an outer engine does not look at our trials
        wrong = _wrong(engine, bare, x, _axes(request, x), order, observed)
    except Exception as error:  # of a network that is defined at its points alone
        # Inside of torch.func.vmap nothing can be compared.
        if readable(x) and (observed.doubtful or any(bool(zero.all()) for zero in observed.zero_slopes.values())):
            raise unverified(engine, error) from error
        wrong = None
    if wrong is not None:
        raise refusal(wrong, engine)
    _warn_of_kinks(model, observed, order)
    _warn_if_not_finite(results)
    return results


def _axes(request: Request, x: Tensor) -> list[int]:
    """The axes that operators differentiate along; a direction takes all of them."""
    terms = [term for operator in request for term in operator.terms]
    if any(isinstance(term, Directional) for term in terms):
        return list(range(x.shape[1]))
    return sorted({axis for term in terms if isinstance(term, Partial) for axis in term.axes})


def _wrong(
    engine: Engine, model: Model, x: Tensor, axes: Sequence[int], order: int, observed: FunctionMonitor
) -> int | None:
    """The order from which on derivatives are not how the output moves; None where there is nothing against them.

    A part of a network that somebody has made constant is constant, as it is for autograd. But a derivative that is
    zero at every point is zero only if the output does not move; and what leaves torch, or has a backward pass of its
    own, is compared with what the output does.
    """
    if not observed.zero_slopes:
        _ask_for_slopes(engine, model, x, axes, observed)
    flat = torch.stack([observed.zero_slopes[output] for output in sorted(observed.zero_slopes)])  # (m, d)
    together: dict[tuple[bool, ...], list[int]] = {}
    for axis in axes:
        columns = tuple(flat[:, axis].tolist())
        if any(columns):
            together.setdefault(columns, []).append(axis)
    for columns, some in together.items():
        if Trial(model, x, engine, some).still_moves(torch.tensor(columns, device=x.device)):
            return 1
    return Trial(model, x, engine, axes).contradicted(order) if observed.doubtful else None


def _ask_for_slopes(engine: Engine, model: Model, x: Tensor, axes: Sequence[int], observed: FunctionMonitor) -> None:
    """First derivatives at a few points, of an engine that does not tell what it finds on its way to others."""
    rows = some_of(model, x.detach())
    if len(axes) > _MANY and (gradients := _backwards(model, rows)) is not None:
        for output, gradient in enumerate(gradients):
            observed.note_slope(output, gradient)
        return
    slopes = values_of(engine, model, rows, Request(tuple(D(axis) for axis in axes)))
    for output in range(slopes[0].shape[1]):
        gradient = torch.ones_like(rows)
        gradient[:, axes] = torch.stack([slope[:, output] for slope in slopes], dim=1).to(rows.dtype)
        observed.note_slope(output, gradient)


def _backwards(model: Model, rows: Tensor) -> list[Tensor] | None:
    """The gradient of each output by backward passes; None where a slope is zero, or cannot be had in this way.

    A slope that is not zero clears the code of hiding the axis from whoever reads it, and a stream for each of many
    axes would take memory in the square of their number.
    """
    with torch.enable_grad(), sandboxed(model):
        own = rows.clone().requires_grad_(True)
        u = model_checks.forward(model, own)
        if not u.requires_grad:
            return None
        try:
            gradients = [torch.autograd.grad(u[:, o].sum(), own, retain_graph=True)[0] for o in range(u.shape[1])]
        except RuntimeError:  # of what has no backward pass
            return None
    return gradients if all(bool((gradient != 0).any(0).all()) for gradient in gradients) else None


# -- differences ---------------------------------------------------------------------------------------------------


def _differences(engine: Engine, model: Model, x: Tensor, request: Request, known: NetworkRecord) -> Sequence[Tensor]:
    if engine.coupled != "ignore":
        passed = len(x) * rows_per_point(engine, x, request).at_once
        refuse_if_rows_are_counted(model, x, f"{type(engine).__name__} passes", len(x), passed)
        refuse_foreign_noise(model, x, type(engine).__name__)
    with unchanged_generator(getattr(engine, "generator", None)):
        refuse_lost_steps(engine, model, x, request)
    plan = prepared(engine, x, request)

    def run(network: Model) -> Sequence[Tensor]:
        return engine.derivatives(network, x, request) if plan is None else plan(network, x)

    # Isolated networks see to it themselves that a sample's rows draw the same numbers, and need not run again.
    alone = _is_pointwise(model)
    if plan is None and alone:  # the engine has to see what it is
        return run(model)
    observed, numbers = FunctionMonitor(len(x)), KernelMonitor() if alone else PrivateRandomNumbers()
    results = run(_Seen(model, observed, numbers))
    order = max(request.orders)
    known.random = numbers.drawn and not alone
    if known.random and numbers.drawn_in_checkpoint:
        raise UnsupportedError(
            "This network draws random numbers inside of torch.utils.checkpoint, whose backward pass draws them again, "
            "and differences need the same ones at all rows that belong to a point; use dudx.AD() or dudx.Taylor(), or "
            "model.eval()."
        )
    if known.random:
        return run(SameRandomNumbers(model, len(x)))
    coarsest = numbers.coarser_than(x.dtype)
    if coarsest is not None:
        _refuse_noise(engine, model, x, order, coarsest)
    _warn_of_kinks(model, observed, order)
    return results


def _is_pointwise(model: object) -> bool:
    return isinstance(model, Pointwise)


def _refuse_noise(engine: Engine, model: Model, x: Tensor, order: int, coarsest: torch.dtype) -> None:
    """Refuse a network that computes so coarsely that differences at the engine's step are noise."""
    step = _smallest_step(engine, order)
    if step is None:
        return
    rows = x.detach()[: len(x) if samples_of(model) > 1 else _NOISE_ROWS]
    still = output_of(model, rows).double()
    noise = torch.finfo(coarsest).eps / 4 * still.abs().amax(0)
    spread = (still - still.mean(0)).square().mean(0).sqrt().clamp(min=torch.finfo(torch.float64).tiny)
    width = float((rows - rows.mean(0)).double().square().mean().sqrt())
    if float((noise / spread).amax()) * (width / step) ** order <= _NOISE:
        return
    name = type(engine).__name__
    raise UnsupportedError(
        f"This network computes in {_word(coarsest)}, a coarser format than its points' {_word(x.dtype)} (autocast, or "
        f".half() inside), and at a step of {step:.1e} differences of order {order} are mostly rounding: calibrate as "
        f"it is evaluated, dudx.{name}().calibrated(model, x, operators) under the same autocast, or use dudx.AD() or "
        "dudx.Taylor()."
    )


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _smallest_step(engine: Engine, order: int) -> float | None:
    steps: Any = state_of(engine).get("steps")
    if isinstance(steps, dict):
        steps = steps.get(order, min(steps.values(), key=lambda step: min(step) if isinstance(step, tuple) else step))
    return min(steps) if isinstance(steps, tuple | list) else steps


# -- kinks ---------------------------------------------------------------------------------------------------------

_warned: weakref.WeakSet[Any] = weakref.WeakSet()


def _warn_of_kinks(model: Model, observed: FunctionMonitor, order: int) -> None:
    """Say once of a network that it is made of straight pieces, if second derivatives are asked of it."""
    if order < 2 or observed.kink is None or not observed.piecewise_linear:
        return
    owner = owner_of(model)
    with contextlib.suppress(TypeError):  # what cannot be remembered is warned of each time
        if owner in _warned:
            return
        _warned.add(owner)
    warnings.warn(
        f"This network is made of straight pieces in {describe_kink(model, observed.kink)}: its second derivative "
        "is zero between the kinks, and none at them, so a residual with derivatives of order 2 says nothing about it. "
        "Use a smooth activation, such as nn.Tanh, nn.SiLU or nn.GELU.",
        KinkWarning,
        stacklevel=6,
    )


def _warn_if_not_finite(results: Sequence[Tensor]) -> None:
    """Warn of derivatives that are not finite. The points are finite, as `evaluate` has checked."""
    for result in results:
        if not readable(result) or bool(torch.isfinite(result).all()):
            continue
        bad = (~torch.isfinite(result)).any(1).nonzero().flatten()
        warnings.warn(
            f"The derivatives are not finite at {len(bad)} of {len(result)} points (the first is row {int(bad[0])}), "
            "where a function in the network has no derivative, such as sqrt or a norm at 0, or is not finite itself. "
            "Write the network without it, (x * x).sum(1) for the square of a norm, or move these points.",
            NotFiniteWarning,
            stacklevel=6,
        )
        return
