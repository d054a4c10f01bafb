"""What a network does with the samples of its batch, for a person: who mixes them, what goes wrong, what to use."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dudx import checks
from dudx.border import evaluate
from dudx.checks import Model
from dudx.coupling.isolation import isolate
from dudx.coupling.mixing import Mixing, kind, mixing_modules, output, relative_change
from dudx.engines.autodiff import AD
from dudx.engines.base import Engine
from dudx.engines.per_sample import PerSampleAD
from dudx.engines.taylor.engine import Taylor
from dudx.errors import DudxError, InputError, UnsupportedError, first_line
from dudx.network.detect import at_rest, coupled, difference, moves, rounding
from dudx.network.modules import modules_of
from dudx.network.sandbox import seed_generators, unobserved, without_graph
from dudx.operators import D, Laplacian, Operator

# A prime that hardly any layer has as its width, so that the axis of the samples is known by its length.
_ROWS = 13
# Rows through the network, times derivatives, that are still quick.
_BUDGET = 2**16


@dataclass(frozen=True)
class Error:
    """Errors at the points, relative to the root mean square of the true values."""

    median: float
    largest: float


@dataclass(frozen=True)
class Explanation:
    """What `explain` found; `str()` is the report."""

    network: str
    #: "training", "evaluation", "mixed" where modules differ, or "function" where there are none.
    mode: str
    #: The shape of the points.
    batch: tuple[int, int]
    dtype: torch.dtype
    coupled: bool
    #: As `Mixing.change`, of the network's output.
    change: float
    #: The innermost modules that mix samples, in the order they are called.
    modules: tuple[Mixing, ...]
    #: How many points the errors are measured at, in a batch of their own; 0 where they are not measured.
    points: int
    #: Of the batched idiom, AD(coupled="ignore"), against PerSampleAD(); None where `notes` say why not.
    gradient: Error | None
    laplacian: Error | None
    #: Whether dudx.isolate takes the network; None where samples are independent and it has nothing to do.
    isolates: bool | None
    #: Of AD() on dudx.isolate(model, x), the worse of gradient and Laplacian.
    isolated: Error | None
    #: What to use, best first.
    remedies: tuple[str, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        mode = {"function": "", "mixed": ", partly in training mode"}.get(self.mode, f" in {self.mode} mode")
        verdict = "influence each other" if self.coupled else "are independent"
        dtype = str(self.dtype).removeprefix("torch.")
        lines = [f"{self.network}{mode}: samples {verdict} ({self.batch[0]} points, {self.batch[1]} inputs, {dtype})."]
        if self.coupled:
            lines += ["", "Where they mix, and how much rows that stay change when others move:"]
            rows = [(m.name or "(its own code)", m.type, _percent(m.change)) for m in self.modules]
            lines += _table(("module", "type", "change"), [*rows, ("(output)", "", _percent(self.change))], 2)
        of = " in a batch of their own" if 0 < self.points < self.batch[0] else ""
        lines += ["", f'What the batched idiom, AD(coupled="ignore"), gets wrong at {self.points} points{of}:']
        errors = (("gradient", self.gradient), ("Laplacian", self.laplacian))
        rows = [(name, _percent(e.median), _percent(e.largest)) for name, e in errors if e is not None]
        lines += _table(("error", "median", "largest"), rows, 1) if rows else ["  not measured"]
        lines += ["", "What to use:", *(f"  {line}" for line in self.remedies)]
        if self.notes:
            lines += ["", "Notes:", *(f"  {line}" for line in self.notes)]
        return "\n".join(lines)


def _percent(value: float) -> str:
    percent = 100 * value
    if not math.isfinite(percent):
        return "infinite"
    return f"{percent:.2g} %" if percent < 100 else f"{percent:.0f} %" if percent < 1e6 else f"{percent:.1e} %"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], words: int) -> list[str]:
    """Aligned columns: first so many of words, then numbers."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    sides = ["<"] * words + [">"] * (len(head) - words)
    return [
        "  " + "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        for row in (head, *rows)
    ]


