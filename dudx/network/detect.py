"""Networks whose samples influence each other: notice them before an engine gets them silently wrong."""

from __future__ import annotations

import contextlib
import itertools
import math
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from dudx import checks
from dudx.checks import Model
from dudx.errors import CoupledModelError, InputError, ModelError, first_line
from dudx.network.modules import modules_of, owner_of
from dudx.network.sandbox import output_of

_slicing: ContextVar[int] = ContextVar("dudx_slicing", default=0)

# Influence shows in any handful of rows, so a probe never needs the whole batch.
_PROBE_ROWS = 16
_GOLDEN = (math.sqrt(5) - 1) / 2

#: The problem, and the line that solves it.
REFUSAL = (
    "The samples of this network's batch influence each other, as they do in batch norm in training mode and in "
    "attention over the batch, so this engine would silently return something other than each sample's own derivative. "
    "Use dudx.isolate(model, x) as the model, or the slower dudx.PerSampleAD() as the engine; "
    "print(dudx.explain(model, x)) says which layer it is."
)
#: The same where the batch comes in slices, which no engine can make up for.
_REFUSAL_OF_SLICES = (
    "The samples of this network's batch influence each other, so a slice of the batch is another batch with other "
    "derivatives. Isolate the whole batch beforehand, isolated = dudx.isolate(model, x), and use isolated.at(which) as "
    "the model, where which is the slice of torch.arange(len(x)) that backward gives beside that of x; or take the "
    "batch whole, without a chunk."
)


class Pointwise:
    """The base of models that are known to take each row by itself, so that engines need not probe them."""

    #: Why it cannot be compiled, for those who would.
    not_compiled: str | None = None

    @property
    def samples(self) -> int:
        """How many samples the rows of a batch belong to: it takes so many rows, or a multiple."""
        return 1

    def unbound(self) -> tuple[Any, tuple[Tensor, ...], Callable[..., Any]]:
        """The network inside, the tensors held for the moment, and how to put them together again.

        What is made anew for every batch has its compiled graph with the network inside, and the batch is data.
        """
        return self, (), itself


def itself(model: Any) -> Any:
    """A network that holds no tensors of a moment, put together."""
    return model


@contextlib.contextmanager
def sliced(count: int) -> Iterator[None]:
    """While a batch of so many rows is taken slice by slice."""
    token = _slicing.set(count)
    try:
        yield
    finally:
        _slicing.reset(token)


def slicing() -> int:
    """The rows of the batch that is being taken apart at the moment; 0 where none is."""
    return _slicing.get()


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
    if x.is_meta or torch.compiler.is_compiling() or isinstance(model, Pointwise):
        return
    if met_often_enough(model):
        return
    if _probe(model, x):
        forget(model)
        raise CoupledModelError(_REFUSAL_OF_SLICES if slicing() else REFUSAL)


def _probe(model: Model, x: Tensor) -> bool:
    if x.is_meta:
        raise InputError("The meta device holds no values, so coupling cannot be measured; use real points.")
    try:
        return _influence(model, x)
    except Exception as error:
        output_of(model, x.detach())  # a network that fails by itself says so here
        raise ModelError(
            f"The network fails where some of the points are moved away ({first_line(error)}), by which it is found "
            "out whether samples influence each other. If you know that they do not, say so to the engine: "
            "coupled='ignore', as in dudx.AD(coupled='ignore')."
        ) from error


def _influence(model: Model, x: Tensor) -> bool:
    """Whether rows that stay change when others move."""
    with torch.no_grad():
        rows, still = at_rest(model, x, least=4, most=_PROBE_ROWS)
        tolerance = rounding(still)
        repeated = False
        for moved, block in moves(rows):
            change = difference(output_of(model, moved), still).masked_fill(block, 0).amax(0)
            if bool((change <= tolerance).all()):  # a NaN in a row that stayed is influence, and fails here
                continue
            if not repeated:
                tolerance, repeated = tolerance + 10 * _noise(model, rows, still), True
            if not bool((change <= tolerance).all()):
                return True
    return False


