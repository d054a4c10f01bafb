"""How a person writes a residual: `u.t + u * u.x - nu * u.xx`.

A field is an affine expression: a linear part that is still an operator, and a computed part that is a tensor.
Arithmetic with numbers keeps the linear part symbolic, so a sum of derivatives reaches the engine as one operator
however its terms are ordered.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from dudx.errors import InputError
from dudx.operators import Along, D, Directional, Laplacian, Operator, Partial, random_laplacian
from dudx.spelling import SYMBOLIC, axes_named

#: Of each output, the terms: orders of directions, axes and numbers of Laplacians of partials, with coefficients.
Shape = tuple[tuple[int, tuple], ...]

#: A residual that reads a number which changes at each call would else be remembered in all its forms.
_REMEMBERED = 256


class Linear:
    """A linear combination of derivatives of the outputs, which remembers what was made of it.

    A residual is called again and again and makes the same expressions each time: the second time they are looked up,
    and known again by being the same object.
    """

    def __init__(self, operators: Mapping[int, Operator]):
        self.operators = {output: operator for output, operator in operators.items() if operator.terms}
        #: Whether it holds tensors of one call, which must not be kept alive.
        self.passing = any(operator.holds_vectors for operator in self.operators.values())
        self._made: dict[object, Linear] = {}

    def known(self, key: object) -> Linear | None:
        """What was made of this before, by the way it was made; torch.compile shall not have to guard all of it."""
        return None if torch.compiler.is_compiling() else self._made.get(key)

    def remember(self, key: object, made: Linear) -> Linear:
        if torch.compiler.is_compiling() or made.passing:
            return made
        if len(self._made) >= _REMEMBERED:
            self._made.clear()
        self._made[key] = made
        return made

    def differentiated(self, outer: Operator) -> Linear:
        value_only = all(op.terms.keys() == {Partial()} for op in self.operators.values())
        return Linear(
            {
                # D() of a field times a number: scale instead of composing, which Along cannot do.
                # By name: torch.compile follows an operator such as @ between tensors only.
                output: outer * inner.terms[Partial()] if value_only else outer.__matmul__(inner)
                for output, inner in self.operators.items()
            }
        )

    def times(self, factor: float) -> Linear:
        made = self.known(factor)
        if made is None:
            made = Linear({output: operator * factor for output, operator in self.operators.items()})
            self.remember(factor, made)
        return made

    def plus(self, other: Linear, sign: float) -> Linear:
        if not other.operators:
            return self
        made = self.known((other, sign))
        if made is None:
            total = dict(self.operators)
            for output, operator in other.operators.items():
                total[output] = total.get(output, Operator({})) + sign * operator
            made = self.remember((other, sign), Linear(total))
        return made

    def same(self, other: Linear) -> bool:
        """Whether it is the same expression; directions that are computed anew at each call count by their values."""
        return self.shape == other.shape and all(map(torch.equal, self._directions(), other._directions()))

    @property
    def shape(self) -> Shape:
        """The expression without its tensors, in plain values, which torch.compile can compare."""
        return tuple((output, _shape(operator)) for output, operator in self.operators.items())

    def _directions(self) -> list[Tensor]:
        terms = [term for operator in self.operators.values() for term in operator.terms]
        return [term.direction for term in terms if isinstance(term, Directional)]


def _shape(operator: Operator) -> tuple:
    return tuple(
        (term.order, coefficient) if isinstance(term, Directional) else (term.axes, term.laplacians, coefficient)
        for term, coefficient in operator.terms.items()
    )


_NOTHING = Linear({})


class Values(Protocol):
    """Where a field gets its numbers from: a recorder the first time, the engine's results afterwards."""

    inputs: tuple[str, ...]
    shape: tuple[int, int]
    like: Tensor

    def of(self, linear: Linear) -> Tensor: ...

    def drawn(self, draw: Callable[[Tensor], Operator]) -> Operator: ...


