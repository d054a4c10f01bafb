"""Explain which modules of a network make derivatives wrong, by how much, and what to use instead."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dudx.backend import tensor_checks
from dudx.coupling.mixing_detection import ROWS, MixingModule, mixing_modules, relative_change
from dudx.diagnose.hazards import Hazard, hazards
from dudx.diagnose.measured_errors import ErrorMeasurement, RelativeError, reason
from dudx.engines.request import request_of
from dudx.engines.taylor.taylor_engine import Taylor
from dudx.errors import DudxError, InputError, SlowRuleWarning, percent, whole_number
from dudx.network import model_checks
from dudx.network.coupling_check import coupled
from dudx.network.model_checks import Model
from dudx.network.modules import modules_of, type_name
from dudx.network.probe_rows import difference, perturbations, probe_batch, rounding_tolerance
from dudx.network.random_numbers import PrivateRandomNumbers
from dudx.network.sandbox import output_of, sandboxed_if_random, without_graph
from dudx.operators import Laplacian

# Maximal number of rows through the network, times derivatives, for a quick report.
_BUDGET = 2**16
Mode = Literal["training", "evaluation", "mixed", "function"]


@dataclass(frozen=True, repr=False)
class Explanation:
    """The result of `explain`; its `repr` is the report.

    Example:
        >>> found = dudx.explain(torch.nn.Linear(2, 1), torch.rand(32, 2))
        >>> isinstance(found, dudx.diagnose.Explanation), found.coupled
        (True, False)
    """

    network: str
    #: "training", "evaluation", "mixed" if modules differ, or "function" if there are none.
    mode: Mode
    #: The shape of the points.
    batch: tuple[int, int]
    dtype: torch.dtype
    coupled: bool
    #: As `MixingModule.change`, for the network's output.
    change: float
    #: The innermost modules that mix samples, in order of execution.
    modules: tuple[MixingModule, ...]
    #: Number of points at which errors are measured, as a batch of their own; 0 if they are not measured.
    points: int
    #: Error of the batched idiom, AD(coupled="ignore"), against PerSampleAD(); None if `notes` say why not.
    gradient: RelativeError | None
    laplacian: RelativeError | None
    #: Method of dudx.isolate(model, x); None if samples are independent.
    method: str | None
    #: Error of AD() on dudx.isolate(model, x), the larger of gradient and Laplacian.
    isolated: RelativeError | None
    #: Remedies, best first.
    remedies: tuple[str, ...]
    notes: tuple[str, ...]
    #: Other hazards for derivatives.
    hazards: tuple[Hazard, ...] = ()

    def __repr__(self) -> str:
        mode = {"function": "", "mixed": ", partly in training mode"}.get(self.mode, f" in {self.mode} mode")
        verdict = "influence each other" if self.coupled else "are independent"
        dtype = str(self.dtype).removeprefix("torch.")
        lines = [f"{self.network}{mode}: samples {verdict} ({self.batch[0]} points, {self.batch[1]} inputs, {dtype})."]
        if self.coupled:
            lines += ["", "Where they mix, and how much rows that stay change when others move:"]
            rows = [(m.name or "(its own code)", m.type, percent(m.change)) for m in self.modules]
            lines += _table(("module", "type", "change"), [*rows, ("(output)", "", percent(self.change))], 2)
        of = " in a batch of their own" if 0 < self.points < self.batch[0] else ""
        lines += ["", f'What the batched idiom, AD(coupled="ignore"), gets wrong at {self.points} points{of}:']
        errors = (("gradient", self.gradient), ("Laplacian", self.laplacian))
        rows = [(name, percent(e.median), percent(e.largest)) for name, e in errors if e is not None]
        lines += _table(("error", "median", "largest"), rows, 1) if rows else ["  not measured"]
        if any(e is not None and math.isinf(e.largest) for _, e in errors):
            lines.append("  An error is infinite where the true derivative is zero and the computed one is not.")
        if self.hazards:
            lines += ["", "What else makes derivatives wrong:", *(f"  {hazard}" for hazard in self.hazards)]
        lines += ["", "What to use:", *(f"  {line}" for line in self.remedies)]
        if self.notes:
            lines += ["", "Notes:", *(f"  {line}" for line in self.notes)]
        return "\n".join(lines)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], words: int) -> list[str]:
    """Align columns: the first `words` to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    sides = ["<"] * words + [">"] * (len(head) - words)
    return [
        "  " + "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        for row in (head, *rows)
    ]


