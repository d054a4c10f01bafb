"""How a person writes a residual: `u.t + u * u.x - nu * u.xx`.

The function is called twice. The first time its fields only record which operators are asked for; the engine then
computes all of them together, and the second time the fields hold the numbers. A field is an affine expression:
a linear part that is still an operator, and a computed part that is a tensor. Arithmetic with numbers keeps the
linear part symbolic, so a sum of derivatives reaches the engine as one operator however its terms are ordered.
"""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from dudx import checks
from dudx.checks import Model
from dudx.compilation import Compiled, shapes
from dudx.engines.base import Engine, evaluate, prepare
from dudx.errors import InputError
from dudx.operators import Along, D, Laplacian, Operator, Partial
from dudx.stochastic import random_laplacian

Linear = Mapping[int, Operator]

_NO_AXIS = 10**9


class _Values(Protocol):
    """Where a field gets its numbers from: a recorder the first time, the engine's results the second."""

    inputs: tuple[str, ...]
    shape: tuple[int, int]
    like: Tensor

    def value(self, output: int, operator: Operator) -> Tensor: ...

    def drawn(self, draw: Callable[[Tensor], Operator]) -> Operator: ...


class Field:
    """An output of the network inside a residual, or an expression made of such outputs and their derivatives."""

    # Lets numpy's scalars stand on the left of a product: they would otherwise try to make an array of us.
    __array_ufunc__ = None

    def __init__(self, values: _Values, linear: Linear, computed: Tensor | float = 0.0):
        self._values = values
        self._linear = {output: operator for output, operator in linear.items() if operator.terms}
        self._computed = computed

    # -- derivatives ---------------------------------------------------------------------------------------------

    def d(self, *names: str) -> Field:
        """The partial derivative along the named inputs: `u.d("x", "x", "y")`."""
        return self._differentiated(D(*(self._axis(name) for name in names)))

    def laplacian(self, *names: str) -> Field:
        """The sum of second derivatives along the named inputs, or along all of them."""
        return self._differentiated(Laplacian([self._axis(name) for name in names or self._values.inputs]))

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
            raise InputError(
                "A computed expression such as u * u.x cannot be differentiated again: expand it by the product rule, "
                "for example (u * u).x as 2 * u * u.x."
            )
        value_only = all(op.terms.keys() == {Partial()} for op in self._linear.values())
        applied = {
            # D() of a field times a number: scale instead of composing, which Along cannot do.
            output: outer * inner.terms[Partial()] if value_only else outer @ inner
            for output, inner in self._linear.items()
        }
        return Field(self._values, applied)

    def _axis(self, name: str) -> int:
        if not isinstance(name, str) or name not in self._values.inputs:
            shown = repr(name) if isinstance(name, str) else f"by a {type(name).__name__}"
            raise InputError(f"There is no input named {shown}; the inputs are {', '.join(self._values.inputs)}.")
        return self._values.inputs.index(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        axes = _parse(name, self._values.inputs)
        if axes is not None:
            return self._differentiated(D(*axes))
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
        for output, operator in self._linear.items():
            total = self._values.value(output, operator) + total
        return total if isinstance(total, Tensor) else self._values.like.new_full(self._values.shape, total)

    def _plus(self, other: object, sign: float) -> Field:
        if isinstance(other, Field):
            linear = dict(self._linear)
            for output, operator in other._linear.items():
                linear[output] = linear.get(output, Operator({})) + sign * operator
            return Field(self._values, linear, self._computed + sign * other._computed)
        if isinstance(other, numbers.Real | Tensor):
            return Field(self._values, self._linear, self._computed + sign * other)  # type: ignore[operator]
        return NotImplemented

    def _times(self, factor: float) -> Field:
        linear = {output: operator * factor for output, operator in self._linear.items()}
        return Field(self._values, linear, self._computed * factor)

    def _apply(self, function: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        return _wrapped(self._values, function(*_plain(args), **_plain(kwargs)))

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
        if isinstance(other, numbers.Real):
            return self._times(float(other))
        return self._apply(torch.mul, self, other) if isinstance(other, Field | Tensor) else NotImplemented

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

    def __getitem__(self, key: object) -> Field:
        return self._apply(lambda tensor: tensor[key], self)

    def __bool__(self) -> bool:
        raise InputError("A residual cannot branch on the value of a field; use torch.where instead of if.")

    def __repr__(self) -> str:
        return f"Field({self._linear}, computed={isinstance(self._computed, Tensor)})"

    @classmethod
    def __torch_function__(cls, function: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Torch functions see tensors; the sums, differences and products among them stay symbolic if they can."""
        symbolic = _SYMBOLIC.get(function)
        if symbolic is not None and len(args) == 2 and not kwargs:
            return symbolic(*args)
        field = next(a for a in _flattened((args, kwargs or {})) if isinstance(a, Field))
        return field._apply(function, *args, **(kwargs or {}))


def _symbolic_functions() -> dict[object, Callable[[Any, Any], Any]]:
    """Torch's spellings of + - *, which dispatch here when the other operand is a tensor."""

    def add(a: Any, b: Any) -> Any:
        return a + b if isinstance(a, Field) else b.__radd__(a)

    def subtract(a: Any, b: Any) -> Any:
        return a - b if isinstance(a, Field) else b.__rsub__(a)

    def multiply(a: Any, b: Any) -> Any:
        return a * b if isinstance(a, Field) else b.__rmul__(a)

    table: dict[object, Callable[[Any, Any], Any]] = {torch.add: add, torch.sub: subtract, torch.mul: multiply}
    for function, names in ((add, ("add", "__add__")), (subtract, ("sub", "__sub__")), (multiply, ("mul", "__mul__"))):
        table.update({getattr(Tensor, name): function for name in names})
    # The reflected methods are called as (tensor, field) for field + tensor; Tensor.__rsub__(a, b) is b - a.
    table.update({Tensor.__radd__: add, Tensor.__rmul__: multiply, Tensor.__rsub__: lambda a, b: subtract(b, a)})
    return table


_SYMBOLIC = _symbolic_functions()


def _plain(value: Any) -> Any:
    """Fields replaced by their tensors, also inside the containers that torch functions take."""
    if isinstance(value, Field):
        return value._tensor()
    if isinstance(value, tuple | list):
        return type(value)(_plain(item) for item in value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _wrapped(values: _Values, result: Any) -> Any:
    if isinstance(result, Tensor):
        return Field(values, {}, result)
    if isinstance(result, tuple | list):
        return type(result)(_wrapped(values, item) for item in result)
    return result


def _flattened(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in _flattened(item)]
    return [value]


def _are_names(names: object) -> bool:
    if isinstance(names, str) or not isinstance(names, Sequence):
        return False
    return all(isinstance(name, str) and name.isidentifier() for name in names)


def _parse(name: str, inputs: Sequence[str]) -> tuple[int, ...] | None:
    """The axes spelled by a chain of input names, longest first: "xxt" is (0, 0, 1) for inputs x and t."""
    if not name:
        return ()
    for axis in sorted(range(len(inputs)), key=lambda i: -len(inputs[i])):
        if name.startswith(inputs[axis]):
            rest = _parse(name[len(inputs[axis]) :], inputs)
            if rest is not None:
                return (axis, *rest)
    return None


class _Recorder:
    """Hands out placeholders and notes what was asked for."""

    def __init__(self, inputs: tuple[str, ...], x: Tensor):
        self.inputs, self.shape, self.like = inputs, (len(x), 1), x
        self.asked: list[tuple[int, Operator]] = []
        # NaN, so that a direction computed from a field's values is noticed: engines refuse directions with NaN.
        self.placeholder = x.new_full(self.shape, float("nan"))

    def value(self, output: int, operator: Operator) -> Tensor:
        self.asked.append((output, operator))
        return self.placeholder

    def drawn(self, draw: Callable[[Tensor], Operator]) -> Operator:
        return draw(self.like)


class _Results:
    """Hands out the engine's results in the order in which they were asked for."""

    def __init__(self, inputs: tuple[str, ...], x: Tensor, results: Sequence[Tensor]):
        self.inputs, self.shape, self.like = inputs, (len(x), 1), x
        self.results = iter(results)
        self.draws = 0

    def value(self, output: int, operator: Operator) -> Tensor:
        result = next(self.results, None)
        if result is None:
            raise InputError("The residual asked for other derivatives when it was called again; it must not branch.")
        return result

    def drawn(self, draw: Callable[[Tensor], Operator]) -> Operator:
        """A stand-in for the operator drawn while recording: never evaluated, only different from every other."""
        self.draws += 1
        return D(_NO_AXIS + self.draws)


class Residual:
    """A differential equation as a function of fields.

    Args:
        function: takes the network's outputs by name, in order, and any inputs and data it needs by name; returns one
            expression or, for several equations, a tuple. Parameters with a default are left alone.
        inputs: the names of the network's inputs, in order.
        data: names of tensors that are given with each call, `residual(model, x, engine, n=normals)`.
        compile: compile network, derivatives and residual into one graph with torch.compile, for engines that can
            (Taylor, FD, EFD, SFD). The first call for a shape takes seconds; `loss` gains most.

    A number in the function stays symbolic; a tensor, such as an `nn.Parameter` to be learned, is multiplied with the
    computed derivative and so gets a gradient.
    """

    def __init__(
        self, function: Callable[..., Any], inputs: Sequence[str], data: Sequence[str] = (), compile: bool = False
    ):
        self._compiled = Compiled() if compile else None
        if not callable(function):
            raise InputError(f"A residual is made of a function, def heat(u): ...; got {type(function).__name__}.")
        if not _are_names(inputs) or not inputs:
            raise InputError(f'The inputs are named by a tuple such as ("x", "t"); got {inputs!r}.')
        if not _are_names(data):
            raise InputError(f'The data are named by a tuple such as ("n",); got {data!r}.')
        self.function = function
        self.inputs = tuple(inputs)
        self.data = tuple(data)
        reserved = {"d", "along", "laplacian"} & set(self.inputs)
        if reserved or len(set(self.inputs)) < len(self.inputs):
            raise InputError(f"Input names must differ from each other and from d, along, laplacian; got {inputs!r}.")
        taken = {*self.inputs, "self", "model", "x", "engine"} & set(self.data)
        if taken or len(set(self.data)) < len(self.data):
            raise InputError(
                "The names of the data must differ from each other, from the inputs and from model, x, engine; "
                f"got {data!r}."
            )
        self.outputs, self._arguments = self._parameters()

    def _parameters(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The parameters that are outputs, and all those that are passed."""
        kinds = inspect.Parameter
        passed, outputs = [], []
        try:
            parameters = inspect.signature(self.function).parameters
        except ValueError as error:
            raise InputError("The parameters of this built-in function are unknown; wrap it in a lambda.") from error
        for name, parameter in parameters.items():
            if parameter.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD, kinds.POSITIONAL_ONLY):
                raise InputError("A residual's parameters are matched by name: write them out, without *, ** or /.")
            known = name in self.inputs or name in self.data
            if not known and parameter.default is not kinds.empty:
                continue
            passed.append(name)
            if not known:
                outputs.append(name)
        if not outputs:
            raise InputError("A residual needs at least one parameter that names an output of the network, such as u.")
        return tuple(outputs), tuple(passed)

    def operators(self, x: Tensor, **data: Tensor) -> list[Operator]:
        """The operators the function asks for, each once; what `engine.calibrated` wants to know."""
        x = self._points(x)
        return list(dict.fromkeys(operator for _, operator in self._asked(x, data)))

    def __call__(self, model: Model, x: Tensor, engine: Engine, **data: Tensor) -> Tensor | tuple[Tensor, ...]:
        """The residual at the points, (B, 1), or a tuple of them; differentiable in the parameters."""
        return self._evaluated(model, x, engine, data, _fresh)

    def loss(self, model: Model, x: Tensor, engine: Engine, **data: Tensor) -> Tensor:
        """The mean square of the residual, summed over the equations; with `compile` one compiled graph."""
        return self._evaluated(model, x, engine, data, _mean_square)

    def _evaluated(
        self, model: Model, x: Tensor, engine: Engine, data: Mapping[str, Tensor], finish: Callable[[Any], Any]
    ) -> Any:
        x = self._points(x)
        asked = self._asked(x, data)
        if not asked:
            raise InputError("The residual asks for nothing of the network; use its outputs or their derivatives.")
        distinct = list(dict.fromkeys(operator for _, operator in asked))
        places = tuple((output, distinct.index(operator)) for output, operator in asked)
        plan = prepare(model, x, distinct, engine) if self._compiled is not None else None
        if plan is None:
            return finish(self._combined(evaluate(model, x, distinct, engine), places, x, data))
        names, tensors = tuple(data), tuple(data.values())

        def run(model: Model, x: Tensor, planned: tuple[Tensor, ...], given: tuple[Tensor, ...]) -> Any:
            return finish(self._combined(plan.run(model, x, planned), places, x, dict(zip(names, given, strict=True))))

        key = (plan.key, places, finish, torch.is_grad_enabled(), shapes(x, *plan.tensors, *tensors))
        assert self._compiled is not None
        return self._compiled(key, run, model, x, plan.tensors, tensors)

    def _asked(self, x: Tensor, data: Mapping[str, Tensor]) -> list[tuple[int, Operator]]:
        recorder = _Recorder(self.inputs, x)
        self._call(recorder, x, data)
        return recorder.asked

    def _combined(
        self, computed: Sequence[Tensor], places: Sequence[tuple[int, int]], x: Tensor, data: Mapping[str, Tensor]
    ) -> Any:
        """The function's value from the computed operators."""
        columns = computed[0].shape[1]
        if columns != len(self.outputs):
            raise InputError(
                f"The residual names {len(self.outputs)} output(s) ({', '.join(self.outputs)}) and the model returns "
                f"{columns}; name them all, in order."
            )
        results = [computed[place][:, output : output + 1] for output, place in places]
        return self._call(_Results(self.inputs, x, results), x, data)

    def compiled(self) -> Residual:
        """The same residual, compiled."""
        return Residual(self.function, self.inputs, self.data, compile=True)

    @property
    def compile_seconds(self) -> float:
        """How long the calls took in which compilation happened."""
        return self._compiled.seconds if self._compiled is not None else 0.0

    def _points(self, x: Tensor) -> Tensor:
        x = checks.points(x)
        if x.shape[1] != len(self.inputs):
            raise InputError(
                f"The residual has {len(self.inputs)} inputs ({', '.join(self.inputs)}) and the points have "
                f"{x.shape[1]} columns."
            )
        return x

    def _call(self, values: _Values, x: Tensor, data: Mapping[str, Tensor]) -> Any:
        if set(data) != set(self.data):
            raise InputError(
                f"The residual expects the data {sorted(self.data)} with each call and got {sorted(data)}."
            )
        named: dict[str, Any] = {**{name: x[:, i : i + 1] for i, name in enumerate(self.inputs)}, **data}
        named.update({name: Field(values, {i: D()}) for i, name in enumerate(self.outputs)})
        returned = self.function(**{name: named[name] for name in self._arguments})
        if isinstance(returned, tuple | list):
            return tuple(self._checked(item, x) for item in returned)
        return self._checked(returned, x)

    def _checked(self, returned: object, x: Tensor) -> Tensor:
        value = _plain(returned)
        if not isinstance(value, Tensor) or value.shape != (len(x), 1):
            got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise InputError(f"A residual must return one value a point, shape ({len(x)}, 1); got {got}.")
        return value


def _fresh(values: Any) -> Any:
    """The residual in tensors of its own: a compiled graph must not return views of a shared buffer."""
    return tuple(_fresh(value) for value in values) if isinstance(values, tuple) else values.clone()


def _mean_square(values: Any) -> Tensor:
    equations = values if isinstance(values, tuple) else (values,)
    return torch.stack([value.square().mean() for value in equations]).sum()
