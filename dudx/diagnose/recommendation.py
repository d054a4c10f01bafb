"""Time training steps to find the fastest engine for a network, points and operators."""

from __future__ import annotations

import contextlib
import statistics
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

import torch
from torch import Tensor

from dudx.backend import tensor_checks
from dudx.coupling.isolation import isolate
from dudx.engines import engines
from dudx.engines.interface import Engine, calibrated, rows_per_point
from dudx.engines.per_sample import PerSampleAD
from dudx.engines.request import Request, request_of
from dudx.errors import CalibrationWarning, DudxError, UnsupportedError
from dudx.evaluate import derivatives, prepared, suggested_chunk
from dudx.network.batch_bound import samples_of, unbound
from dudx.network.compiled_graph import CompiledGraphs
from dudx.network.compiled_plan import run_compiled
from dudx.network.coupling_check import coupled
from dudx.network.model_checks import Model
from dudx.operators import Operator

#: Factor by which an approximate engine must be faster than an exact one to be recommended first.
_PRICE_OF_ERROR = 1.25
_CALIBRATED_ON = 1024
#: Engines that are not compared: variants of FD, estimates, a slow reference, those made for certain points.
_NOT_COMPARED = frozenset({"can", "efd", "per-sample", "sfd", "stde"})


@dataclass(frozen=True)
class Candidate:
    """Time of an engine for one training step and its error, or the reason why it cannot be used.

    >>> dudx.diagnose.Candidate("AD", dudx.AD(), seconds=2e-3, error=0.0)
    AD: 2.00 ms a step, error 0.0e+00
    """

    name: str
    engine: Engine
    #: Seconds for the operators and the backward pass of their mean square; NaN if the engine failed.
    seconds: float = float("nan")
    #: Largest difference from the exact derivatives, relative to their largest value; NaN without an exact engine.
    error: float = float("nan")
    note: str = ""
    #: True if the step is one compiled graph, `Residual(..., compile=True)`.
    compiled: bool = False

    def __repr__(self) -> str:
        _, milliseconds, error, note = self.cells
        return f"{self.name}: {milliseconds} ms a step, error {error}" + (f"; {note}" if note else "")

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Row of the table, with dashes for unknown values."""
        milliseconds = f"{1e3 * self.seconds:.2f}" if self.seconds == self.seconds else "-"
        return self.name, milliseconds, f"{self.error:.1e}" if self.error == self.error else "-", self.note


@dataclass(frozen=True, repr=False)
class Recommendation(Sequence[Candidate]):
    """Engines in recommended order; its `repr` is a table.

    >>> from dudx.diagnose import Candidate, Recommendation
    >>> Recommendation((Candidate("AD", dudx.AD(), 2e-3, 0.0), Candidate("FD", dudx.FD(0.1))))
    engine            ms a step     error   note
    AD                     2.00   0.0e+00
    FD                        -         -
    """

    candidates: tuple[Candidate, ...]

    @overload
    def __getitem__(self, index: int) -> Candidate: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Candidate, ...]: ...

    def __getitem__(self, index: int | slice) -> Candidate | tuple[Candidate, ...]:
        return self.candidates[index]

    def __len__(self) -> int:
        return len(self.candidates)

    def __repr__(self) -> str:
        rows = [("engine", "ms a step", "error", "note"), *(candidate.cells for candidate in self.candidates)]
        return "\n".join(f"{name:16} {time:>10} {error:>9}   {note}".rstrip() for name, time, error, note in rows)


def recommend(
    model: Model,
    x: Tensor,
    operators: Sequence[Operator],
    repeats: int = 5,
    compile: bool = False,
) -> Recommendation:
    """Time a training step with each engine on a network and batch; the fastest comes first.

    Differences come after an exact engine unless they are faster by a quarter, since they have an error.

    If chunks of the batch are faster than the whole (`suggested_chunk`), a step is evaluated in chunks.

    Args:
        model: the network, in the mode it is trained in.
        x: a batch as it is used in training.
        operators: the operators of the residual, `residual.operators(x)`.
        repeats: number of interleaved repetitions; the median is reported.
        compile: also time compiled graphs, each of which takes some seconds to compile.

    Returns:
        A sequence of candidates; printed it is a table.

    >>> model, x = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)), torch.rand(64, 2)
    >>> found = dudx.recommend(model, x, [dudx.Laplacian()], repeats=1)
    >>> sorted(candidate.name for candidate in found)
    ['AD', 'FD', 'Taylor']
    >>> derivatives = dudx.evaluate(model, x, [dudx.Laplacian()], found[0].engine)
    """
    x = tensor_checks.points(x)
    request = request_of(operators, x)
    mixed = coupled(model, x)
    whole = mixed or samples_of(model) > 1  # such a model accepts no part of its samples
    target: Model = isolate(model, x, update_statistics=False) if mixed else model
    candidates = [kind() for kind in compared_engines()]
    exact = _exact(target, x, request, [engine for engine in candidates if not engine.approximate])
    failed: list[Candidate] = []
    running: list[tuple[Candidate, _Step]] = []
    for engine in candidates:
        candidate = Candidate(type(engine).__name__, engine)
        try:
            some = slice(None) if whole else slice(_CALIBRATED_ON)
            engine = _calibrated(engine, target, x[some], request.at_rows(some))
            candidate = replace(candidate, engine=engine)
            values = derivatives(target, x, request, engine)
            off = float("nan") if exact is None else max(map(_difference, values, exact))
            compiles = compile and not mixed and prepared(target, x, request, engine) is not None
            for compiled in (False, True) if compiles else (False,):
                name = type(engine).__name__ + " compiled" * compiled
                note = "on dudx.isolate(model, x)" if mixed else ""
                candidate = replace(candidate, name=name, error=off, note=note, compiled=compiled)
                step = _Step(target, x, request, engine, compiled, sliced=not whole)
                step()  # compiles, and warms up
                running.append((replace(candidate, note=candidate.note or step.note), step))
        except (DudxError, RuntimeError) as error:  # RuntimeError if torch cannot differentiate a gradient
            failed.append(replace(candidate, error=float("nan"), note=_first_sentence(error)))
    times: list[list[float]] = [[] for _ in running]
    for _ in range(repeats):
        for (_, step), seconds in zip(running, times, strict=True):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
    measured = [replace(c, seconds=statistics.median(t)) for (c, _), t in zip(running, times, strict=True)]
    order = sorted(measured, key=lambda c: c.seconds * (_PRICE_OF_ERROR if c.engine.approximate else 1.0)) + failed
    if mixed:
        order.append(Candidate("PerSampleAD", PerSampleAD(), error=0.0, note="the reference; not timed, slow"))
    return Recommendation(tuple(order))


def compared_engines() -> list[type[Engine]]:
    """The engines that are compared: AD, FD and Taylor, and those that a user has added to the folder."""
    return [kind for name, kind in engines().items() if name not in _NOT_COMPARED]


def _exact(model: Model, x: Tensor, request: Request, engines: Sequence[Engine]) -> Sequence[Tensor] | None:
    """Exact derivatives, by the first engine that has them; None if there is none."""
    for engine in engines:
        with contextlib.suppress(UnsupportedError):
            return derivatives(model, x, request, engine)
    return None


def _calibrated(engine: Engine, model: Model, x: Tensor, request: Request) -> Engine:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        try:
            return calibrated(engine, model, x, request, {})
        except UnsupportedError:  # by automatic differentiation
            return calibrated(engine, model, x, request, {"reference": "differences"})


class _Step:
    """One evaluation and backward pass of the whole batch, without changing the parameters' `.grad`."""

    def __init__(self, model: Model, x: Tensor, request: Request, engine: Engine, compiled: bool, sliced: bool):
        self.model, self.engine = model, engine
        self.compiled = CompiledGraphs() if compiled else None
        size = suggested_chunk(model, x.device, rows_per_point(engine, x, request)) if sliced else len(x)
        #: The points of each slice and the request there.
        self.slices = [
            (part, request.at_rows(slice(number * size, (number + 1) * size)))
            for number, part in enumerate(x.split(size))
        ]
        self.parameters = _parameters(model)

    def __call__(self) -> None:
        for part, request in self.slices:
            loss = self._loss(part, request)
            if self.parameters and loss.requires_grad:
                torch.autograd.grad(loss, self.parameters, allow_unused=True)

    def _loss(self, x: Tensor, request: Request) -> Tensor:
        plan = None if self.compiled is None else prepared(self.model, x, request, self.engine)
        if plan is None:
            return _mean_squares(derivatives(self.model, x, request, self.engine))
        assert self.compiled is not None

        return run_compiled(self.compiled, plan, self.model, x, _end)

    @property
    def note(self) -> str:
        """The size of the slices and the time of compilation, for the table."""
        slices = f"slices of {len(self.slices[0][0])}" if len(self.slices) > 1 else ""
        compiled = f"compiled in {self.compiled.seconds:.0f} s" if self.compiled is not None else ""
        return ", ".join(filter(None, (slices, compiled)))


def _end(_: None, values: Sequence[Tensor], x: Tensor, given: tuple[Tensor, ...]) -> Tensor:
    return _mean_squares(values)


def _mean_squares(values: Sequence[Tensor]) -> Tensor:
    return torch.stack([value.square().mean() for value in values]).sum()


def _parameters(model: Model) -> list[Tensor]:
    inner = unbound(model)[0]
    return [p for p in inner.parameters() if p.requires_grad] if isinstance(inner, torch.nn.Module) else []


def _difference(ours: Tensor, true: Tensor) -> float:
    ours, true = ours.detach(), true.detach()
    return float((ours - true).abs().amax() / true.abs().amax().clamp(min=torch.finfo(true.dtype).tiny))


def _first_sentence(error: Exception) -> str:
    return str(error).split(". ")[0].rstrip(".")
