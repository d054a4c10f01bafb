"""Integrals and fractional derivatives: terms that need the network at points other than the collocation points.

Each is a weighted sum of the network's values at nodes; the weights do not depend on the network.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dudx import errors
from dudx.backend import tensor_checks
from dudx.backend.active_modes import lasting_constants
from dudx.errors import InputError, whole_number
from dudx.operators import Directional
from dudx.residual.chain_rule import NonlocalTerm
from dudx.residual.linear_expression import NO_DERIVATIVES
from dudx.residual.nonlocal_terms.quadrature import caputo_grunwald, caputo_l1, gauss, one_way

Caputo = Literal["l1", "grunwald"]


class Integrals:
    """Methods of fields that need the network at other points."""

    _values: Any
    d: Any

    def integral(self, bounds: Mapping[str, Any], nodes: int = 16, kernel: Any = None, of: Any = None) -> Any:
        """The integral over inputs between bounds, `u.integral({"t": (0, t)})`, by Gauss-Legendre nodes.

        Bounds are numbers or inputs, and expressions of these. `kernel=lambda here, there: torch.exp(there.t - here.t)`
        multiplies with a function of the point and of the node, and `of=lambda u: u**2` integrates a function of the
        values.
        """
        return self._nonlocal(_integral(self, bounds, whole_number(nodes, "nodes"), kernel, of))

    def caputo(
        self,
        name: str,
        alpha: float,
        start: float = 0.0,
        nodes: int = 64,
        method: Caputo = "l1",
        grading: float = 1.0,
    ) -> Any:
        """The Caputo derivative of order alpha along an input, starting at `start`.

        With `method="l1"` the error is of order 2 - (alpha mod 1) in 1 / nodes, with `"grunwald"` of order one.
        `grading=(2 - alpha) / alpha` refines the nodes towards the start, for solutions that begin like t^alpha.
        """
        errors.one_of(method, Caputo, "method")
        whole, part = divmod(_order(alpha), 1)
        field = self.d(*[name] * int(whole)) if whole else self
        if not part:
            return field
        how = (_number(start, "start="), whole_number(nodes, "nodes"), method, errors.positive_step(grading, "grading"))
        return self._nonlocal(_caputo(field, name, part, *how))

    def fractional_laplacian(self, name: str, alpha: float, within: tuple[float, float], nodes: int = 64) -> Any:
        """(-∂²)^(alpha/2) along an input, 0 < alpha < 2, of a function that is zero outside of an interval.

        This is the Riesz derivative with the other sign, by shifted Grünwald-Letnikov weights of second order.
        """
        low, high = _pair(within, "interval within=")
        if not _number(low, "within=") < _number(high, "within="):
            raise InputError(f"The interval within= goes from a number to a larger one; got {within!r}.")
        order = _order(alpha, highest=2)
        return self._nonlocal(
            _fractional_laplacian(self, name, order, (float(low), float(high)), whole_number(nodes, "nodes"))
        )

    def _nonlocal(self, value: Tensor) -> Any:
        again: Any = type(self)
        return again(self._values, NO_DERIVATIVES, value, ((1.0, NonlocalTerm()),))


def _caputo(field: Any, name: str, alpha: float, start: float, nodes: int, method: Caputo, grading: float) -> Any:
    """The Caputo derivative of an expression, 0 < alpha < 1."""
    axis, x = field._axis(name), field._values.like
    if method == "l1":
        places, weights = caputo_l1(alpha, nodes, grading)
    elif grading != 1:
        raise InputError("Grünwald-Letnikov weights are those of equal steps; use method='l1' with a grading.")
    else:
        places, weights = caputo_grunwald(alpha, nodes)
    span = x[:, axis] - start
    _refuse(span < 0, f"The Caputo derivative begins at {name} = {start:g}", "begin earlier, by start=")
    rows = _moved(x, axis, start + span * _tensor(places, x).unsqueeze(1))
    # At the start it is zero for every function that is differentiable there.
    scale = torch.where(span > 0, span.clamp(min=torch.finfo(x.dtype).tiny) ** -alpha, torch.zeros_like(span))
    return _summed(_tensor(weights, x), _values_at(field, rows)) * scale.unsqueeze(1)


def _fractional_laplacian(field: Any, name: str, alpha: float, within: tuple[float, float], nodes: int) -> Any:
    """(-∂²)^(α/2) along one input of a function that is zero outside an interval."""
    axis, x = field._axis(name), field._values.like
    low, high = within
    at = x[:, axis]
    _refuse((at <= low) | (at >= high), f"The interval is {low:g} < {name} < {high:g}", "take points inside")
    offsets, weights = (_tensor(part, x) for part in one_way(alpha, nodes))
    total: Any = 0.0
    for sign, room in ((1.0, at - low), (-1.0, high - at)):
        step = room / nodes
        places = at + sign * offsets.unsqueeze(1) * step
        # Beyond the far wall the function is zero, whatever the network returns; rounding must not cross the near wall.
        inside = ((places < high) if sign == 1 else (places > low)).unsqueeze(2)
        u = _values_at(field, _moved(x, axis, places.clamp(low, high)))
        total = total + _summed(weights, torch.where(inside, u, torch.zeros_like(u))) * (step**-alpha).unsqueeze(1)
    return total / (2 * math.cos(math.pi * alpha / 2))


def _integral(
    field: Any,
    bounds: Mapping[str, tuple[Any, Any]],
    nodes: int,
    kernel: Callable[..., Any] | None,
    of: Callable[[Tensor], Tensor] | None,
) -> Any:
    """The integral over a box in one or several inputs; the other inputs keep the values of the point."""
    inputs, x = field._values.inputs, field._values.like
    if not isinstance(bounds, Mapping) or not bounds:
        raise InputError(f'An integral has bounds by the names of inputs, {{"{inputs[0]}": (0, 1)}}; got {bounds!r}.')
    for what, function in (("kernel", kernel), ("of", of)):
        if function is not None and not callable(function):
            raise InputError(f"{what}= of an integral is a function; got {function!r}.")
    axes = [field._axis(name) for name in bounds]
    pairs = {name: _pair(pair, f"bounds along {name}") for name, pair in bounds.items()}
    edges = [tuple(_edge(field, edge, name) for edge in pair) for name, pair in pairs.items()]
    everywhere = len(axes) == len(inputs) and not any(isinstance(e, Tensor) for pair in edges for e in pair)
    unit, weight = gauss(nodes)
    grids = [_tensor(grid.ravel(), x) for grid in np.meshgrid(*[unit] * len(axes), indexing="ij")]
    shares = np.ones(1)
    for _ in axes:
        shares = np.outer(shares, weight).ravel()
    # Over all inputs and between numbers the integral is equal at all points, and is computed once.
    rows = (x[:1].detach() if everywhere else x).expand(len(shares), -1, -1)
    size: Any = 1.0
    for axis, grid, (low, high) in zip(axes, grids, edges, strict=True):
        width = high - low
        rows = rows.clone()
        rows[:, :, axis] = low + width * grid.unsqueeze(1)
        size = size * (width.unsqueeze(1) if isinstance(width, Tensor) else width)
    values = _values_at(field, rows) if of is None else of(_values_at(field, rows))
    if kernel is not None:
        here = SimpleNamespace(**{name: x[:, i : i + 1] for i, name in enumerate(inputs)})
        there = SimpleNamespace(**{name: rows[:, :, i : i + 1] for i, name in enumerate(inputs)})
        values = kernel(here, there) * values
    if not isinstance(values, Tensor) or values.ndim != 3 or len(values) != len(shares):
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise InputError(
            f"kernel= and of= of an integral give a number for each node and point, ({len(shares)}, B, 1); got {got}."
        )
    total = _summed(_tensor(shares, x), values) * size
    return total.expand(len(x), -1) if len(total) != len(x) else total


def _values_at(field: Any, rows: Tensor) -> Tensor:
    """Evaluate an expression at nodes (K, B or 1, d), as (K, B or 1, columns)."""
    if isinstance(field._computed, Tensor):
        raise InputError(
            "Only sums of outputs and their derivatives, with numbers for coefficients, are known elsewhere than at "
            "the points; integrate a function of them by u.integral(..., of=lambda u: u**2), a factor by kernel=."
        )
    if not field._linear.operators:
        raise InputError("There is no network's output in this expression, so that it can be integrated by hand.")
    for term in (term for operator in field._linear.operators.values() for term in operator.terms):
        if isinstance(term, Directional):
            raise InputError("Derivatives along vectors are known at the points alone; use u.x, u.y, …")
    values = field._values.at(field._linear, rows)
    return values + field._computed if field._computed else values


def _pair(bounds: Any, what: str) -> tuple[Any, Any]:
    """Two bounds, lower and upper."""
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise InputError(f"The {what} must be a beginning and an end, (0, 1); got {bounds!r}.")
    return bounds[0], bounds[1]


def _number(value: Any, what: str) -> float:
    """A finite number, given as a number or as a tensor of one entry."""
    known = isinstance(value, numbers.Real) or (isinstance(value, Tensor) and value.numel() == 1)
    number = float(value) if known else math.nan
    if not math.isfinite(number):
        raise InputError(f"{what} takes finite numbers; got {value!r}.")
    return number


def _order(alpha: object, highest: float | None = None) -> float:
    """The order of a fractional derivative, a positive number."""
    if isinstance(alpha, bool) or not isinstance(alpha, numbers.Real):
        raise InputError(f"The order alpha must be a number, as its weights are computed once; got {alpha!r}.")
    number = errors.positive_step(alpha, "order alpha")
    if highest is not None and (number >= highest or number == 1):
        raise InputError(
            f"A fractional Laplacian has an order alpha between 0 and {highest:g}, and not 1, where its two halves "
            f"cancel; got {number:g}. The order 2 is -u.laplacian()."
        )
    return number


def _edge(field: Any, edge: Any, name: str) -> Any:
    """A bound of an integral: a number, or one number per point (B,)."""
    if isinstance(edge, numbers.Real) and not isinstance(edge, bool):
        return float(edge)
    edge = field._known_beforehand(edge, f"bound of the integral along {name}")
    if not isinstance(edge, Tensor) or edge.numel() not in (1, len(field._values.like)):
        raise InputError(f"The bounds of an integral along {name} are numbers, inputs, or one a point; got {edge!r}.")
    return edge.reshape(-1)


def _moved(x: Tensor, axis: int, places: Tensor) -> Tensor:
    """The points with one coordinate replaced: (K, B, d) for coordinates (K, B)."""
    columns = list(x.expand(len(places), -1, -1).unbind(2))
    columns[axis] = places
    return torch.stack(columns, dim=2)


def _summed(weights: Tensor, values: Tensor) -> Tensor:
    """The weighted sum over nodes: (K,) and (K, B, columns) to (B, columns)."""
    return torch.tensordot(weights.to(values.dtype), values, 1)


def _tensor(values: np.ndarray, like: Tensor) -> Tensor:
    """Nodes or weights as a tensor, which is copied to its device once."""
    return _constant(np.ascontiguousarray(values, dtype=np.float64).tobytes(), like.dtype, like.device)


@lru_cache(maxsize=256)
def _constant(content: bytes, dtype: torch.dtype, device: torch.device) -> Tensor:
    with lasting_constants():
        return torch.frombuffer(bytearray(content), dtype=torch.float64).to(device, dtype)


def _refuse(wrong: Tensor, what: str, remedy: str) -> None:
    if not wrong.is_meta and tensor_checks.read_now(wrong, what) and bool(wrong.any()):
        raise InputError(f"{what}, and point {int(wrong.nonzero()[0])} lies elsewhere: {remedy}.")