def _noise(model: Model, rows: Tensor, still: Tensor) -> Tensor:
    """How much outputs change by themselves (m,): by randomness that no seed reaches, or sums whose order varies."""
    noise = torch.zeros_like(still[0])
    for _ in range(4):
        noise = torch.maximum(noise, difference(output_of(model, rows), still).amax(0))
        if not bool(noise.any()):  # the usual case; otherwise one sample of the noise may be small by chance
            break
    return noise


def at_rest(model: Model, x: Tensor, least: int, most: int) -> tuple[Tensor, Tensor]:
    """The rows of a probe and the outputs there; as many as x where the model takes no other number of rows."""
    rows = _probe_rows(x, least, most)
    try:
        return rows, output_of(model, rows)
    except Exception:
        if len(rows) == len(x):
            raise
    rows = _in_general_position(x.detach())
    return rows, output_of(model, rows)


def moves(rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The rows with some of them moved, and which those are, (B, 1): every row moves while any other one stays.

    Each row has a code of as many letters as any other, so no code contains another; the k-th time the rows move
    that have the k-th letter. That takes 6 moves for 16 rows. The moves are far, up and down in turn, so that a
    threshold on a mean is crossed, and by no round number, so that periodic functions notice. In the last move every
    second row takes its neighbour's place, for the sake of influence that reaches only so far.
    """
    count, letters = len(rows), 1
    while math.comb(letters, letters // 2) < count:
        letters += 1
    codes = list(itertools.islice(itertools.combinations(range(letters), letters // 2), count))
    other = rows.roll(1, dims=1) if rows.shape[1] > 1 else -rows
    cloud = 1 + rows.abs().amax(dim=0)
    for letter in range(letters if count > 1 else 0):
        block = torch.tensor([[letter in code] for code in codes], device=rows.device)
        far = (-1) ** letter * (1 + (letter + 1) * _GOLDEN % 1)
        yield torch.where(block, other + far * cloud, rows), block
    block = torch.arange(count, device=rows.device).unsqueeze(1) % 2 == 0
    yield torch.where(block, rows.roll(-1, dims=0), rows), block


def difference(a: Tensor, b: Tensor) -> Tensor:
    """The absolute difference, which is zero between equal infinities and between two NaN, and NaN beside one."""
    return (a - b).abs().masked_fill((a == b) | (a.isnan() & b.isnan()), 0)


def rounding(still: Tensor) -> Tensor:
    """What rounding may change in each column of the output (m,); columns may have very different units."""
    eps = torch.finfo(still.dtype).eps
    # In half precision as many roundings as elsewhere would amount to the value itself.
    return (64 if eps < 1e-4 else 8) * eps * still.masked_fill(~still.isfinite(), 0).abs().amax(0)


def _probe_rows(x: Tensor, least: int, most: int) -> Tensor:
    """Rows spread over x; where there are too few, shifted copies make up the number."""
    x = x.detach()
    if len(x) >= least:
        rows = x[torch.linspace(0, len(x) - 1, min(len(x), most), device=x.device).round().long()]
    else:
        number = torch.arange(least, device=x.device)
        rows = x[number % len(x)]
        rows = rows + (number // len(x)).unsqueeze(1).to(x.dtype) / least * (1 + rows.abs())
    return _in_general_position(rows)


def _in_general_position(rows: Tensor) -> Tensor:
    """Rows away from where they are special: a factor that is zero on the boundary hides what it multiplies.

    All move a little in common, and where a column holds one value only they are drawn apart.
    """
    cloud = 1 + rows.abs().amax(dim=0)
    number = torch.arange(len(rows), dtype=rows.dtype, device=rows.device).unsqueeze(1)
    constant = (rows == rows[:1]).all(dim=0)
    return rows + cloud * (_GOLDEN / 8 + torch.where(constant, number / len(rows), 0))


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


def forget(model: Model) -> None:
    """Meet a model as if for the first time, so that what was refused is refused again."""
    _meetings.forget(owner_of(model))


def met_often_enough(model: Model, purpose: object = None) -> bool:
    """True unless this is the 1st, 2nd, 4th, 8th … meeting with the model in its present mode, for this purpose."""
    mode = (purpose, getattr(model, "__func__", None), tuple(module.training for module in modules_of(model)))
    try:
        count = _meetings.count(owner_of(model), mode)
    except TypeError:  # not weakly referable or not hashable: such a callable is probed every time
        return False
    return count & (count - 1) != 0
