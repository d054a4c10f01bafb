"""Fields, in which a residual is written: `u.t + u * u.x - nu * u.xx`.

A field is an affine expression: a linear part that is still an operator, and a computed part that is a tensor.
Arithmetic with numbers keeps the linear part symbolic, so a sum of derivatives reaches the engine as one operator
however its terms are ordered. The computed part keeps how it was computed, so that it can be differentiated too.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dudx.errors import InputError
from dudx.operators import Along, D, Laplacian, Operator, Partial, Second
from dudx.residual.chain_rule import Constant, Coordinate, RecordedCall, Sources, differentiated
from dudx.residual.derivative_names import axes_named
from dudx.residual.field_operators import FieldOperators, refuse_if_written, refuse_leaving, tensors_of, writes
from dudx.residual.field_values import Values
from dudx.residual.linear_expression import NO_DERIVATIVES, Linear
from dudx.residual.nonlocal_terms.integrals import Integrals
from dudx.residual.sample_mixing import refuse_mixed_samples

__all__ = ["Field", "tensors_of"]


class Field(FieldOperators, Integrals):
    """An output of the network inside a residual, or an expression of such outputs and their derivatives.

    A field has the methods of a tensor, except for those that write into it.

    Example:
        >>> def heat(u):  # u is a field
        ...     assert isinstance(u, dudx.residual.field.Field)
        ...     return u.t - u.laplacian("x", "y")
        >>> dudx.Residual(heat, inputs=("x", "y", "t"))(torch.nn.Linear(3, 1), torch.rand(5, 3), dudx.AD()).shape
        torch.Size([5, 1])
    """

    def __init__(self, values: Values, linear: Linear, computed: Tensor | float = 0.0, sources: Sources = ()):
        self._values = values
        self._linear = linear
        self._computed = computed
        #: The sources whose sum the computed part is, with their factors.
        self._sources = sources

    @classmethod
    def _coordinate(cls, values: Values, axis: int | None, column: Tensor) -> Field:
        return cls(values, NO_DERIVATIVES, column, ((1.0, Coordinate(axis)),))

    # -- derivatives ---------------------------------------------------------------------------------------------

    def d(self, *names: str) -> Field:
        """The partial derivative along the named inputs: `u.d("x", "x", "y")`."""
        return self._differentiated(D(*(self._axis(name) for name in names)))

    def laplacian(self, *names: str) -> Field:
        """The sum of second derivatives along the named inputs, or along all of them."""
        return self._differentiated(Laplacian([self._axis(name) for name in names] if names else None))

    def along(self, v: Any, order: int = 1) -> Field:
        """The derivative along a vector given at each point, a (B, d) tensor such as the normals."""
        along = Along(self._known_beforehand(v, "direction of along"), order)
        return self._differentiated(self._values.in_slots(along))

    def second(self, a: Any) -> Field:
        """The sum of a_ij ∂²/∂x_i∂x_j over all inputs, for a symmetric matrix, or (B, d, d) with one for each point."""
        second = Second(self._known_beforehand(a, "matrix of second"))
        return self._differentiated(self._values.in_slots(second) if second.vectors else second)

    @staticmethod
    def _known_beforehand(value: Any, name: str) -> Any:
        """A value that does not depend on the network, as a tensor if it is a field."""
        if isinstance(value, Field):
            if any(source.depends_on_outputs for _, source in value._sources) or value._linear.operators:
                raise InputError(f"The {name} must be known beforehand: it cannot be computed from a field.")
            return value._tensor()
        return value

    def _differentiated(self, outer: Operator) -> Field:
        if not isinstance(self._computed, Tensor):
            linear = self._remembered(outer) or self._linear.remember(outer, self._linear.differentiated(outer))
            return Field(self._values, linear)
        total: Any = Field(self._values, self._linear.differentiated(outer)) if self._linear.operators else 0.0
        for term, coefficient in outer.expanded(len(self._values.inputs)).terms.items():
            if not isinstance(term, Partial):
                raise InputError(
                    "The derivative of a computed expression along a vector is not known; take those along the inputs "
                    "and combine them: n_x * e.x + n_y * e.y."
                )
            part: Any = Field(self._values, NO_DERIVATIVES, self._computed, self._sources)
            for axis in term.axes:
                part = differentiated(part, axis) if isinstance(part, Field) else 0.0
            total = total + part * coefficient
        if self._values.recording:
            refuse_mixed_samples(self)
        return total if isinstance(total, Field) else Field(self._values, NO_DERIVATIVES, float(total))

    def _axis(self, name: str) -> int:
        if not isinstance(name, str) or name not in self._values.inputs:
            shown = repr(name) if isinstance(name, str) else f"by a {type(name).__name__}"
            raise InputError(f"There is no input named {shown}; the inputs are {', '.join(self._values.inputs)}.")
        return self._values.inputs.index(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if isinstance(self._computed, Tensor):
            axes = axes_named(name, self._values.inputs)
            return self._tensor_attribute(name) if axes is None else self._differentiated(D(*axes))
        linear = self._remembered(name)
        if linear is None:
            axes = axes_named(name, self._values.inputs)
            if axes is None:
                return self._tensor_attribute(name)
            linear = self._linear.remember(name, self._linear.differentiated(D(*axes)))
        return Field(self._values, linear)

    def _remembered(self, key: object) -> Linear | None:
        """A known expression of the linear part; not in torch.compile, which would add guards for all of them."""
        return None if torch.compiler.is_compiling() else self._linear.known.get(key)

    def _tensor_attribute(self, name: str) -> Any:
        attribute = getattr(Tensor, name, None)
        if callable(attribute):
            refuse_leaving(name)
            if writes(name, {}):
                return lambda *args, **kwargs: self.__setitem__(..., args)  # which raises the error
            return lambda *args, **kwargs: self._apply(attribute, self, *args, **kwargs)
        if attribute is not None:
            found = getattr(self._tensor(), name)
            return self._apply(lambda tensor: getattr(tensor, name), self) if isinstance(found, Tensor) else found
        raise InputError(
            f"A field has no derivative or tensor method named {name!r}; the inputs are "
            f"{', '.join(self._values.inputs)}, so u.{self._values.inputs[0]} is a derivative."
        )

    # -- the numbers ---------------------------------------------------------------------------------------------

    def _tensor(self) -> Tensor:
        """The numbers of the whole expression; asking for them is what records a request."""
        total = self._computed
        if self._linear.operators:
            value = self._values.of(self._linear)
            return value if not isinstance(total, Tensor) and total == 0 else value + total
        return total if isinstance(total, Tensor) else self._values.like.new_full(self._values.shape, total)

    def _apply(self, function: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        """Call a torch function on the numbers of fields; the result is a field that keeps the call."""
        if self._values.recording:
            result = refuse_if_written(function, tensors_of(args), tensors_of(kwargs))
        else:
            result = function(*tensors_of(args), **tensors_of(kwargs))
        return _as_fields(self._values, result, RecordedCall(function, args, kwargs))

    # -- arithmetic that keeps the linear part symbolic ----------------------------------------------------------

    def _plus(self, other: object, sign: float) -> Field:
        if isinstance(other, Field):
            computed = _sum(self._computed, other._computed, sign)
            sources = self._sources + (
                other._sources if sign == 1 else tuple((-factor, source) for factor, source in other._sources)
            )
            linear = self._linear
            if other._linear.operators:
                linear = self._remembered((other._linear, sign)) or self._linear.plus(other._linear, sign)
            return Field(self._values, linear, computed, sources)
        if isinstance(other, numbers.Real | Tensor):
            sources = (*self._sources, (sign, Constant(other)))
            return Field(self._values, self._linear, _sum(self._computed, other, sign), sources)
        return NotImplemented

    def _times(self, factor: float) -> Field:
        computed = self._computed * factor if isinstance(self._computed, Tensor) or self._computed else 0.0
        sources = tuple((factor * c, source) for c, source in self._sources)
        linear = self._remembered(factor) or self._linear.times(factor)
        return Field(self._values, linear, computed, sources)

    def __add__(self, other: object) -> Field:
        return self._plus(other, 1.0)

    __radd__ = __add__

    def __sub__(self, other: object) -> Field:
        return self._plus(other, -1.0)

    def __rsub__(self, other: object) -> Field:
        return (-self)._plus(other, 1.0)

    def __neg__(self) -> Field:
        return self._times(-1.0)

    def __pos__(self) -> Field:
        return self

    def __mul__(self, other: object) -> Field:
        if isinstance(other, Field):  # without _apply, as most residuals have such products
            product = torch.mul(self._tensor(), other._tensor())
            return Field(self._values, NO_DERIVATIVES, product, ((1.0, RecordedCall(torch.mul, (self, other), {})),))
        if isinstance(other, numbers.Real) and not (self._values.compiled and isinstance(other, np.generic)):
            return self._times(float(other))
        return self._apply(torch.mul, self, other) if isinstance(other, Tensor | np.generic) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Field:
        if isinstance(other, numbers.Real) and not (self._values.compiled and isinstance(other, np.generic)):
            return self._times(1 / float(other))
        known = isinstance(other, Field | Tensor | np.generic)
        return self._apply(torch.div, self, other) if known else NotImplemented

    def __repr__(self) -> str:
        return f"Field({self._linear.operators}, computed={isinstance(self._computed, Tensor)})"


def _sum(a: Any, b: Any, sign: float) -> Any:
    """The sum a + sign · b, without an operation for a part that is the number 0."""
    if not isinstance(b, Tensor) and b == 0:
        return a
    b = b if sign == 1 else -b
    return b if not isinstance(a, Tensor) and a == 0 else a + b


def _as_fields(values: Values, result: Any, call: RecordedCall) -> Any:
    if isinstance(result, Tensor):
        return Field(values, NO_DERIVATIVES, result, ((1.0, call),))
    if isinstance(result, tuple | list):
        parts = [_as_fields(values, item, call.result(number)) for number, item in enumerate(result)]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result
