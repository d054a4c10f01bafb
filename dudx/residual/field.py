"""How a person writes a residual: `u.t + u * u.x - nu * u.xx`.

A field is an affine expression: a linear part that is still an operator, and a computed part that is a tensor.
Arithmetic with numbers keeps the linear part symbolic, so a sum of derivatives reaches the engine as one operator
however its terms are ordered. The computed part knows what it was made of, so that it can be differentiated too.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from dudx.backend.containers import flattened, mapped
from dudx.errors import InputError
from dudx.operators import Along, D, Laplacian, Operator, Partial, Second, random_laplacian
from dudx.residual.chain_rule import Constant, Coordinate, Made, Sources, differentiated
from dudx.residual.derivative_names import SYMBOLIC, axes_named
from dudx.residual.linear_expression import NOTHING, Linear
from dudx.residual.nonlocal_terms.integrals import Integrals
from dudx.residual.nonlocal_terms.upwinding import Upwinding

#: Functions that make a new tensor of the shape of one; torch.compile looks names up, and does not take them apart.
_LIKE = dict.fromkeys(name for name in dir(torch) if name.endswith("_like"))


class Values(Protocol):
    """Where a field gets its numbers from: a recorder the first time, the engine's results afterwards."""

    inputs: tuple[str, ...]
    shape: tuple[int, int]
    like: Tensor

    def of(self, linear: Linear) -> Tensor: ...

    def at(self, linear: Linear, rows: Tensor) -> Tensor: ...

    def sided(self, linear: Linear, side: str) -> Tensor: ...

    def in_slots(self, operator: Operator) -> Operator: ...

    def drawn(self, draw: Callable[[Tensor], Operator]) -> Operator: ...


