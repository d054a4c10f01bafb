"""Networks whose samples influence each other: notice them before an engine gets them silently wrong."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from dudx import checks
from dudx.checks import Model
from dudx.errors import CoupledModelError

# Influence shows in any handful of rows, so a probe never needs the whole batch.
_PROBE_ROWS = 16


def coupled(model: Model, x: Tensor) -> bool:
    """True where one sample's output depends on another sample's input, in the model's present mode.

    Decided numerically: some rows are moved, and the outputs of the others are compared. The model's buffers
    (running statistics) and the random state are left as they were.
    """
    x = checks.points(x)
    return _probe(checks.model(model, x), x)


def refuse_if_coupled(model: Model, x: Tensor) -> None:
    """Raise CoupledModelError for a coupled network, probing only when it is met in this mode for the first time.

    Influence that training switches on later (a zero-initialised output projection, say) is found too: the probe is
    repeated at the 2nd, 4th, 8th … meeting, which costs nothing in the long run.
    """
    if x.is_meta or torch.compiler.is_compiling() or getattr(model, "pointwise", False):
        return
    if _met_often_enough(model):
        return
    if _probe(model, x):
        _meetings.forget(_owner(model))  # so that asking again is refused again
        raise CoupledModelError(
            "The samples of this network's batch influence each other (as BatchNorm in training mode and attention "
            "over the batch do), so this engine would silently return something other than each sample's own "
            "derivative. Use dudx.isolate(model, x) as the model, or the slower dudx.PerSampleAD() as the engine."
        )


def _probe(model: Model, x: Tensor) -> bool:
    if x.is_meta:
        raise checks.InputError("The meta device holds no values, so coupling cannot be measured; use real points.")
    rows = _probe_rows(x)
    moved = rows.roll(1, dims=1) if rows.shape[1] > 1 else -rows
    moved = moved + (1 + rows.abs().amax(dim=0))  # a move as large as the cloud itself
    first = torch.arange(len(rows), device=x.device).unsqueeze(1) < len(rows) // 2
    with torch.no_grad():
        still = _output(model, rows)
        known = still.isfinite()  # a network that returns NaN by itself has shown no influence
        tolerance = 8 * torch.finfo(still.dtype).eps * (1 + still.abs().masked_fill(~known, 0).amax())
        for block in (first, ~first):
            change = (_output(model, torch.where(block, moved, rows)) - still).abs()
            # A NaN in a row that was not moved is influence too, hence the negation.
            if not bool((change.masked_fill(block | ~known, 0) <= tolerance).all()):
                return True
    return False


def _probe_rows(x: Tensor) -> Tensor:
    """A few rows of x; where there are fewer than four, shifted copies make up the number."""
    rows = x.detach()[:_PROBE_ROWS]
    if len(rows) >= 4:
        return rows
    shifts = torch.arange(4, dtype=x.dtype, device=x.device) / 4
    return (rows[:1] + shifts.unsqueeze(1) * (1 + rows[:1].abs())).to(x.dtype)


def _output(model: Model, rows: Tensor) -> Tensor:
    with unobserved(model, rows.device):
        return checks.forward(model, rows.clone())


@contextlib.contextmanager
def unobserved(model: Model, device: torch.device) -> Iterator[None]:
    """The same random numbers every time inside; the model's buffers and the random state put back afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), unchanged_buffers(model):
        torch.manual_seed(0)
        yield


@contextlib.contextmanager
def unchanged_buffers(model: Model) -> Iterator[None]:
    """Put the buffers (running statistics, power iterations) of a module back afterwards."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    saved = [(m._buffers, name, b, b.clone()) for m in modules for name, b in m._buffers.items() if b is not None]
    try:
        yield
    finally:
        with torch.no_grad():
            for owner, name, buffer, value in saved:
                owner[name] = buffer  # a forward may have put another tensor in its place
                if not torch.equal(buffer, value):  # else a graph that holds the buffer would notice the write
                    buffer.copy_(value)


class _Meetings:
    """How often each model was met in each mode, forgotten with the model."""

    def __init__(self) -> None:
        self.counts: weakref.WeakKeyDictionary[object, dict[object, int]] = weakref.WeakKeyDictionary()

    def count(self, owner: object, mode: object) -> int:
        modes = self.counts.setdefault(owner, {})
        modes[mode] = modes.get(mode, 0) + 1
        return modes[mode]

    def forget(self, owner: object) -> None:
        with contextlib.suppress(TypeError):  # raised for what cannot be weakly referred to, hence was never counted
            self.counts.pop(owner, None)


_meetings = _Meetings()


def _owner(model: Model) -> object:
    return getattr(model, "__self__", model)


def _met_often_enough(model: Model) -> bool:
    """True unless this is the 1st, 2nd, 4th, 8th … meeting with the model in its present mode."""
    owner = _owner(model)
    mode: object = getattr(model, "__func__", None)
    if isinstance(owner, nn.Module):
        mode = (mode, tuple(module.training for module in owner.modules()))
    try:
        count = _meetings.count(owner, mode)
    except TypeError:  # not weakly referable or not hashable: such a callable is probed every time
        return False
    return count & (count - 1) != 0
