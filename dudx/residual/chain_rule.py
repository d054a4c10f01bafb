"""The chain rule for computed expressions: what a tensor was made of, and its derivative along an input.

An expression such as `k * u.x` is a tensor by the time it is differentiated. It remembers the torch function and the
arguments it was made by; its derivative is that function's own forward derivative along the derivatives of the
arguments, which is an expression of the same kind, so that it can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dudx.backend.containers import flattened, rebuilt
from dudx.backend.forward_mode import jvp
from dudx.errors import InputError


@dataclass(frozen=True)
class Coordinate:
    """An input itself."""

    axis: int
    of_outputs: bool = False


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor that came from outside."""

    tensor: Tensor
    of_outputs: bool = False


@dataclass(frozen=True)
class Elsewhere:
    """The network's values at other points, summed up."""

    of_outputs: bool = True


@dataclass(eq=False, slots=True)
class Made:
    """A torch function and what it was called with, fields among it."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    #: Which of several results it is.
    number: int | None = None

    @property
    def of_outputs(self) -> bool:
        """Whether a network's output has a part in it."""
        return any(
            leaf._linear.operators or any(source.of_outputs for _, source in leaf._made)
            for leaf in flattened((self.args, dict(self.kwargs)))
            if hasattr(leaf, "_linear")
        )

    def part(self, number: int) -> Made:
        """One of several results."""
        return Made(self.function, self.args, self.kwargs, number)


Source = Coordinate | Constant | Elsewhere | Made
#: What a tensor is the sum of, with factors.
Sources = tuple[tuple[float, Source], ...]


def differentiated(expression: Any, axis: int) -> Any:
    """The derivative of a field along an input: a field, or the number 0 where it does not depend on it."""
    computed = expression._computed
    if isinstance(computed, Tensor) and not computed.is_floating_point():  # a comparison, constant between jumps
        return 0.0
    total: Any = 0.0
    if expression._linear.operators:
        linear = type(expression)(expression._values, expression._linear)
        total = linear.d(expression._values.inputs[axis])
    for coefficient, source in expression._made:
        slope = _slope(expression, source, axis)
        if not _is_zero(slope):
            total = total + coefficient * slope
    return total


def _is_zero(value: Any) -> bool:
    return isinstance(value, float) and value == 0


def _slope(expression: Any, source: Source, axis: int) -> Any:
    if isinstance(source, Coordinate):
        return 1.0 if source.axis == axis else 0.0
    if isinstance(source, Elsewhere):
        raise InputError(
            "An integral, a fractional or an upwind derivative cannot be differentiated; take that of the derivative, "
            "such as u.x.caputo(...), or make it an output of the network by an equation of its own."
        )
    rows = expression._values.shape[0]
    if isinstance(source, Constant):
        return _of_constant(source.tensor, rows)
    inner = flattened((source.args, dict(source.kwargs)))
    slopes = [differentiated(leaf, axis) if hasattr(leaf, "_linear") else _of_constant(leaf, rows) for leaf in inner]
    moving = [number for number, slope in enumerate(slopes) if not _is_zero(slope)]
    if not moving:
        return 0.0
    if source.function is torch.mul:
        a, b = source.args
        return _sum(a * slopes[1] if 1 in moving else 0.0, b * slopes[0] if 0 in moving else 0.0)
    return expression._apply(_Tangent(source, tuple(moving)), inner, [slopes[number] for number in moving])


def _sum(a: Any, b: Any) -> Any:
    return b if _is_zero(a) else a if _is_zero(b) else a + b


def _of_constant(value: Any, rows: int) -> float:
    """The derivative of what came from outside: none, unless it may differ from point to point."""
    if isinstance(value, Tensor) and value.is_floating_point() and rows > 1 and value.ndim and value.shape[0] == rows:
        raise InputError(
            "An expression with a tensor of one value a point in it cannot be differentiated, as nothing is known of "
            "how that depends on the inputs: compute it from the inputs inside of the residual, or give it as a "
            "network, Residual(..., networks={'k': net})."
        )
    return 0.0


class _Tangent:
    """The derivative of a function along those of some of its arguments, as a function of all of these."""

    def __init__(self, source: Made, moving: tuple[int, ...]):
        self.source, self.moving = source, moving

    def __call__(self, inner: list[Any], slopes: list[Any]) -> Tensor:
        def of(*moved: Tensor) -> Tensor:
            now = list(inner)
            for number, value in zip(self.moving, moved, strict=True):
                now[number] = value
            ahead = iter(now)
            args, kwargs = rebuilt((self.source.args, dict(self.source.kwargs)), ahead)
            result = self.source.function(*args, **kwargs)
            return result if self.source.number is None else result[self.source.number]

        point = tuple(inner[number] for number in self.moving)
        along = tuple(
            torch.as_tensor(slope, dtype=p.dtype, device=p.device).expand(p.shape)
            for p, slope in zip(point, slopes, strict=True)
        )
        return jvp(of, point, along)[1]