class Field(Integrals, Upwinding):
    """An output of the network inside a residual, or an expression made of such outputs and their derivatives.

    Example:
        >>> def heat(u):  # u is a field
        ...     assert isinstance(u, dudx.residual.field.Field)
        ...     return u.t - u.laplacian("x", "y")
        >>> dudx.Residual(heat, inputs=("x", "y", "t"))(torch.nn.Linear(3, 1), torch.rand(5, 3), dudx.AD()).shape
        torch.Size([5, 1])
    """

    # Lets numpy's scalars stand on the left of a product: they would otherwise try to make an array of us.
    __array_ufunc__ = None

    def __init__(self, values: Values, linear: Linear, computed: Tensor | float = 0.0, made: Sources = ()):
        self._values = values
        self._linear = linear
        self._computed = computed
        #: What the computed part is the sum of, with factors.
        self._made = made

    @classmethod
    def _coordinate(cls, values: Values, axis: int, column: Tensor) -> Field:
        return cls(values, NOTHING, column, ((1.0, Coordinate(axis)),))

    # -- derivatives ---------------------------------------------------------------------------------------------

    def d(self, *names: str) -> Field:
        """The partial derivative along the named inputs: `u.d("x", "x", "y")`."""
        return self._differentiated(D(*(self._axis(name) for name in names)))

    def laplacian(self, *names: str) -> Field:
        """The sum of second derivatives along the named inputs, or along all of them."""
        return self._differentiated(Laplacian([self._axis(name) for name in names] if names else None))

    def random_laplacian(self, samples: int = 1, kind: str = "axes", generator: Generator | None = None) -> Field:
        """An unbiased estimate of the Laplacian from random directions; see `dudx.random_laplacian`."""
        return self._differentiated(self._values.drawn(lambda x: random_laplacian(x, samples, kind, generator)))

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
        if isinstance(value, Field):
            if any(source.of_outputs for _, source in value._made) or value._linear.operators:
                raise InputError(f"The {name} must be known beforehand: it cannot be computed from a field.")
            return value._tensor()
        return value

    def _differentiated(self, outer: Operator) -> Field:
        if not isinstance(self._computed, Tensor):
            linear = self._known(outer) or self._linear.remember(outer, self._linear.differentiated(outer))
            return Field(self._values, linear)
        total: Any = Field(self._values, self._linear.differentiated(outer)) if self._linear.operators else 0.0
        for term, coefficient in outer.expanded(len(self._values.inputs)).terms.items():
            if not isinstance(term, Partial):
                raise InputError(
                    "The derivative of a computed expression along a vector is not known; take those along the inputs "
                    "and combine them: n_x * e.x + n_y * e.y."
                )
            part: Any = Field(self._values, NOTHING, self._computed, self._made)
            for axis in term.axes:
                part = differentiated(part, axis) if isinstance(part, Field) else 0.0
            total = total + part * coefficient
        return total if isinstance(total, Field) else Field(self._values, NOTHING, float(total))

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
            return self._method(name) if axes is None else self._differentiated(D(*axes))
        linear = self._known(name)
        if linear is None:
            axes = axes_named(name, self._values.inputs)
            if axes is None:
                return self._method(name)
            linear = self._linear.remember(name, self._linear.differentiated(D(*axes)))
        return Field(self._values, linear)

    def _known(self, key: object) -> Linear | None:
        """What was made of the linear part before; torch.compile shall not have to guard all of it."""
        return None if torch.compiler.is_compiling() else self._linear.known.get(key)

    def _method(self, name: str) -> Any:
        method = getattr(Tensor, name, None)
        if callable(method):
            return lambda *args, **kwargs: self._apply(method, self, *args, **kwargs)
        if method is not None:
            found = getattr(self._tensor(), name)
            return self._apply(lambda tensor: getattr(tensor, name), self) if isinstance(found, Tensor) else found
        raise InputError(
            f"A field has no derivative or tensor method named {name!r}; the inputs are "
            f"{', '.join(self._values.inputs)}, so u.{self._values.inputs[0]} is a derivative."
        )

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def _tensor(self) -> Tensor:
        """The numbers of the whole expression; asking for them is what records a request."""
        total = self._computed
        if self._linear.operators:
            value = self._values.of(self._linear)
            return value if not isinstance(total, Tensor) and total == 0 else value + total
        return total if isinstance(total, Tensor) else self._values.like.new_full(self._values.shape, total)

    def _plus(self, other: object, sign: float) -> Field:
        if isinstance(other, Field):
            computed = _sum(self._computed, other._computed, sign)
            made = self._made + (other._made if sign == 1 else tuple((-c, source) for c, source in other._made))
            linear = self._linear
            if other._linear.operators:
                linear = self._known((other._linear, sign)) or self._linear.plus(other._linear, sign)
            return Field(self._values, linear, computed, made)
        if isinstance(other, numbers.Real | Tensor):
            made = (*self._made, (sign, Constant(other))) if isinstance(other, Tensor) else self._made
            return Field(self._values, self._linear, _sum(self._computed, other, sign), made)
        return NotImplemented

    def _times(self, factor: float) -> Field:
        computed = self._computed * factor if isinstance(self._computed, Tensor) or self._computed else 0.0
        made = tuple((factor * c, source) for c, source in self._made)
        return Field(self._values, self._known(factor) or self._linear.times(factor), computed, made)

    def _apply(self, function: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        result = function(*tensors_of(args), **tensors_of(kwargs))
        return _wrapped(self._values, result, Made(function, args, kwargs))

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
        if isinstance(other, Field):  # by hand, as it is in most residuals and done in every call
            product = torch.mul(self._tensor(), other._tensor())
            return Field(self._values, NOTHING, product, ((1.0, Made(torch.mul, (self, other), {})),))
        if isinstance(other, numbers.Real):
            return self._times(float(other))
        return self._apply(torch.mul, self, other) if isinstance(other, Tensor) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Field:
        if isinstance(other, numbers.Real):
            return self._times(1 / float(other))
        return self._apply(torch.div, self, other) if isinstance(other, Field | Tensor) else NotImplemented

    def __rtruediv__(self, other: object) -> Field:
        return self._apply(lambda a, b: a / b, other, self)

    def __pow__(self, other: object) -> Field:
        return self._apply(torch.pow, self, other)

    def __rpow__(self, other: object) -> Field:
        return self._apply(torch.pow, other, self)

    def __abs__(self) -> Field:
        return self._apply(torch.abs, self)

    def __gt__(self, other: object) -> Field:
        return self._apply(torch.gt, self, other)

    def __ge__(self, other: object) -> Field:
        return self._apply(torch.ge, self, other)

    def __lt__(self, other: object) -> Field:
        return self._apply(torch.lt, self, other)

    def __le__(self, other: object) -> Field:
        return self._apply(torch.le, self, other)

    def __eq__(self, other: object) -> Field:  # type: ignore[override]
        return self._apply(torch.eq, self, other)

    def __ne__(self, other: object) -> Field:  # type: ignore[override]
        return self._apply(torch.ne, self, other)

    __hash__ = object.__hash__

    def __and__(self, other: object) -> Field:
        return self._apply(torch.bitwise_and, self, other)

    def __rand__(self, other: object) -> Field:
        return self._apply(torch.bitwise_and, other, self)

    def __or__(self, other: object) -> Field:
        return self._apply(torch.bitwise_or, self, other)

    def __ror__(self, other: object) -> Field:
        return self._apply(torch.bitwise_or, other, self)

    def __invert__(self) -> Field:
        return self._apply(torch.bitwise_not, self)

    def __getitem__(self, key: object) -> Field:
        if _is_everything(key, self._values.shape[1]):
            return self  # and stays an expression that can be differentiated
        return self._apply(lambda tensor: tensor[key], self)

    def __len__(self) -> int:
        return len(self._tensor())

    def __bool__(self) -> bool:
        raise InputError("A residual cannot branch on the value of a field; use torch.where instead of if.")

    def __repr__(self) -> str:
        return f"Field({self._linear.operators}, computed={isinstance(self._computed, Tensor)})"

    @classmethod
    def __torch_function__(cls, function: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Torch functions see tensors; the sums, differences and products among them stay symbolic if they can."""
        name = getattr(function, "__name__", "")
        symbolic = SYMBOLIC.get(name)
        if symbolic is not None and len(args) == 2 and not kwargs:
            return symbolic(*args)
        if name in _LIKE:  # of its shape, but not made of it: a tensor that may be written to
            return function(*tensors_of(args), **tensors_of(kwargs or {}))
        field = next(a for a in flattened((args, kwargs or {})) if isinstance(a, Field))
        return field._apply(function, *args, **(kwargs or {}))


def _is_everything(key: object, columns: int) -> bool:
    """Whether an index takes all of a field: u[:], u[:, :] and, of one column, u[:, 0:1] or u[:, :1]."""
    slices = key if isinstance(key, tuple) else (key,)
    if not 1 <= len(slices) <= 2 or not all(isinstance(part, slice) for part in slices):
        return False
    return slices[0] == slice(None) and (len(slices) == 1 or len(range(columns)[slices[1]]) == columns)


def _sum(a: Any, b: Any, sign: float) -> Any:
    """The sum a + sign · b, without work for what is not there."""
    if not isinstance(b, Tensor) and b == 0:
        return a
    b = b if sign == 1 else -b
    return b if not isinstance(a, Tensor) and a == 0 else a + b


def tensors_of(value: Any) -> Any:
    """Fields replaced by their tensors, also inside the containers that torch functions take."""
    return mapped(value, lambda leaf: leaf._tensor() if isinstance(leaf, Field) else leaf)


def _wrapped(values: Values, result: Any, made: Made) -> Any:
    if isinstance(result, Tensor):
        return Field(values, NOTHING, result, ((1.0, made),))
    if isinstance(result, tuple | list):
        parts = [_wrapped(values, item, made.part(number)) for number, item in enumerate(result)]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result