def explain(model: Model, x: Tensor, points: int = 128) -> Explanation:
    """Find what makes derivatives of a network wrong: modules that mix the samples of a batch, and other hazards.

    `print(explain(model, x))` prints the report. Buffers, modes, hooks and gradients of the model and the random state
    are left unchanged.

    Args:
        model: the network, in the mode in question, or any function.
        x: a batch as it is used in training, (B, d).
        points: number of points at which errors are measured, as a batch of their own; fewer are used in many
            dimensions to limit the time.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
        >>> found = dudx.explain(model, torch.rand(32, 2))
        >>> found.coupled, [module.type for module in found.modules]
        (True, ['BatchNorm1d'])
    """
    x = tensor_checks.points(x).detach()
    model = model_checks.model(getattr(model, "_orig_mod", model), x)  # a compiled module cannot be monitored
    if x.is_meta:
        raise InputError("The meta device holds no values, so nothing can be measured; use real points.")
    points = whole_number(points, "points", at_least=2)
    rows, still = probe_batch(model, x, ROWS, ROWS)
    with without_graph(model, rows), sandboxed_if_random(model, rows) as numbers:
        return _examined(model, x, points, rows, still, numbers)


def _examined(
    model: Model, x: Tensor, points: int, rows: Tensor, still: Tensor, numbers: PrivateRandomNumbers
) -> Explanation:
    notes: list[str] = []
    mixed = coupled(model, x)
    change = max(relative_change(output_of(model, moved), still, block) for moved, block in perturbations(rows))
    modules = mixing_modules(model, rows)
    if mixed and not modules:
        modules = [MixingModule("", type_name(model), change)]
    if modules and not mixed:
        inside = ", ".join(f"{m.name or 'its own code'} ({m.type})" for m in modules)
        notes.append(f"Samples mix in {inside}, but the output does not show it: a gate that is closed, perhaps.")
    random = not bool((difference(output_of(model, rows, seed=1), still) <= rounding_tolerance(still)).all())
    if random:
        notes.append("The network draws random numbers; the figures are for one draw.")
    batch = _batch(x, rows, points)
    if batch is None:
        notes.append(f"The network takes no fewer than all {len(x)} points: too many to measure errors at.")
    measured = ErrorMeasurement(model, x if batch is None else batch, notes, numbers, wanted=batch is not None)
    if mixed:
        measured.isolate(random)
    return Explanation(
        network=type_name(model),
        mode=_mode(model),
        batch=(x.shape[0], x.shape[1]),
        dtype=x.dtype,
        coupled=mixed,
        change=change if mixed else 0.0,
        modules=tuple(modules) if mixed else (),
        points=0 if batch is None else len(batch),
        gradient=measured.idiom.get("gradient"),
        laplacian=measured.idiom.get("Laplacian"),
        method=measured.method,
        isolated=measured.isolated,
        remedies=tuple(_for_coupled(model, x, measured) if mixed else _for_independent(model, rows, notes)),
        notes=tuple(notes),
        hazards=tuple(hazards(model, rows, random, mixed)),
    )


def _mode(model: Model) -> Mode:
    training = {module.training for module in modules_of(model)}
    if len(training) == 1:
        return "training" if True in training else "evaluation"
    return "mixed" if training else "function"


def _batch(x: Tensor, rows: Tensor, points: int) -> Tensor | None:
    """Choose points for the per-sample reference, whose work grows with the square of their number."""
    if len(x) == 1:
        return rows
    count = min(len(x), points, max(ROWS, math.isqrt(_BUDGET // (2 + x.shape[1]))))
    if len(rows) != ROWS:  # the network accepts no other number
        return x if len(x) <= 4 * count else None
    return x[torch.linspace(0, len(x) - 1, count, device=x.device).round().long()]


# -- what to use ---------------------------------------------------------------------------------------------------


def _for_independent(model: Model, rows: Tensor, notes: list[str]) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SlowRuleWarning)
            Taylor().derivatives(model, rows, request_of(Laplacian(), rows))
    except (DudxError, RuntimeError) as error:
        notes.append(f"dudx.Taylor() refuses: {reason(error)}.")
        yield "Any engine but dudx.Taylor(); dudx.AD() is exact."
    else:
        yield "Any engine; dudx.Taylor() is exact."


def _for_coupled(model: Model, x: Tensor, measured: ErrorMeasurement) -> Iterator[str]:
    error = measured.isolated
    yield f"dudx.isolate(model, x) in place of the model, with any engine ({measured.method})" + (
        f": largest error here {percent(error.largest)}." if error else "."
    )
    if measured.approximately is not None:
        yield (
            "dudx.isolate(model, x, approximate=True), all samples in one pass: leaves out "
            f"{percent(measured.approximately)} of what moving a sample does in such a batch, less in a larger one."
        )
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
    """Set every module to evaluation mode, without calling `eval`, which a class may override."""
    modules = modules_of(model)
    modes = [module.training for module in modules]
    try:
        for module in modules:
            module.training = False
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
