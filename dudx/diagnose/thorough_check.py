"""A check of everything that makes derivatives of a network wrong, at all points, for when seconds do not matter."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dudx.backend import tensor_checks
from dudx.engines.autodiff import AD
from dudx.engines.crosscheck import Trial
from dudx.engines.per_sample import PerSampleAD
from dudx.engines.request import request_of
from dudx.errors import first_line
from dudx.network import model_checks
from dudx.network.coupling_check import coupled
from dudx.network.double_precision import in_double
from dudx.network.model_checks import Model
from dudx.network.probe_rows import difference, perturbations, rounding_tolerance
from dudx.network.sandbox import output_of, sandboxed
from dudx.operators import D, Laplacian

#: Points that pass together; calls that are repeated; rows of a batch at which derivatives are compared.
_MOST, _CALLS, _BATCH = 2048, 40, 128
#: The size of a small movement, relative to the extent of the points.
_CLOSE = 1e-2
#: The relative step of a difference in the parameters, and how far it may be from the gradient.
_STEP, _FAR = 1e-5, 1e-4


@dataclass(frozen=True)
class Checked:
    """One line of a report: what was checked, and what is wrong with it, or why it could not be checked.

    >>> check = dudx.diagnose.Checked("repeated calls", fault="call 30 of the network gives another output")
    >>> print(check)
    FAULT   repeated calls: call 30 of the network gives another output
    """

    name: str
    fault: str = ""
    skipped: str = ""

    def __str__(self) -> str:
        mark = "FAULT" if self.fault else "skipped" if self.skipped else "ok"
        said = self.fault or self.skipped
        return f"{mark:8}{self.name}" + (f": {said}" if said else "")


@dataclass(frozen=True, repr=False)
class Report:
    """The result of `check`, a line per check.

    >>> report = dudx.diagnose.check(lambda x: torch.sin(x - x.mean(0)), torch.rand(16, 2, dtype=torch.float64))
    >>> report.ok, report.faults[0].name
    (False, 'influence of samples on each other')
    """

    checks: tuple[Checked, ...]

    @property
    def faults(self) -> tuple[Checked, ...]:
        """The checks that found something wrong."""
        return tuple(check for check in self.checks if check.fault)

    @property
    def ok(self) -> bool:
        """True if nothing wrong was found; checks that were skipped do not count."""
        return not self.faults

    def __repr__(self) -> str:
        return "\n".join(str(check) for check in self.checks)


def check(model: Model, x: Tensor, thorough: bool = True) -> Report:
    """Look for everything that makes derivatives of a network wrong, at all points rather than at a few.

    Engines look at a few points at the 1st, 2nd, 4th, 8th ... use. This takes seconds and looks at all of up to 2048
    points: other batch sizes and orders, close neighbours, repeated calls, derivatives against differences in double
    precision, and gradients in the parameters.

    Args:
        model: the network, in the mode in which it will be used.
        x: the points, (B, d).
        thorough: False leaves out repeated calls, derivatives and gradients.

    Example:
        >>> x = torch.rand(64, 2, dtype=torch.float64)
        >>> network = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
        >>> dudx.diagnose.check(network, x).ok
        True
    """
    x = tensor_checks.points(x).detach()[:_MOST]
    model = model_checks.model(model, x)
    checks = _QUICK | _SLOW if thorough else _QUICK
    return Report(tuple(_checked(name, look, model, x) for name, look in checks.items()))


def _checked(name: str, look: Callable[[Model, Tensor], str | None], model: Model, x: Tensor) -> Checked:
    try:
        return Checked(name, look(model, x) or "")
    except Exception as error:
        return Checked(name, skipped=first_line(error))


def _repeatable(model: Model, x: Tensor) -> str | None:
    still, other = output_of(model, x), output_of(model, x, seed=1)
    if bool((difference(still, other) > rounding_tolerance(still)).any()):
        return "two passes differ: the network draws random numbers, as dropout does; use model.eval() for checks"
    return None


def _influence(model: Model, x: Tensor) -> str | None:
    """Far movements of many rows at once, and close ones, in double precision where the network has a copy."""
    double = in_double(model, x)
    network, rows = (model, x) if double is None else (double, x.double())
    still = output_of(network, rows)
    allowed = rounding_tolerance(still)
    close = ((rows + _CLOSE * (moved - rows), block) for moved, block in perturbations(rows))
    for moved, block in [*perturbations(rows), *close]:
        change = difference(output_of(network, moved), still).masked_fill(block, 0)
        if not bool((change <= allowed).all()):
            row = int((~(change <= allowed)).any(1).nonzero()[0])
            return f"the output at row {row} changes when other rows move; use dudx.isolate(model, x) as the model"
    return "samples influence each other; use dudx.isolate(model, x)" if coupled(model, x) else None


def _other_batches(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Batches of other sizes and orders, by the numbers of their rows."""
    numbers = torch.arange(len(x), device=x.device)
    yield "in reverse order", numbers.flip(0)
    yield "sorted by a coordinate", x[:, 0].argsort()
    yield "twice", numbers.repeat(2)
    for size in sorted({1, 2, 3, 4, 7, 8, 16, 32, 33, 64, 100, 128, 256, 1000, 1024, len(x) // 2, len(x) - 1}):
        if 0 < size < len(x):
            yield f"{size} of them", numbers[:size]
            yield f"the last {size}", numbers[-size:]


def _counted(model: Model, x: Tensor) -> str | None:
    still = output_of(model, x)
    # Sums in other orders may differ in more than the last digits.
    allowed = torch.finfo(still.dtype).eps ** 0.75 * still.nan_to_num(0, 0, 0).abs().amax(0)
    for what, numbers in _other_batches(x):
        try:
            now = output_of(model, x[numbers])
        except Exception as error:
            return f"the network fails if the points are passed {what} ({first_line(error)})"
        if not bool((difference(now, still[numbers]) <= allowed).all()):
            return f"the output at a point is another if the points are passed {what}; use an engine of whole batches"
    return None


def _repeated(model: Model, x: Tensor) -> str | None:
    """Calls in a row, on a copy whose state is not restored."""
    twin = copy.deepcopy(model)
    with torch.no_grad(), sandboxed(twin) as numbers:
        still = twin(x.clone())
        for call in range(2, _CALLS + 1):
            numbers.restart()
            now = twin(x.clone())
            if not bool((difference(now, still) <= rounding_tolerance(still)).all()):
                return f"call {call} of the network gives another output at the same points; it keeps something"
    return None


def _derivatives(model: Model, x: Tensor) -> str | None:
    """Derivatives by autograd against differences, axis by axis, at all points and near them."""
    engine = PerSampleAD() if coupled(model, x) else AD()
    for axis in range(x.shape[1]):
        for everywhere in (False, True):
            order = Trial(model, x, engine, [axis], everywhere).contradicted(2)
            if order is not None:
                return f"the derivative of order {order} along axis {axis} is not how the output moves"
    return None


def _gradients(model: Model, x: Tensor) -> str | None:
    """The gradient of each parameter against a difference, for the value, the slopes and the Laplacian."""
    if not isinstance(model, nn.Module):
        raise TypeError("only an nn.Module can be copied to double precision")
    twin = copy.deepcopy(model).double()
    rows = x[:_BATCH].double()
    engine = PerSampleAD() if coupled(model, x) else AD()
    request = request_of([D(), *(D(axis) for axis in range(x.shape[1])), Laplacian()], rows)

    def losses() -> Tensor:
        with sandboxed(twin):
            return torch.stack([value.square().mean() for value in engine.derivatives(twin, rows, request)])

    parameters = {name: p for name, p in twin.named_parameters() if p.requires_grad}
    for name, parameter in parameters.items():
        along = torch.linspace(0.5, 1.5, parameter.numel(), dtype=rows.dtype, device=rows.device).view_as(parameter)
        step = _STEP * float(1 + parameter.detach().abs().amax())
        sides = []
        for sign in (1, -1):
            with torch.no_grad():
                kept = parameter.clone()
                parameter += sign * step * along
                sides.append(losses().detach())
                parameter.copy_(kept)
        true = (sides[0] - sides[1]) / (2 * step)
        found = losses()
        for number, what in enumerate(("value", *["slope"] * x.shape[1], "Laplacian")):
            if not found.requires_grad:
                return "no derivative has a gradient in the parameters"
            (gradient,) = torch.autograd.grad(
                found[number], parameter, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            ours = float((gradient * along).sum())
            size = max(abs(ours), abs(float(true[number])), 1e-3 * abs(float(found[number].detach())))
            if abs(ours - float(true[number])) > _FAR * size + 1e-9:
                return f"the gradient of the {what} in {name} is not how it changes with the parameter"
    return None


_QUICK: dict[str, Callable[[Model, Tensor], str | None]] = {
    "random numbers": _repeatable,
    "influence of samples on each other": _influence,
    "batches of other sizes and orders": _counted,
}
_SLOW: dict[str, Callable[[Model, Tensor], str | None]] = {
    "repeated calls": _repeated,
    "derivatives against differences": _derivatives,
    "gradients in the parameters": _gradients,
}