def explain(model: Model, x: Tensor, points: int = 128, show: bool = False) -> Explanation:
    """Find out which modules of a network mix the samples of a batch, what that does to derivatives, and the remedy.

    The model is left as it was: buffers, modes, hooks, gradients; and so is the random state.

    Args:
        model: the network, in the mode in question, or any function.
        x: a batch as it is used in training, (B, d).
        points: how many of them the errors are measured at, spread over x and as a batch of their own; in many
            dimensions fewer are taken, so that it stays quick.
        show: print the report.
    """
    x = checks.points(x).detach()
    model = checks.model(getattr(model, "_orig_mod", model), x)  # a compiled module cannot be looked into
    if x.is_meta:
        raise InputError("The meta device holds no values, so nothing can be measured; use real points.")
    if isinstance(points, bool) or not isinstance(points, int) or points < 2:
        raise InputError(f"points must be a whole number, 2 or more; got {points!r}.")
    rows, _ = at_rest(model, x, _ROWS, _ROWS)
    with without_graph(model, rows), unobserved(model, x.device):
        explanation = _examined(model, x, points)
    if show:
        print(explanation)
    return explanation


def _examined(model: Model, x: Tensor, points: int) -> Explanation:
    notes: list[str] = []
    mixed = coupled(model, x)
    rows, still = at_rest(model, x, _ROWS, _ROWS)
    change = max(relative_change(output(model, moved), still, block) for moved, block in moves(rows))
    modules = mixing_modules(model, rows)
    if mixed and not modules:
        modules = [Mixing("", kind(model), change)]
    if modules and not mixed:
        inside = ", ".join(f"{m.name or 'its own code'} ({m.type})" for m in modules)
        notes.append(f"Samples mix in {inside}, but the output does not show it: a gate that is closed, perhaps.")
    random = not bool((difference(output(model, rows, seed=1), still) <= rounding(still)).all())
    if random:
        notes.append("The network draws random numbers; the figures are for one draw.")
    batch = _batch(x, rows, points)
    if batch is None:
        notes.append(f"The network takes no fewer than all {len(x)} points: too many to measure errors at.")
    measured = _Measured(model, x if batch is None else batch, notes, _requests(x) if batch is not None else {})
    isolates = measured.isolate(model, random) if mixed else None
    return Explanation(
        network=kind(model),
        mode=_mode(model),
        batch=(x.shape[0], x.shape[1]),
        dtype=x.dtype,
        coupled=mixed,
        change=change if mixed else 0.0,
        modules=tuple(modules) if mixed else (),
        points=0 if batch is None else len(batch),
        gradient=measured.idiom.get("gradient"),
        laplacian=measured.idiom.get("Laplacian"),
        isolates=isolates,
        isolated=measured.isolated,
        remedies=tuple(_for_coupled(model, x, measured, isolates) if mixed else _for_independent(model, rows, notes)),
        notes=tuple(notes),
    )


def _mode(model: Model) -> str:
    training = {module.training for module in modules_of(model)}
    return (
        "function"
        if not training
        else "mixed"
        if len(training) > 1
        else "training"
        if True in training
        else "evaluation"
    )


