"""A residual: a function of fields, recorded once, planned as a whole, then evaluated.

The function is called twice. The first time its fields only record which operators are asked for; the engine then
computes all of them together, and the second time the fields hold the numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dudx import checks
from dudx.border import evaluate, prepare
from dudx.checks import Model
from dudx.compile.graphs import Compiled, shapes, unbound
from dudx.engines.base import Engine
from dudx.errors import InputError
from dudx.fields import Field, Values, plain
from dudx.operators import D, Operator

_NO_AXIS = 10**9


class _Recorder:
    """Hands out placeholders and notes what was asked for."""

    def __init__(self, inputs: tuple[str, ...], x: Tensor):
        self.inputs, self.shape, self.like = inputs, (len(x), 1), x
        self.asked: list[tuple[int, Operator]] = []
        # NaN, so that a direction computed from a field's values is noticed: engines refuse directions with NaN.
        self.placeholder = x.new_full(self.shape, float("nan"))

    def value(self, output: int, operator: Operator) -> Tensor:
        self.asked.append((output, operator.expanded(len(self.inputs))))
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
        compiling = self._compiled is not None and self._compiled.takes(model)
        plan = prepare(model, x, distinct, engine) if compiling else None
        if plan is None:
            return finish(self._combined(evaluate(model, x, distinct, engine), places, x, data))
        names, tensors = tuple(data), tuple(data.values())
        network, held, bind = unbound(model)

        def run(
            network: Any,
            residual: Residual,
            held: tuple[Tensor, ...],
            x: Tensor,
            planned: tuple[Tensor, ...],
            given: tuple[Tensor, ...],
        ) -> Any:
            computed = plan.run(bind(network, *held), x, planned)
            return finish(residual._combined(computed, places, x, dict(zip(names, given, strict=True))))

        given = shapes(x, *held, *plan.tensors, *tensors)
        key = (plan.key, places, names, finish, torch.is_grad_enabled(), bind, given)
        assert self._compiled is not None
        return self._compiled(key, run, network, self, held, x, plan.tensors, tensors)

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
        x = checks.batch(x)  # the engine looks for NaN
        if x.shape[1] != len(self.inputs):
            raise InputError(
                f"The residual has {len(self.inputs)} inputs ({', '.join(self.inputs)}) and the points have "
                f"{x.shape[1]} columns."
            )
        return x

    def _call(self, values: Values, x: Tensor, data: Mapping[str, Tensor]) -> Any:
        if set(data) != set(self.data):
            raise InputError(
                f"The residual expects the data {sorted(self.data)} with each call and got {sorted(data)}."
            )
        # Only what is asked for: in many dimensions, columns nobody looks at would cost more than the residual.
        columns = {name: i for i, name in enumerate(self.inputs) if name in self._arguments}
        named: dict[str, Any] = {**{name: x[:, i : i + 1] for name, i in columns.items()}, **data}
        named.update({name: Field(values, {i: D()}) for i, name in enumerate(self.outputs)})
        returned = self.function(**{name: named[name] for name in self._arguments})
        if isinstance(returned, tuple | list):
            return tuple(self._checked(item, x) for item in returned)
        return self._checked(returned, x)

    def _checked(self, returned: object, x: Tensor) -> Tensor:
        value = plain(returned)
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


def _are_names(names: object) -> bool:
    if isinstance(names, str) or not isinstance(names, Sequence):
        return False
    return all(isinstance(name, str) and name.isidentifier() for name in names)
