"""Which engine is fastest for this network, these points and these operators: measured, not guessed."""

from __future__ import annotations

import contextlib
import statistics
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dudx import checks
from dudx.border import evaluate, prepared
from dudx.checks import Model
from dudx.compile.graphs import Compiled, shapes
from dudx.coupling.isolation import Isolated, isolate
from dudx.engines.autodiff import AD
from dudx.engines.base import Engine
from dudx.engines.difference.engine import FD
from dudx.engines.per_sample import PerSampleAD
from dudx.engines.taylor.engine import Taylor
from dudx.errors import CalibrationWarning, DudxError, UnsupportedError
from dudx.network.detect import coupled
from dudx.operators import Directional, Operator, fitting
from dudx.streaming import suggested_chunk


@dataclass(frozen=True)
class Candidate:
    """An engine's time for one training step and its error, or why it cannot be used."""

    name: str
    engine: Engine
    #: Seconds for the operators and the backward pass of their mean square; NaN where the engine failed.
    seconds: float
    #: The largest difference from the exact derivatives, relative to their largest value; NaN where nothing is exact.
    error: float
    note: str = ""
    #: Whether the step is one compiled graph, `Residual(..., compile=True)`.
    compiled: bool = False


def recommend(
    model: Model, x: Tensor, operators: Sequence[Operator], repeats: int = 5, show: bool = True, compile: bool = False
) -> list[Candidate]:
    """Time a training step with each engine on this network and batch; the fastest comes first.

    Differences come after an exact engine unless they are faster by a quarter, as their error is the price.

    Where slices of the batch are better than the whole (`suggested_chunk`), a step goes slice by slice.

    Args:
        model: the network, in the mode it is trained in.
        x: a batch as it is used in training.
        operators: what the residual asks for; `residual.operators(x)` knows.
        repeats: interleaved repetitions, of which the median counts.
        show: print the table.
        compile: time compiled graphs too, which takes some seconds for each to be made.
    """
    x = checks.points(x)
    operators = fitting(operators, x)
    mixed = coupled(model, x)
    target: Model = isolate(model, x, update_statistics=False) if mixed else model
    exact = _exact(target, x, operators)
    engines: list[tuple[str, Engine]] = [("AD", AD()), ("Taylor", Taylor())]
    done: list[Candidate] = []
    try:
        engines.append(("FD", _calibrated(target, x if mixed else x[:1024], operators)))
    except DudxError as error:
        done.append(Candidate("FD", FD(), float("nan"), float("nan"), _first_sentence(error)))
    running: list[tuple[Candidate, _Step]] = []
    for name, engine in engines:
        for compiled in (False, True) if compile and not mixed and not isinstance(engine, AD) else (False,):
            step = _Step(target, x, operators, engine, compiled, sliced=not mixed)
            candidate = Candidate(name + " compiled" * compiled, engine, float("nan"), float("nan"), compiled=compiled)
            try:
                values = evaluate(target, x, operators, engine)
                step()  # what is compiled is compiled here
            except (DudxError, RuntimeError) as error:  # of torch's kinds where the gradient has no gradient
                done.append(replace(candidate, note=_first_sentence(error)))
                break
            off = float("nan")
            if exact is not None:
                off = max(_difference(ours.detach(), true) for ours, true in zip(values, exact, strict=True))
            note = "on dudx.isolate(model, x)" if mixed else step.note
            running.append((replace(candidate, error=off, note=note), step))
    times: list[list[float]] = [[] for _ in running]
    for _ in range(repeats):
        for (_, step), seconds in zip(running, times, strict=True):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
    measured = [replace(c, seconds=statistics.median(t)) for (c, _), t in zip(running, times, strict=True)]
    order = sorted(measured, key=lambda c: c.seconds * (1.25 if isinstance(c.engine, FD) else 1.0)) + done
    if mixed:
        order.append(Candidate("PerSampleAD", PerSampleAD(), float("nan"), 0.0, "the reference; not timed, slow"))
    if show:
        _print(order)
    return order


def _exact(model: Model, x: Tensor, operators: Sequence[Operator]) -> tuple[Tensor, ...] | None:
    """What errors are measured against, unless there is no engine that knows it."""
    for engine in (AD(), Taylor()):
        with contextlib.suppress(UnsupportedError):
            return evaluate(model, x, operators, engine)
    return None


def _calibrated(model: Model, x: Tensor, operators: Sequence[Operator]) -> FD:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        try:
            return FD().calibrated(model, x, operators)
        except UnsupportedError:  # by automatic differentiation
            return FD().calibrated(model, x, operators, reference="differences")


class _Step:
    """One evaluation and backward pass of the whole batch, which leaves the parameters' gradients as they were."""

    def __init__(
        self, model: Model, x: Tensor, operators: Sequence[Operator], engine: Engine, compiled: bool, sliced: bool
    ):
        self.model, self.operators, self.engine = model, operators, engine
        self.compiled = Compiled() if compiled else None
        size = (
            suggested_chunk(model, x.device, engine.rows(x, operators))
            if sliced and not _vectors(operators)
            else len(x)
        )
        self.slices = x.split(size)
        self.parameters = _parameters(model)

    def __call__(self) -> None:
        for part in self.slices:
            loss = self._loss(part)
            if self.parameters and loss.requires_grad:
                torch.autograd.grad(loss, self.parameters, allow_unused=True)

    def _loss(self, x: Tensor) -> Tensor:
        plan = None if self.compiled is None else prepared(self.model, x, self.operators, self.engine)
        if plan is None:
            return _mean_squares(evaluate(self.model, x, self.operators, self.engine))
        assert self.compiled is not None

        def run(model: Model, x: Tensor, tensors: tuple[Tensor, ...]) -> Tensor:
            return _mean_squares(plan.run(model, x, tensors))

        return self.compiled((plan.key, shapes(x, *plan.tensors)), run, self.model, x, plan.tensors)

    @property
    def note(self) -> str:
        """What a reader of the table should know of it."""
        slices = f"slices of {len(self.slices[0])}" if len(self.slices) > 1 else ""
        compiled = f"compiled in {self.compiled.seconds:.0f} s" if self.compiled is not None else ""
        return ", ".join(filter(None, (slices, compiled)))


def _mean_squares(values: Sequence[Tensor]) -> Tensor:
    return torch.stack([value.square().mean() for value in values]).sum()


def _vectors(operators: Sequence[Operator]) -> bool:
    """Whether directions are given for each point, which would have to be cut with the points."""
    return any(isinstance(term, Directional) for operator in operators for term in operator.terms)


def _parameters(model: Model) -> list[Tensor]:
    inner = model.model if isinstance(model, Isolated) else model
    return [p for p in inner.parameters() if p.requires_grad] if isinstance(inner, torch.nn.Module) else []


def _difference(ours: Tensor, true: Tensor) -> float:
    scale = true.abs().amax().clamp(min=torch.finfo(true.dtype).tiny)
    return float(((ours - true.detach()).abs().amax() / scale).detach())


def _first_sentence(error: Exception) -> str:
    return str(error).split(". ")[0].rstrip(".")


def _print(candidates: Sequence[Candidate]) -> None:
    print(f"{'engine':16} {'ms a step':>10} {'error':>9}   note")
    for c in candidates:
        milliseconds = f"{1e3 * c.seconds:.2f}" if c.seconds == c.seconds else "-"
        error = f"{c.error:.1e}" if c.error == c.error else "-"
        print(f"{c.name:16} {milliseconds:>10} {error:>9}   {c.note}")
