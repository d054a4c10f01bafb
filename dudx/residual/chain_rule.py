"""The chain rule for computed expressions: how a tensor was computed, and its derivative along an input.

An expression such as `k * u.x` is a tensor by the time it is differentiated. It keeps the torch function and the
arguments that it was computed by. Its derivative is that function's forward derivative along the derivatives of the
arguments. The result is an expression of the same kind, so that it can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dudx.backend.containers import flattened, rebuilt
from dudx.backend.forward_mode import jvp
from dudx.errors import InputError
from dudx.residual.linear_expression import NO_DERIVATIVES


@dataclass(frozen=True)
class Coordinate:
    """One input, or all inputs (B, d) if `axis` is None."""

    axis: int | None
    depends_on_outputs: bool = False


@dataclass(frozen=True, eq=False)
class Constant:
    """A number or a tensor from outside of the residual."""

    value: Any
    depends_on_outputs: bool = False


@dataclass(frozen=True, eq=False)
class EqualRows:
    """A tensor that is known to be equal at all points."""

    value: Tensor
    depends_on_outputs: bool = False


@dataclass(frozen=True)
class NonlocalTerm:
    """A sum of the network's values at other points."""

    depends_on_outputs: bool = True


@dataclass(eq=False, slots=True)
class RecordedCall:
    """A torch function and its arguments, fields among them."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    #: The number of the result, for a function of several results.
    number: int | None = None

    @property
    def depends_on_outputs(self) -> bool:
        """True if an output of the network is among the arguments, or an expression of one."""
        return any(
            leaf._linear.operators or any(source.depends_on_outputs for _, source in leaf._sources)
            for leaf in flattened((self.args, dict(self.kwargs)))
            if hasattr(leaf, "_linear")
        )

    def result(self, number: int) -> RecordedCall:
        """One of several results."""
        return RecordedCall(self.function, self.args, self.kwargs, number)

    def repeated(self, values: list[Any]) -> Any:
        """Call the function again with other values for the leaves of its arguments, in order."""
        args, kwargs = rebuilt((self.args, dict(self.kwargs)), iter(values))
        result = self.function(*args, **kwargs)
        return result if self.number is None else result[self.number]


Source = Coordinate | Constant | EqualRows | NonlocalTerm | RecordedCall
#: The sources whose sum a tensor is, with their factors.
Sources = tuple[tuple[float, Source], ...]


def differentiated(expression: Any, axis: int) -> Any:
    """The derivative of a field along an input: a field, or the number 0 if the field does not depend on the input."""
    computed = expression._computed
    if isinstance(computed, Tensor) and not computed.is_floating_point():  # a comparison, constant between jumps
        return 0.0
    total: Any = 0.0
    if expression._linear.operators:
        linear = type(expression)(expression._values, expression._linear)
        total = linear.d(expression._values.inputs[axis])
    for coefficient, source in expression._sources:
        slope = _slope(expression, source, axis)
        if not _is_zero(slope):
            total = total + coefficient * slope
    return total


def _is_zero(value: Any) -> bool:
    return isinstance(value, float) and value == 0


def _slope(expression: Any, source: Source, axis: int) -> Any:
    if isinstance(source, Coordinate):
        return _slope_of_all(expression, axis) if source.axis is None else 1.0 if source.axis == axis else 0.0
    if isinstance(source, NonlocalTerm):
        raise InputError(
            "An integral or a fractional derivative cannot be differentiated; take that of the derivative, "
            "such as u.x.caputo(...), or make it an output of the network by an equation of its own."
        )
    if isinstance(source, EqualRows):
        return 0.0
    if isinstance(source, Constant):
        return _slope_of_constant(expression, source.value)
    inner = flattened((source.args, dict(source.kwargs)))
    slopes = [
        differentiated(leaf, axis) if hasattr(leaf, "_linear") else _slope_of_constant(expression, leaf)
        for leaf in inner
    ]
    moving = [number for number, slope in enumerate(slopes) if not _is_zero(slope)]
    if not moving:
        return 0.0
    if source.function is torch.mul:
        a, b = source.args
        return _sum(a * slopes[1] if 1 in moving else 0.0, b * slopes[0] if 0 in moving else 0.0)
    return expression._apply(_Tangent(source, tuple(moving)), inner, [slopes[number] for number in moving])


def _sum(a: Any, b: Any) -> Any:
    return b if _is_zero(a) else a if _is_zero(b) else a + b


def _slope_of_all(expression: Any, axis: int) -> Any:
    """The derivative of all inputs along one of them: a unit vector at each point."""
    x = expression._values.like
    row = torch.stack([x.new_full((), float(number == axis)) for number in range(x.shape[1])])
    row = row.expand(x.shape)
    return type(expression)(expression._values, NO_DERIVATIVES, row, ((1.0, EqualRows(row)),))


def _slope_of_constant(expression: Any, value: Any) -> float:
    """The derivative of a value from outside: zero, unless it may differ from point to point."""
    values = expression._values
    rows = values.shape[0]
    if not isinstance(value, Tensor) or not value.is_floating_point() or not value.ndim or value.shape[0] != rows:
        return 0.0
    # Of one point only the first call is checked: later ones have the request of several points, if there is one.
    if rows == 1 and (isinstance(value, nn.Parameter) or not values.recording):
        return 0.0
    if rows == 1:
        raise InputError(
            f"With a single point, a tensor of shape {tuple(value.shape)} may be a constant or the value at that "
            "point, so that an expression with it cannot be differentiated: give a constant as a number, a tensor "
            "without axes or an nn.Parameter, or more than one point in the first call."
        )
    raise InputError(
        "An expression with a tensor of one value a point in it cannot be differentiated, as nothing is known of "
        "how that depends on the inputs: compute it from the inputs inside of the residual, or give it as a "
        "network, Residual(..., networks={'k': net})."
    )


class _Tangent:
    """The derivative of a function along those of some of its arguments, as a function of all of these."""

    def __init__(self, call: RecordedCall, moving: tuple[int, ...]):
        self.call, self.moving = call, moving

    def __call__(self, inner: list[Any], slopes: list[Any]) -> Tensor:
        def function(*moved: Tensor) -> Tensor:
            values = list(inner)
            for number, value in zip(self.moving, moved, strict=True):
                values[number] = value
            return self.call.repeated(values)

        point = tuple(inner[number] for number in self.moving)
        along = tuple(
            torch.as_tensor(slope, dtype=p.dtype, device=p.device).expand(p.shape)
            for p, slope in zip(point, slopes, strict=True)
        )
        return jvp(function, point, along)[1]
