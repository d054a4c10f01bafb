"""Hazards other than coupling that make a network's derivatives wrong: engines, error and remedy."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from dudx.diagnose.measured_errors import nonzero
from dudx.engines.autodiff import AD, reverse_derivatives
from dudx.engines.autograd_graph import fused_kernel
from dudx.engines.crosscheck import Trial
from dudx.engines.difference.shifted_batches import prepare
from dudx.engines.interface import Engine
from dudx.engines.per_sample import PerSampleAD
from dudx.engines.request import request_of
from dudx.engines.taylor.taylor_engine import Taylor
from dudx.errors import DudxError, UnsupportedError, percent
from dudx.network.function_monitor import FunctionMonitor, describe_kink
from dudx.network.model_checks import Model
from dudx.network.modules import modules_of
from dudx.network.random_numbers import KernelMonitor
from dudx.network.sandbox import output_of
from dudx.operators import D, Laplacian, Operator

#: Step of the reference in double precision, of fourth order: about eight digits.
_STEP = 1e-3


@dataclass(frozen=True)
class Hazard:
    """A property of a network that makes derivatives wrong.

    >>> network = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    >>> [hazard.kind for hazard in dudx.explain(network, torch.rand(16, 2)).hazards]
    ['kinks']
    """

    kind: Literal["graph", "fused", "kinks", "random", "coarse"]
    what: str
    #: The affected engines, and the lowest affected order of derivatives.
    engines: str
    order: int
    #: The largest error here, relative to the largest true value: infinite if that is zero, None if it is unknown.
    error: float | None
    remedy: str

    def __str__(self) -> str:
        error = "" if self.error is None else f"; off by {percent(self.error)} here"
        if self.error is not None and math.isinf(self.error):
            error = "; the true derivative is zero here, and the computed one is not"
        return f"{self.what} ({self.engines}, order {self.order} and above{error}): {self.remedy}"


def hazards(model: Model, rows: Tensor, random: bool, coupled: bool) -> Iterator[Hazard]:
    """Find the hazards of a network at a few rows."""
    yield from _left_graph(model, rows, coupled)
    yield from _fused(model, rows)
    with KernelMonitor() as kernels, FunctionMonitor(len(rows)) as observed:
        output_of(model, rows)
    if observed.kink is not None:
        remedy = "use a smooth activation, such as nn.Tanh, nn.SiLU or nn.GELU."
        yield Hazard("kinks", f"Kinks in {describe_kink(model, observed.kink)}", "all engines", 2, None, remedy)
    if random:
        remedy = "find steps after model.eval(); differences then see the same numbers at all rows of a point."
        yield Hazard("random", "Random numbers, as of dropout", "differences", 1, None, remedy)
    coarser = kernels.coarser_than(rows.dtype)
    if coarser is not None:
        error = _error(model, rows, AD(coupled="ignore"), [D(axis) for axis in range(rows.shape[1])])
        what = f"A coarser format than the points' inside ({str(coarser).removeprefix('torch.')})"
        remedy = "calibrate differences under the same autocast, dudx.FD().calibrated(model, x, operators)."
        yield Hazard("coarse", what, "all engines", 1, error, remedy)


def _left_graph(model: Model, rows: Tensor, coupled: bool) -> Iterator[Hazard]:
    """Find engines whose derivatives differ from the change of the output, even if intended."""
    engines: tuple[Engine, ...] = (PerSampleAD(),) if coupled else (AD(), Taylor())
    wrong = []
    for engine in engines:
        with contextlib.suppress(DudxError, RuntimeError):  # an engine that refuses the network raises its own error
            order = Trial(model, rows, engine, range(rows.shape[1])).contradicted(2)
            if order is not None:
                wrong.append((order, type(engine).__name__))
    if wrong:
        order = min(order for order, _ in wrong)
        operators = [D(axis) for axis in range(rows.shape[1])] if order == 1 else [Laplacian()]
        error = None if coupled else _error(model, rows, AD(coupled="ignore"), operators)
        what = "The network leaves the graph, or has a backward pass of its own"
        remedy = (
            "take no_grad, detach, .data and numpy out of it, or use dudx.FD().calibrated(model, x, operators, "
            "reference='differences')."
        )
        yield Hazard("graph", what, ", ".join(name for _, name in wrong), order, error, remedy)


def _fused(model: Model, rows: Tensor) -> Iterator[Hazard]:
    """Find fused kernels, the error of torch.autograd.grad with them, and whether they can be written out."""
    with torch.enable_grad():
        x = rows.clone().requires_grad_()
        u = model(x.clone())
        try:
            found = fused_kernel(u)
        except UnsupportedError:  # the engine raises this error itself
            return
        if found is None:
            return
        error, remedy = None, "dudx.AD() and dudx.Taylor() write it out."
        parameters = [p for module in modules_of(model) for p in module.parameters(recurse=False) if p.requires_grad]
        try:
            request = request_of(Laplacian(), rows)
            # First, since another pass would write running statistics that this graph holds.
            ours = _gradient(reverse_derivatives(u, x, request, differentiable=True)[0], parameters)
            true = _gradient(AD(coupled="ignore").derivatives(model, rows, request)[0], parameters)
            error = float((ours - true).norm() / nonzero(true.norm(), ours.norm())) if parameters else None
        except UnsupportedError:
            remedy = "dudx.AD() refuses it, use the module that this one was traced or exported from."
        except RuntimeError:
            remedy = "torch.autograd.grad fails there; dudx.AD() and dudx.Taylor() write it out."
        what = f"A fused kernel ({found}), whose second derivative has a wrong gradient"
        yield Hazard("fused", what, "plain torch.autograd.grad", 2, error, remedy)


def _gradient(values: Tensor, parameters: list[nn.Parameter]) -> Tensor:
    loss = values.square().mean()
    found = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
    return torch.cat([gradient.flatten() for gradient in found])


def _error(model: Model, rows: Tensor, engine: Engine, operators: list[Operator]) -> float | None:
    """Measure the error against differences of a copy in double precision."""
    try:
        twin = copy.deepcopy(model).double() if isinstance(model, nn.Module) else model
        precise = rows.double()
        request = request_of(operators, rows)
        with torch.autocast(rows.device.type, enabled=False):
            true = torch.cat(prepare(precise, request, {1: _STEP, 2: _STEP}, 4)(twin, precise)).double()
        ours = torch.cat(list(engine.derivatives(model, rows, request))).double()
        size = nonzero(true.abs().amax(), ours.abs().amax())
        wrong = float((ours - true).abs().amax())
        return wrong / float(size) if size else math.inf if wrong else 0.0
    except (DudxError, RuntimeError, TypeError):  # it cannot be copied, or has no derivatives
        return None
