"""Refusal of difference steps that are lost when they are added to the points: x + h is rounded to a float."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from dudx.backend.active_modes import vmap_active
from dudx.engines.interface import Engine
from dudx.engines.request import Request
from dudx.errors import UnsupportedError
from dudx.network.batch_bound import Pointwise
from dudx.network.double_precision import in_double
from dudx.network.model_checks import Model
from dudx.network.probe_rows import representative_points
from dudx.network.random_numbers import KernelMonitor, PrivateRandomNumbers
from dudx.network.sandbox import output_of, sandboxed
from dudx.operators import Directional, Operator, Term

#: The relative error from which on derivatives are refused: of a step that is rounded, and of higher derivatives, whose
#: own size is measured or estimated.
_EFFECTIVE, _HIGHER = 0.01, 0.25
#: The share of that estimate from which on a higher derivative is compared with one in double precision.
_SUSPECT = 0.2
_ROWS = 32


def refuse_lost_steps(engine: Engine, model: Model, x: Tensor, request: Request) -> None:
    """Raise `UnsupportedError` for differences whose steps are too small beside the spacing of floats at the points.

    The engine differentiates monomials, whose derivatives are known, so that the steps it really takes are measured for
    any stencil. A rounded node also adds a multiple of the slope to higher derivatives. That is compared with the slope
    divided by a power of the points' spread or, where the network has a copy in double precision, with the derivative.
    """
    terms = tuple({term: None for operator in request for term in operator.terms if term.order})
    if not engine.by_shifts or not terms or x.is_meta or vmap_active():
        return
    x, axes = x.detach(), x.shape[1]
    vectors = tuple(vector.detach() for vector in request.vectors)
    alone = request.of([Operator({term: 1.0}) for term in terms])
    eps = torch.finfo(x.dtype).eps
    with torch.no_grad(), PrivateRandomNumbers():
        found = engine.derivatives(_Monomials(x, terms, vectors), x, alone)
        width = x.std(0, correction=0)
        width = torch.where(width > 0, width, x.abs().amax(0)).to(found[0].dtype)
        for number, (term, value) in enumerate(zip(terms, found, strict=True)):
            length = _length(term, vectors) if isinstance(term, Directional) else torch.ones_like(value[:, :1])
            off = torch.where(length > 0, (value[:, axes + number :][:, :1] - 1).abs(), 0)
            if float(off.amax()) > max(_EFFECTIVE, eps**0.5):
                raise _refusal(engine, x)
            if term.order == 1 or eps > 1e-4:
                continue
            slope = torch.where(length > 0, value[:, :axes].abs() / length**term.order, 0)
            estimate = float((slope * width ** (term.order - 1)).amax())
            if estimate > _SUSPECT * _HIGHER:
                measured = _measured(engine, model, x, request, term)
                if (estimate if measured is None else measured) > _HIGHER:
                    raise _refusal(engine, x)


class _Monomials(Pointwise):
    """Functions of the displacement from the points: its components, and for each term a monomial with derivative one.

    Rows minus the points that they belong to are exact, so that nothing is rounded but the rows.
    """

    def __init__(self, x: Tensor, terms: Sequence[Term], vectors: Sequence[Tensor]):
        self.x, self.terms, self.vectors = x, terms, vectors

    @property
    def samples(self) -> int:
        return len(self.x)

    def __call__(self, rows: Tensor) -> Tensor:
        blocks = len(rows) // len(self.x)
        moved = (rows - self.x.repeat(blocks, 1)).to(torch.promote_types(rows.dtype, torch.float32))
        columns = [moved]
        for term in self.terms:
            if isinstance(term, Directional):
                length = _length(term, self.vectors).to(moved.dtype)
                unit = self.vectors[term.slot] / torch.where(length > 0, length, 1) ** 2
                factors = [(moved * unit.repeat(blocks, 1)).sum(1, keepdim=True)] * term.order
            else:
                factors = [moved[:, axis : axis + 1] for axis in term.axes]
            columns.append(math.prod(factors[1:], start=factors[0]) / _factorials(term))
        return torch.cat(columns, dim=1)


def _factorials(term: Term) -> int:
    if isinstance(term, Directional):
        return math.factorial(term.order)
    return math.prod(math.factorial(count) for count in Counter(term.axes).values())


def _length(term: Directional, vectors: Sequence[Tensor]) -> Tensor:
    return torch.linalg.vector_norm(vectors[term.slot], dim=1, keepdim=True)


def _measured(engine: Engine, model: Model, x: Tensor, request: Request, term: Term) -> float | None:
    """The error of a derivative, relative to its own size or that of a network as smooth as its points are spread.

    None where the network has no copy in double precision, or draws random numbers.
    """
    which = representative_points(x, _ROWS)
    rows, part = x[which], request.at_rows(which).of([Operator({term: 1.0})])
    double = in_double(model, rows)
    with KernelMonitor() as kernels:
        output_of(model, rows)
    if double is None or kernels.drawn:  # numbers drawn in two formats differ
        return None
    precise = Request(part.operators, tuple(vector.double() for vector in part.vectors))
    with sandboxed(model) as numbers:
        (ours,) = engine.derivatives(model, rows, part)
        numbers.restart()
        (true,) = engine.derivatives(double, rows.double(), precise)
    output = output_of(double, rows.double())
    natural = output.std(0, correction=0) / rows.double().std(0, correction=0).amax() ** term.order
    size = torch.maximum(true.square().mean(0).sqrt(), natural.nan_to_num(0, 0, 0))
    return float(((ours - true).square().mean(0).sqrt() / size).nan_to_num(0, 0, 0).amax())


def _refusal(engine: Engine, x: Tensor) -> UnsupportedError:
    largest = x.abs().amax()
    spacing = float(torch.nextafter(largest, torch.full_like(largest, torch.inf)) - largest)
    name, format_ = type(engine).__name__, str(x.dtype).removeprefix("torch.")
    remedy = "compute in float64, " if x.dtype != torch.float64 else ""
    return UnsupportedError(
        f"The step of {name} is too small for these points: at coordinates of {float(largest):.3g}, {format_} numbers "
        f"are {spacing:.1e} apart, so that x + h is rounded and the difference is off by that rounding: {remedy}"
        "take a larger step, or shift and scale the coordinates so that points lie around 0 at a distance of about 1 "
        "(and the network's first layer with them); dudx.AD() and dudx.Taylor() have no step."
    )
