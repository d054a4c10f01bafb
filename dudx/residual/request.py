"""What a residual asks for: recorded when its function is first called, checked each time it is called again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dudx.errors import InputError
from dudx.operators import D, Directional, Operator, fitting
from dudx.residual.derivative_names import networks_last, parameters_of
from dudx.residual.field import Field, Values, tensors_of
from dudx.residual.linear_expression import Linear, Shape

#: Axes from here on stand for operators drawn at random, whose vectors are another matter than what is asked for.
_DRAWN = 10**9


class OtherRequestError(Exception):
    """The function asks for something else than what was recorded."""


@dataclass(frozen=True)
class Request:
    """Everything a function asks for, in its order, and the distinct operators an engine computes for it.

    Args:
        asked: the expressions as the function makes them.
        drawn: operators drawn at random while recording.
        inputs: the names of the inputs, whose number writes out open Laplacians.
        directions: vectors that are data, and which; None where there is one that was computed or drawn, so that the
            next call has others.
    """

    asked: tuple[Linear, ...]
    drawn: tuple[Operator, ...]
    inputs: tuple[str, ...]
    directions: Mapping[int, str] | None
    #: Whether the function looks at the network elsewhere than at the points too.
    elsewhere: bool = False
    operators: tuple[Operator, ...] = field(init=False)
    #: For each expression asked for, the (output, operator) pairs it is the sum of.
    places: tuple[tuple[tuple[int, int], ...], ...] = field(init=False)
    #: The expressions in plain values.
    shapes: tuple[Shape, ...] = field(init=False)

    def __post_init__(self) -> None:
        distinct: dict[Operator, int] = {}
        places = tuple(
            tuple(
                (output, distinct.setdefault(self._written_out(operator), len(distinct)))
                for output, operator in linear.operators.items()
            )
            for linear in self.asked
        )
        object.__setattr__(self, "operators", tuple(distinct))
        object.__setattr__(self, "places", places)
        object.__setattr__(self, "shapes", tuple(linear.shape for linear in self.asked))

    def _written_out(self, operator: Operator) -> Operator:
        """An operator as an engine computes it: drawn ones in place of what stands for them, Laplacians expanded."""
        if not self.drawn:
            return operator.expanded(len(self.inputs))
        total = Operator({})
        for term, coefficient in operator.terms.items():
            if isinstance(term, Directional) or not term.axes or term.axes[-1] < _DRAWN:
                total = total + Operator({term: coefficient})
            elif term.order == 1:
                total = total + coefficient * self.drawn[term.axes[0] - _DRAWN]
            else:
                raise InputError("random_laplacian does not compose with other operators; use it on the field itself.")
        return total.expanded(len(self.inputs))

    @property
    def repeatable(self) -> bool:
        """Whether the next call can use it: not where directions are drawn, or computed by the function itself."""
        return not self.drawn and self.directions is not None

    def orders(self, outputs: Sequence[str]) -> dict[str, dict[str, int]]:
        """Of each output that is asked for, the highest order of a derivative along each input."""
        found: dict[str, dict[str, int]] = {}
        for linear in self.asked:
            for number, operator in linear.operators.items():
                of = found.setdefault(outputs[number], {})
                for term in operator.expanded(len(self.inputs)).terms:
                    for axis, name in enumerate(self.inputs):
                        if isinstance(term, Directional):
                            order = term.order if bool(term.direction[:, axis].any()) else 0
                        else:
                            order = term.axes.count(axis)
                        if order:
                            of[name] = max(order, of.get(name, 0))
        return found

    def fitting(self, x: Tensor) -> Request:
        """The request itself, if its directions fit the points."""
        if self.directions is None or self.directions or self.drawn:
            fitting(self.operators, x)
        return self

    def with_data(self, data: Mapping[str, Tensor], x: Tensor) -> Request:
        """The same request with the directions of another call."""
        if not self.directions:
            return self
        now = {number: data[name] for number, name in self.directions.items()}
        asked = tuple(
            Linear({output: _redirected(operator, now) for output, operator in linear.operators.items()})
            for linear in self.asked
        )
        names = {id(data[name]): name for name in self.directions.values()}
        return Request(asked, (), self.inputs, names, self.elsewhere).fitting(x)


def _redirected(operator: Operator, now: Mapping[int, Tensor]) -> Operator:
    return Operator(
        {
            Directional(now[id(term.direction)], term.order) if isinstance(term, Directional) else term: coefficient
            for term, coefficient in operator.terms.items()
        }
    )


class Recorder:
    """Hands out placeholders and notes what was asked for."""

    def __init__(self, inputs: tuple[str, ...], x: Tensor, columns: int = 1):
        self.inputs, self.shape, self.like = inputs, (len(x), columns), x
        self._asked: list[Linear] = []
        self._drawn: list[Operator] = []
        self._elsewhere = False
        # NaN, so that a direction computed from a field's values is noticed: engines refuse directions with NaN.
        self._placeholder = x.new_full(self.shape, float("nan"))

    def of(self, linear: Linear) -> Tensor:
        self._asked.append(linear)
        return self._placeholder

    def at(self, linear: Linear, rows: Tensor) -> Tensor:
        self.of(linear)  # at the points too, so that it is known what engines have to be able to do
        self._elsewhere = True
        return rows.new_full((*rows.shape[:2], self.shape[1]), float("nan"))

    def sided(self, linear: Linear, side: str) -> Tensor:
        self._elsewhere = True  # a stencil that looks one way is another request of the same points
        return self.of(linear)

    def drawn(self, draw: Callable[[Tensor], Operator]) -> Operator:
        self._drawn.append(draw(self.like))
        return D(_DRAWN + len(self._drawn) - 1)

    def request(self, data: Mapping[str, Tensor]) -> Request:
        """What was asked for."""
        names = {id(tensor): name for name, tensor in data.items()}
        terms = [term for linear in self._asked for op in linear.operators.values() for term in op.terms]
        vectors = [id(term.direction) for term in terms if isinstance(term, Directional)]
        given = all(vector in names for vector in vectors)
        directions = {vector: names[vector] for vector in vectors} if given else None
        return Request(tuple(self._asked), tuple(self._drawn), self.inputs, directions, self._elsewhere)


class Replay:
    """Hands out the engine's results for what was recorded, as long as nothing else is asked for.

    Args:
        x: the points.
        request: what was recorded.
        computed: the results.
        columns: how many columns an output has.
        elsewhere: from operators and rows (K, B or 1, d) to results (K·B or K, …) there; with a side, by stencils that
            look there, or None where the engine has none to turn.
    """

    def __init__(
        self,
        x: Tensor,
        request: Request,
        computed: Sequence[Tensor],
        columns: int = 1,
        elsewhere: Callable[..., Any] | None = None,
    ):
        self._elsewhere = elsewhere
        self.inputs, self.shape, self.like = request.inputs, (len(x), columns), x
        self._request, self._computed = request, computed
        self._one_output = computed[0].shape[1] == columns
        self._number = self._draws = 0

    def of(self, linear: Linear) -> Tensor:
        number = self._number
        request = self._request
        if number >= len(request.places):
            raise OtherRequestError
        if torch.compiler.is_compiling():
            if linear.shape != request.shapes[number]:
                raise OtherRequestError
        elif linear is not request.asked[number] and not linear.same(request.asked[number]):
            raise OtherRequestError
        self._number = number + 1
        return self._sum((output, self._computed[place]) for output, place in request.places[number])

    def at(self, linear: Linear, rows: Tensor) -> Tensor:
        self.of(linear)
        assert self._elsewhere is not None
        operators = [operator.expanded(len(self.inputs)) for operator in linear.operators.values()]
        found = self._elsewhere(operators, rows)
        return self._sum(zip(linear.operators, found, strict=True)).unflatten(0, (len(rows), -1))

    def sided(self, linear: Linear, side: str) -> Tensor:
        plain = self.of(linear)
        assert self._elsewhere is not None
        found = self._elsewhere(list(linear.operators.values()), self.like.unsqueeze(0), side)
        return plain if found is None else self._sum(zip(linear.operators, found, strict=True))

    def _sum(self, parts: Iterable[tuple[int, Tensor]]) -> Tensor:
        """Of tensors of all outputs, the columns of the output that is meant."""
        total: Tensor | None = None
        columns = self.shape[1]
        for output, part in parts:
            part = part if self._one_output else part[:, output * columns : (output + 1) * columns]
            total = part if total is None else total + part
        assert total is not None
        return total

    def drawn(self, draw: Callable[[Tensor], Operator]) -> Operator:
        """What stands for the operator drawn while recording."""
        self._draws += 1
        return D(_DRAWN + self._draws - 1)


class Written:
    """A function of fields as it was written: what it takes by name, what it asks for, what it makes of the results.

    Args:
        function: the function.
        inputs: the names of the network's inputs.
        data: names of what is given with each call.
        networks: names of further networks, whose columns come after those of the model.
        functions: of the data, what has a row for each of many functions.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: tuple[str, ...],
        data: tuple[str, ...],
        networks: Collection[str],
        functions: tuple[str, ...],
    ):
        outputs, arguments = parameters_of(function, {*inputs, *data})
        self.outputs = networks_last(outputs, networks)
        self._function, self._inputs, self._functions = function, inputs, functions
        self._columns = {name: i for i, name in enumerate(inputs) if name in arguments}
        self._given = tuple(name for name in data if name in arguments)
        #: The outputs themselves, of which the function makes its expressions.
        self._start = [Linear({i: D()}) for i in range(len(self.outputs))]

    def recorded(self, x: Tensor, data: Mapping[str, Tensor]) -> Request:
        """What the function asks for now."""
        recorder = Recorder(self._inputs, x, self._columns_of(data))
        self._call(recorder, x, data)
        request = recorder.request(data)
        if not request.asked:
            raise InputError("The residual asks for nothing of the network; use its outputs or their derivatives.")
        return request.fitting(x)

    def replayed(
        self,
        computed: Sequence[Tensor],
        request: Request,
        x: Tensor,
        data: Mapping[str, Tensor],
        elsewhere: Callable[..., Any] | None = None,
    ) -> Any:
        """The function's value from the computed operators."""
        columns = self._columns_of(data)
        if computed[0].shape[1] != len(self.outputs) * columns:
            raise InputError(
                f"The residual names {len(self.outputs)} output(s) ({', '.join(self.outputs)}) and the model returns "
                f"{computed[0].shape[1] // columns}; name them all, in order."
            )
        return self._call(Replay(x, request, computed, columns, elsewhere), x, data)

    def _columns_of(self, data: Mapping[str, Tensor]) -> int:
        """How many columns a field has: one for each function."""
        return len(data[self._functions[0]]) if self._functions else 1

    def _call(self, values: Values, x: Tensor, data: Mapping[str, Tensor]) -> Any:
        # Only what is asked for: in many dimensions, columns nobody looks at would cost more than the residual.
        named: dict[str, Any] = {}
        for name, i in self._columns.items():
            named[name] = Field._coordinate(values, i, x[:, i : i + 1])
        for name in self._given:
            named[name] = data[name]
        for i, name in enumerate(self.outputs):
            # torch.compile would have to guard what it finds remembered there.
            start = Linear({i: D()}) if torch.compiler.is_compiling() else self._start[i]
            named[name] = Field(values, start)
        returned = self._function(**named)
        if isinstance(returned, tuple | list):
            return tuple(_checked(item, values.shape) for item in returned)
        return _checked(returned, values.shape)


def _checked(returned: object, shape: tuple[int, int]) -> Tensor:
    value = returned._tensor() if isinstance(returned, Field) else tensors_of(returned)
    if not isinstance(value, Tensor) or tuple(value.shape) != shape:
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        each = "value a point" if shape[1] == 1 else "value for each point and function"
        raise InputError(f"A residual must return one {each}, shape {shape}; got {got}.")
    return value


def fresh(values: Any) -> Any:
    """The residual in tensors of its own: a compiled graph must not return views of a shared buffer."""
    return tuple(value.clone() for value in values) if isinstance(values, tuple) else values.clone()


def mean_square(values: Any) -> Tensor:
    """The loss: the mean square, summed over the equations."""
    if not isinstance(values, tuple):
        return values.square().mean()
    return torch.stack([value.square().mean() for value in values]).sum()


#: What is made of a residual's values: a call's and a loss.
ENDS = (fresh, mean_square)
