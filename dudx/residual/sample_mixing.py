"""A check that a computed expression treats each point by itself, made before it is differentiated or cut into slices.

The derivative of `u - u.mean()` along an input is not defined: the mean belongs to the batch, not to a point. The
expression is evaluated for two sets of numbers, and for a mixture that takes some points from one set and the others
from the other. If each point is treated by itself, the result for the mixture is the same mixture of results.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from dudx.backend.active_modes import vmap_active
from dudx.backend.containers import flattened
from dudx.errors import InputError
from dudx.residual.chain_rule import Constant, Coordinate, EqualRows, NonlocalTerm, RecordedCall

#: Numbers that the outputs, their derivatives and the inputs take; functions may be undefined in some of the ranges.
_RANGES = ((-1.0, 1.0), (0.2, 1.0), (1.2, 3.0))


def refuse_mixed_samples(
    expression: Any,
    what: str = "differentiated",
    remedy: str = "Its derivative at a point is not defined: differentiate first, or compute such a number before the "
    "call.",
) -> None:
    """Raise an error if the value of an expression at one point depends on another point.

    Nothing is checked inside of `torch.func.vmap`, where numbers cannot be compared.
    """
    rows = expression._values.shape[0]
    if rows == 1 or vmap_active():
        return
    compared = 0
    for number, (low, high) in enumerate(_RANGES):
        chosen = _fractions(rows, number + 1, expression._values.like) < 0.5
        chosen[0], chosen[-1] = True, False
        middle = (low + high) / 2
        sets = _Numbers(expression, low, middle), _Numbers(expression, middle, high)
        try:
            first, second = (numbers.of(expression) for numbers in sets)
            # Both ways around: numbers of which the first are the smaller ones are sorted already.
            kept = all(
                _is_mixture(_Mixture(expression, *sets, points).of(expression), first, second, points)
                for points in (chosen, ~chosen)
            )
        except (RuntimeError, IndexError):  # not defined for such numbers, as an index computed from them
            continue
        compared += 1
        if not kept:
            raise InputError(
                f"The expression that is {what} mixes the samples of the batch, as u - u.mean() does. {remedy}"
            )
    if not compared:
        raise InputError(
            f"An expression could not be {what}, as it cannot be evaluated for the numbers by which it is checked that "
            "it treats each point by itself: write it so that it is defined for all numbers between -1 and 3."
        )


def _is_mixture(mixed: Tensor, first: Tensor, second: Tensor, chosen: Tensor) -> bool:
    scale = max(
        (float(part.detach().nan_to_num(0, 0, 0).abs().max()) for part in (first, second) if part.numel()), default=0.0
    )
    tolerance = torch.finfo(mixed.dtype).eps ** 0.5

    def equal(a: Tensor, b: Tensor) -> Tensor:
        return torch.isclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True)

    axes = [axis for axis, length in enumerate(mixed.shape) if length == len(chosen)]
    if not axes:  # some of the points: each number belongs to one of them
        return bool((equal(mixed, first) | equal(mixed, second)).all())
    for axis in axes:
        along = chosen.view(-1, *[1] * (mixed.ndim - axis - 1))
        if bool(equal(mixed, torch.where(along, first, second)).all()):
            return True
    return False


def _fractions(count: int, number: int, like: Tensor) -> Tensor:
    """Scattered numbers in [0, 1), without a random generator."""
    steps = torch.arange(count, dtype=torch.float64, device=like.device)
    return (43758.5453 * torch.sin(12.9898 * steps + 78.233 * (number + 1))).remainder(1)


class _Numbers:
    """Values of an expression for one set of numbers between two bounds."""

    def __init__(self, expression: Any, low: float, high: float):
        self._values, self._low, self._high = expression._values, low, high
        self._known: dict[Hashable, Tensor] = {}

    def of(self, field: Any) -> Tensor:
        """The value of a field."""
        if isinstance(field._computed, Tensor) and not field._computed.is_floating_point():  # a comparison
            return self._of_source(field._sources[0][1])
        total: Any = self.column(field._linear.shape, self._values.shape[1]) if field._linear.operators else 0.0
        if not isinstance(field._computed, Tensor):
            return total + field._computed + torch.zeros_like(self._values.like[:, :1])
        for coefficient, source in field._sources:
            total = total + coefficient * self._of_source(source)
        return total

    def column(self, key: Hashable, width: int) -> Tensor:
        """The numbers of an output, a derivative or the inputs."""
        if key not in self._known:
            self._known[key] = self.new(len(self._known), width)
        return self._known[key]

    def new(self, number: int, width: int) -> Tensor:
        like = self._values.like
        fractions = _fractions(len(like) * width, number, like).view(-1, width)
        return (self._low + (self._high - self._low) * fractions).to(like)

    def _of_source(self, source: Any) -> Any:
        if isinstance(source, Coordinate):
            x = self.column("inputs", self._values.like.shape[1])
            return x if source.axis is None else x[:, source.axis : source.axis + 1]
        if isinstance(source, Constant | EqualRows):
            return source.value
        if isinstance(source, NonlocalTerm):  # of the network, whatever the batch is
            return self.column(("nonlocal", id(source)), self._values.shape[1])
        assert isinstance(source, RecordedCall)
        key = id(source)
        if key not in self._known:
            given = flattened((source.args, dict(source.kwargs)))
            values = [self.of(leaf) if hasattr(leaf, "_linear") else leaf for leaf in given]
            self._known[key] = source.repeated(values)
        return self._known[key]


class _Mixture(_Numbers):
    """Values for numbers of which some points have those of one set, the others those of the other."""

    def __init__(self, expression: Any, first: _Numbers, second: _Numbers, chosen: Tensor):
        super().__init__(expression, 0.0, 0.0)
        self._first, self._second, self._chosen = first, second, chosen.unsqueeze(1)

    def column(self, key: Hashable, width: int) -> Tensor:
        return torch.where(self._chosen, self._first.column(key, width), self._second.column(key, width))
