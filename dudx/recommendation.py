"""Which engine is fastest for this network, these points and these operators: measured, not guessed."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dudx import checks
from dudx.checks import Model
from dudx.coupling import coupled
from dudx.engines.autodiff import AD
from dudx.engines.base import Engine, evaluate
from dudx.engines.difference import FD
from dudx.engines.per_sample import PerSampleAD
from dudx.engines.taylor import Taylor
from dudx.errors import CalibrationWarning, DudxError
from dudx.isolation import isolate
from dudx.operators import Operator


@dataclass(frozen=True)
class Candidate:
    """An engine's time for one training step and its error, or why it cannot be used."""

    name: str
    engine: Engine
    #: Seconds for the operators and the backward pass of their mean square; NaN where the engine failed.
    seconds: float
    #: The largest difference from the exact derivatives, relative to their largest value.
    error: float
    note: str = ""


def recommend(
    model: Model, x: Tensor, operators: Sequence[Operator], repeats: int = 5, show: bool = True
) -> list[Candidate]:
    """Time a training step with each engine on this network and batch; the fastest exact one comes first.

    Args:
        model: the network, in the mode it is trained in.
        x: a batch as it is used in training.
        operators: what the residual asks for; `residual.operators(x)` knows.
        repeats: interleaved repetitions, of which the median counts.
        show: print the table.
    """
    x = checks.points(x)
    operators = checks.operators(operators, x)
    mixed = coupled(model, x)
    target: Model = isolate(model, x, update_statistics=False) if mixed else model
    exact = evaluate(target, x, operators, AD())
    candidates: list[tuple[str, Engine]] = [("AD", AD()), ("Taylor", Taylor())]
    found = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            points = x[:1024] if not mixed else x
            candidates.append(("FD", FD().calibrated(target, points, operators)))
    except DudxError as error:
        found.append(Candidate("FD", FD(), float("nan"), float("nan"), _first_sentence(error)))
    times: dict[str, list[float]] = {name: [] for name, _ in candidates}
    errors: dict[str, float] = {}
    for _ in range(repeats):
        for name, engine in candidates:
            if name not in times:
                continue
            try:
                start = time.perf_counter()
                values = _step(target, x, operators, engine)
                times[name].append(time.perf_counter() - start)
            except DudxError as error:
                found.append(Candidate(name, engine, float("nan"), float("nan"), _first_sentence(error)))
                del times[name]
                continue
            errors[name] = max(_difference(ours, true) for ours, true in zip(values, exact, strict=True))
    note = "on dudx.isolate(model, x)" if mixed else ""
    measured = [
        Candidate(name, engine, statistics.median(times[name]), errors[name], note)
        for name, engine in candidates
        if name in times
    ]
    # Differences come after exact engines unless they are clearly faster: their error is the price.
    order = sorted(measured, key=lambda c: c.seconds * (1.25 if isinstance(c.engine, FD) else 1.0)) + found
    if mixed:
        order.append(Candidate("PerSampleAD", PerSampleAD(), float("nan"), 0.0, "the reference; not timed, slow"))
    if show:
        _print(order)
    return order


def _step(model: Model, x: Tensor, operators: Sequence[Operator], engine: Engine) -> list[Tensor]:
    """One evaluation and backward pass, which leaves the parameters' gradients as they were."""
    values = evaluate(model, x, operators, engine)
    loss = torch.stack([value.square().mean() for value in values]).sum()
    parameters = _parameters(model)
    if parameters and loss.requires_grad:
        torch.autograd.grad(loss, parameters, allow_unused=True)
    return [value.detach() for value in values]


def _parameters(model: Model) -> list[Tensor]:
    inner = getattr(model, "model", model)
    return [p for p in inner.parameters() if p.requires_grad] if isinstance(inner, torch.nn.Module) else []


def _difference(ours: Tensor, true: Tensor) -> float:
    scale = true.abs().amax().clamp(min=torch.finfo(true.dtype).tiny)
    return float(((ours - true.detach()).abs().amax() / scale).detach())


def _first_sentence(error: Exception) -> str:
    return str(error).split(". ")[0].rstrip(".")


def _print(candidates: Sequence[Candidate]) -> None:
    print(f"{'engine':12} {'ms a step':>10} {'error':>9}   note")
    for c in candidates:
        milliseconds = f"{1e3 * c.seconds:.2f}" if c.seconds == c.seconds else "-"
        error = f"{c.error:.1e}" if c.error == c.error else "-"
        print(f"{c.name:12} {milliseconds:>10} {error:>9}   {c.note}")