def _batch(x: Tensor, rows: Tensor, points: int) -> Tensor | None:
    """Few enough points for the per-sample reference, whose work grows with their square."""
    if len(x) == 1:
        return rows
    count = min(len(x), points, max(_ROWS, math.isqrt(_BUDGET // (2 + x.shape[1]))))
    if len(rows) != _ROWS:  # the network takes no other number
        return x if len(x) <= 4 * count else None
    return x[torch.linspace(0, len(x) - 1, count, device=x.device).round().long()]


def _requests(x: Tensor) -> dict[str, list[Operator]]:
    return {"gradient": [D(axis) for axis in range(x.shape[1])], "Laplacian": [Laplacian()]}


def _reason(error: Exception) -> str:
    """The first statement of a message, without the advice that follows it."""
    return first_line(error).split(". ")[0].split("; ")[0].rstrip(".")


# -- what goes wrong -----------------------------------------------------------------------------------------------


class _Repeatable(nn.Module):
    """The network with the same random numbers and buffers in every call, so that engines can be compared."""

    def __init__(self, model: Model):
        super().__init__()
        self.model, self.inside = model, nn.ModuleList(modules_of(model))

    def forward(self, x: Tensor) -> Tensor:
        seed_generators(x.device, 0)
        with _copied_buffers(self):
            return self.model(x)


@contextlib.contextmanager
def _copied_buffers(model: nn.Module) -> Iterator[None]:
    """Copies in the buffers' places; writing the old values back would disturb the graph that holds the buffers."""
    saved = [(m._buffers, name, b) for m in model.modules() for name, b in m._buffers.items() if b is not None]
    copies = {id(buffer): buffer.clone() for _, _, buffer in saved}
    try:
        for owner, name, buffer in saved:
            owner[name] = copies[id(buffer)]
        yield
    finally:
        for owner, name, buffer in saved:
            owner[name] = buffer


class _Measured:
    """The errors of the batched idiom and of the isolated network, as far as they can be measured."""

    def __init__(self, model: Model, x: Tensor, notes: list[str], requests: dict[str, list[Operator]]):
        self.x, self.notes, self.requests = x, notes, requests
        self.idiom: dict[str, Error] = {}
        self.isolated: Error | None = None
        self.exact: dict[str, Tensor] = {}
        # Not all at once, for the sake of the memory that a large network takes.
        self.reference: Engine = PerSampleAD(chunk=max(1, 2**12 // len(x)))
        repeatable = _Repeatable(model)
        for name, operators in requests.items():
            try:
                self.exact[name] = self._per_sample(repeatable, operators)
                ours = torch.stack(evaluate(repeatable, x, operators, AD(coupled="ignore")), dim=-1)
            except (DudxError, RuntimeError) as error:
                notes.append(f"The error of the {name} cannot be measured: {_reason(error)}.")
                continue
            found = _error(ours, self.exact[name])
            if found is None:
                notes.append(f"The error of the {name} cannot be measured: no true value is finite.")
            else:
                self.idiom[name] = found

    def _per_sample(self, model: Model, operators: list[Operator]) -> Tensor:
        try:
            values = evaluate(model, self.x, operators, self.reference)
        except UnsupportedError:  # by torch.func; the loop takes any model
            self.reference = PerSampleAD(method="loop")
            values = evaluate(model, self.x, operators, self.reference)
        return torch.stack(values, dim=-1)

    def isolate(self, model: Model, random: bool) -> bool:
        """Whether isolate takes the network; its error is measured where two passes draw the same numbers."""
        try:
            isolated = isolate(model, self.x, update_statistics=False)
            for name in () if random else self.idiom:
                ours = torch.stack(evaluate(isolated, self.x, self.requests[name], AD()), dim=-1)
                error = _error(ours, self.exact[name])
                if error and (self.isolated is None or error.largest > self.isolated.largest):
                    self.isolated = error
        except (DudxError, RuntimeError, TypeError) as error:  # a type error where a rule lacks an argument
            self.notes.append(f"dudx.isolate refuses: {_reason(error)}.")
            return False
        return True


def _error(ours: Tensor, exact: Tensor) -> Error | None:
    """Of values (n, m, k), as vectors of k; each output has its own scale."""
    ours, exact = ours.detach(), exact.detach()
    size, wrong = exact.norm(dim=-1), (ours - exact).norm(dim=-1)
    known = size.isfinite()
    if not bool(known.any()):
        return None
    scale = (size.masked_fill(~known, 0).square().sum(0) / known.sum(0)).sqrt().expand_as(wrong)
    relative = torch.where(wrong == 0, 0, wrong / scale)[known].nan_to_num(nan=math.inf, posinf=math.inf)
    return Error(float(relative.median()), float(relative.amax()))


# -- what to use ---------------------------------------------------------------------------------------------------


def _for_independent(model: Model, rows: Tensor, notes: list[str]) -> Iterator[str]:
    try:
        evaluate(model, rows, Laplacian(), Taylor(coupled="ignore"))
    except (DudxError, RuntimeError) as error:
        notes.append(f"dudx.Taylor() refuses: {_reason(error)}.")
        yield "Any engine but dudx.Taylor(); dudx.AD() is exact."
    else:
        yield "Any engine; dudx.Taylor() is exact."


def _for_coupled(model: Model, x: Tensor, measured: _Measured, isolates: bool | None) -> Iterator[str]:
    loop = "method='loop'" if getattr(measured.reference, "method", "") == "loop" else ""
    per_sample = f"dudx.PerSampleAD({loop}) as the engine: exact, but its work grows with the square of the batch."
    if isolates:
        error = measured.isolated
        yield "dudx.isolate(model, x) in place of the model, with any engine" + (
            f": largest error here {_percent(error.largest)}." if error else "."
        )
        if error is None or error.largest > math.sqrt(torch.finfo(x.dtype).eps):
            yield per_sample
    else:
        yield per_sample
    if _mode(model) in ("training", "mixed"):
        with _evaluating(model):
            still_mixed = coupled(model, x)
        yield (
            "In evaluation mode, model.eval(), they influence each other as well."
            if still_mixed
            else "model.eval(), if the function with running statistics is meant: independent, but another function."
        )


@contextlib.contextmanager
def _evaluating(model: Model) -> Iterator[None]:
    """Every module in evaluation mode, without calling `eval`, which a class may have made do more than that."""
    modules = modules_of(model)
    modes = [module.training for module in modules]
    try:
        for module in modules:
            module.training = False
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
