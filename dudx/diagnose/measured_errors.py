"""Measure the errors of the batched idiom and of an isolated network against per-sample derivatives."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dudx.coupling.exact_isolation import ExactlyIsolated
from dudx.coupling.isolation import isolate
from dudx.engines.autodiff import AD
from dudx.engines.interface import Engine
from dudx.engines.per_sample import PerSampleAD
from dudx.engines.request import request_of
from dudx.errors import DudxError, UnsupportedError, first_line
from dudx.network.model_checks import Model
from dudx.network.modules import modules_of
from dudx.network.random_numbers import PrivateRandomNumbers
from dudx.operators import D, Laplacian, Operator


@dataclass(frozen=True)
class RelativeError:
    """Errors at the points, relative to the root mean square of the exact values.

    Example:
        >>> found = dudx.explain(lambda x: x - x.mean(0), torch.rand(32, 2))
        >>> isinstance(found.gradient, dudx.diagnose.RelativeError), found.gradient.largest > 0.01
        (True, True)
    """

    median: float
    largest: float


def reason(error: Exception) -> str:
    """Return the first statement of a message, without the advice that follows it."""
    return first_line(error).split(". ")[0].split("; ")[0].rstrip(".")


def nonzero(true: Tensor, ours: Tensor) -> Tensor:
    """Return sizes of exact values; those that are zero to rounding, relative to computed ones, become zero."""
    return true.masked_fill(true <= torch.finfo(true.dtype).eps ** 0.5 * ours, 0)


class ErrorMeasurement:
    """Errors of the batched idiom and of the isolated network, as far as they can be measured.

    Args:
        model: the network.
        x: the points.
        notes: list to which reasons are appended if something cannot be measured.
        numbers: random numbers of the network.
        wanted: if False, nothing is measured.
    """

    def __init__(self, model: Model, x: Tensor, notes: list[str], numbers: PrivateRandomNumbers, wanted: bool):
        self.model, self.x, self.notes, self.numbers = model, x, notes, numbers
        self.requests: dict[str, list[Operator]] = {
            "gradient": [D(axis) for axis in range(x.shape[1])],
            "Laplacian": [Laplacian()],
        }
        self.idiom: dict[str, RelativeError] = {}
        self.exact: dict[str, Tensor] = {}
        # In chunks, to limit the memory of a large network.
        self.reference: Engine = PerSampleAD(chunk=max(1, 2**12 // len(x)))
        #: Error of the isolated network, its method, and the error of the approximation if the method is exact and
        #: an approximation exists.
        self.isolated: RelativeError | None = None
        self.method: str | None = None
        self.approximately: float | None = None
        for name in self.requests if wanted else ():
            self._measure(name)

    def _measure(self, name: str) -> None:
        repeatable = _Repeatable(self.model, self.numbers)
        try:
            self.exact[name] = self._per_sample(repeatable, name)
            ours = self._derivatives(repeatable, name, AD(coupled="ignore"))
        except (DudxError, RuntimeError) as error:
            self.notes.append(f"The error of the {name} cannot be measured: {reason(error)}.")
            return
        found = _error(ours, self.exact[name])
        if found is None:
            self.notes.append(f"The error of the {name} cannot be measured: no true value is finite.")
        else:
            self.idiom[name] = found

    def _derivatives(self, model: Model, name: str, engine: Engine) -> Tensor:
        return torch.stack(list(engine.derivatives(model, self.x, request_of(self.requests[name], self.x))), dim=-1)

    def _per_sample(self, model: Model, name: str) -> Tensor:
        try:
            return self._derivatives(model, name, self.reference)
        except UnsupportedError:  # by torch.func; the loop accepts any model
            self.reference = PerSampleAD(method="loop")
            return self._derivatives(model, name, self.reference)

    def isolate(self, random: bool) -> None:
        """Isolate the network and measure its error, unless the network draws random numbers."""
        isolated = isolate(self.model, self.x, update_statistics=False)
        self.method = isolated.method
        for name in () if random else self.idiom:
            error = _error(self._derivatives(isolated, name, AD()), self.exact[name])
            if error and (self.isolated is None or error.largest > self.isolated.largest):
                self.isolated = error
        if isinstance(isolated, ExactlyIsolated):
            try:
                self.approximately = isolate(self.model, self.x, update_statistics=False, approximate=True).error
            except DudxError as error:
                self.notes.append(f"The samples cannot all pass together: {reason(error)}.")


class _Repeatable(nn.Module):
    """The network with equal random numbers and buffers in every call, so that engines can be compared."""

    def __init__(self, model: Model, numbers: PrivateRandomNumbers):
        super().__init__()
        self.model, self.inside, self.numbers = model, nn.ModuleList(modules_of(model)), numbers

    def forward(self, x: Tensor) -> Tensor:
        self.numbers.restart(0)
        with _copied_buffers(self):
            return self.model(x)


@contextlib.contextmanager
def _copied_buffers(model: nn.Module) -> Iterator[None]:
    """Replace buffers by copies; writing old values back would invalidate graphs that hold the buffers."""
    saved = [(m._buffers, name, b) for m in model.modules() for name, b in m._buffers.items() if b is not None]
    copies = {id(buffer): buffer.clone() for _, _, buffer in saved}
    try:
        for owner, name, buffer in saved:
            owner[name] = copies[id(buffer)]
        yield
    finally:
        for owner, name, buffer in saved:
            owner[name] = buffer


def _error(ours: Tensor, exact: Tensor) -> RelativeError | None:
    """Return the error of values (n, m, k), as vectors of length k; each output has its own scale."""
    ours, exact = ours.detach(), exact.detach()
    size, wrong = exact.norm(dim=-1), (ours - exact).norm(dim=-1)
    known = size.isfinite()
    if not bool(known.any()):
        return None
    scale, ours_scale = (
        (part.masked_fill(~known, 0).square().sum(0) / known.sum(0)).sqrt() for part in (size, ours.norm(dim=-1))
    )
    scale = nonzero(scale, ours_scale).expand_as(wrong)
    relative = torch.where(wrong == 0, 0, wrong / scale)[known].nan_to_num(nan=math.inf, posinf=math.inf)
    return RelativeError(float(relative.median()), float(relative.amax()))
