"""Upwind derivatives, for convective terms."""

from __future__ import annotations

import numbers
from typing import Any

import torch
from torch import Tensor

from dudx.errors import InputError
from dudx.operators import D, Partial
from dudx.residual.chain_rule import NonlocalTerm
from dudx.residual.linear_expression import NO_DERIVATIVES


class Upwinding:
    """Methods of fields that depend on the direction of a flow."""

    _values: Any
    _linear: Any
    _computed: Any
    _axis: Any
    _tensor: Any

    def upwind(self, name: str, by: Any) -> Any:
        """The first derivative along an input, from the side that the flow `by` comes from: `u * u.upwind("x", by=u)`.

        The difference is a backward one where `by` is positive, and a forward one otherwise. `CAN` uses its
        second-order upwind scheme; `FD`, `EFD` and `SFD` use one-sided differences of their accuracy. With an exact
        engine such as `AD` or `Taylor` this is `u.x`. Other engines that approximate refuse it. `by` is a field, a
        number, or a tensor with one number per point; the choice itself has no gradient.
        """
        axis = self._axis(name)
        plain = not isinstance(self._computed, Tensor) and self._linear.operators
        if not plain or any(op.terms.keys() != {Partial()} for op in self._linear.operators.values()):
            raise InputError(
                "Only outputs of the network, and their sums, have an upwind derivative; write "
                "u * u.upwind('x', by=u), and other terms by u.x."
            )
        linear = self._linear.differentiated(D(axis))
        back, ahead = (self._values.sided(linear, side) for side in ("backward", "forward"))
        flow = _flow(by, self._values.like)
        value = back if back is ahead else torch.where(flow.isnan(), torch.nan, torch.where(flow > 0, back, ahead))
        again: Any = type(self)
        return again(self._values, NO_DERIVATIVES, value, ((1.0, NonlocalTerm()),))


def _flow(by: Any, like: Tensor) -> Tensor:
    """The flow whose sign decides the side, (B, 1) or one number for all points."""
    if isinstance(by, Upwinding):
        return by._tensor()
    if isinstance(by, numbers.Real) and not isinstance(by, bool):
        return like.new_tensor(float(by))
    if not isinstance(by, Tensor) or by.numel() not in (1, len(like)):
        raise InputError(f"The flow by= is a field, a number, or a tensor with one a point; got {type(by).__name__}.")
    return by.reshape(-1, 1)