class Field:
    """An output of the network inside a residual, or an expression made of such outputs and their derivatives.

    Example:
        >>> def heat(u):  # u is a field
        ...     assert isinstance(u, dudx.Field)
        ...     return u.t - u.laplacian("x", "y")
        >>> dudx.Residual(heat, inputs=("x", "y", "t"))(torch.nn.Linear(3, 1), torch.rand(5, 3), dudx.AD()).shape
        torch.Size([5, 1])
    """

    # Lets numpy's scalars stand on the left of a product: they would otherwise try to make an array of us.
    __array_ufunc__ = None

    def __init__(self, values: Values, linear: Linear, computed: Tensor | float = 0.0):
        self._values = values
        self._linear = linear
        self._computed = computed

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

    def along(self, v: Tensor, order: int = 1) -> Field:
        """The derivative along a vector given at each point, a (B, d) tensor such as the normals."""
        if isinstance(v, Field):
            raise InputError("The direction of along must be known beforehand: it cannot be computed from a field.")
        return self._differentiated(Along(v, order))

    def _differentiated(self, outer: Operator) -> Field:
        if isinstance(self._computed, Tensor):
            self._refuse_computed()
        return Field(self._values, self._linear.differentiated(outer))

    def _refuse_computed(self) -> None:
        raise InputError(
            "A computed expression such as u * u.x cannot be differentiated again: expand it by the product rule, "
            "for example (u * u).x as 2 * u * u.x."
        )

    def _axis(self, name: str) -> int:
        if not isinstance(name, str) or name not in self._values.inputs:
            shown = repr(name) if isinstance(name, str) else f"by a {type(name).__name__}"
            raise InputError(f"There is no input named {shown}; the inputs are {', '.join(self._values.inputs)}.")
        return self._values.inputs.index(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        linear = self._linear.known(name)
        if linear is None:
            axes = axes_named(name, self._values.inputs)
            if axes is None:
                return self._method(name)
            linear = self._linear.remember(name, self._linear.differentiated(D(*axes)))
        if isinstance(self._computed, Tensor):
            self._refuse_computed()
        return Field(self._values, linear)

    def _method(self, name: str) -> Any:
        if hasattr(Tensor, name):
            return getattr(self._tensor(), name)
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
            return Field(self._values, self._linear.plus(other._linear, sign), computed)
        if isinstance(other, numbers.Real | Tensor):
            return Field(self._values, self._linear, _sum(self._computed, other, sign))
        return NotImplemented

    def _times(self, factor: float) -> Field:
        computed = self._computed * factor if isinstance(self._computed, Tensor) or self._computed else 0.0
        return Field(self._values, self._linear.times(factor), computed)

    def _apply(self, function: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        return _wrapped(self._values, function(*tensors_of(args), **tensors_of(kwargs)))

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
        if isinstance(other, Field):
            return Field(self._values, _NOTHING, torch.mul(self._tensor(), other._tensor()))
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
        if _is_everything(key):
            return self  # and stays an expression that can be differentiated
        return self._apply(lambda tensor: tensor[key], self)

    def __bool__(self) -> bool:
        raise InputError("A residual cannot branch on the value of a field; use torch.where instead of if.")

    def __repr__(self) -> str:
        return f"Field({self._linear.operators}, computed={isinstance(self._computed, Tensor)})"

    @classmethod
    def __torch_function__(cls, function: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Torch functions see tensors; the sums, differences and products among them stay symbolic if they can."""
        symbolic = SYMBOLIC.get(getattr(function, "__name__", ""))
        if symbolic is not None and len(args) == 2 and not kwargs:
            return symbolic(*args)
        field = next(a for a in _flattened((args, kwargs or {})) if isinstance(a, Field))
        return field._apply(function, *args, **(kwargs or {}))


def _is_everything(key: object) -> bool:
    """Whether an index takes all of a column: u[:], u[:, :], u[:, 0:1] or u[:, :1]."""
    slices = key if isinstance(key, tuple) else (key,)
    if not 1 <= len(slices) <= 2 or not all(isinstance(part, slice) for part in slices):
        return False
    return slices[0] == slice(None) and (len(slices) == 1 or len(range(1)[slices[1]]) == 1)


def _sum(a: Any, b: Any, sign: float) -> Any:
    """The sum a + sign · b, without work for what is not there."""
    if not isinstance(b, Tensor) and b == 0:
        return a
    b = b if sign == 1 else -b
    return b if not isinstance(a, Tensor) and a == 0 else a + b


def tensors_of(value: Any) -> Any:
    """Fields replaced by their tensors, also inside the containers that torch functions take."""
    if isinstance(value, Field):
        return value._tensor()
    if isinstance(value, tuple | list):
        return type(value)(tensors_of(item) for item in value)
    if isinstance(value, dict):
        return {key: tensors_of(item) for key, item in value.items()}
    return value


def _wrapped(values: Values, result: Any) -> Any:
    if isinstance(result, Tensor):
        return Field(values, _NOTHING, result)
    if isinstance(result, tuple | list):
        return type(result)(_wrapped(values, item) for item in result)
    return result


def _flattened(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in _flattened(item)]
    return [value]
