"""What a residual asks for: recorded when its function is first called, checked each time it is called again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dudx.engines.request import Request as EngineRequest
from dudx.engines.request import check_vector
from dudx.errors import InputError
from dudx.operators import D, Directional, Operator, Slots
from dudx.residual.derivative_names import networks_last, parameters_of
from dudx.residual.field import Field, Values, tensors_of
from dudx.residual.linear_expression import Linear, Shape

#: An operator along vectors in plain values, which torch.compile can read: slots, orders and coefficients.
Along = tuple[tuple[int, int, float], ...]


class OtherRequestError(Exception):
    """The function asks for something else than what was recorded."""


@dataclass(frozen=True)
class Request:
    """Everything a function asks for, in its order, and the distinct operators an engine computes for it.

    Args:
        asked: the expressions as the function makes them, their directions in slots.
        directional: the operators along vectors that the function made, in its order.
        inputs: the names of the inputs, whose number writes out open Laplacians.
        for_engine: the distinct operators, and the vectors of this call by slot.
        names: the names of the data that the vectors are, by slot; None where one was computed or drawn, so that the
            next call has others.
    """

    asked: tuple[Linear, ...]
    directional: tuple[Along, ...]
    inputs: tuple[str, ...]
    for_engine: EngineRequest
    names: tuple[str, ...] | None
    #: Whether the function looks at the network elsewhere than at the points too.
    elsewhere: bool
    #: For each expression asked for, the (output, operator) pairs it is the sum of.
    places: tuple[tuple[tuple[int, int], ...], ...]
    #: The expressions in plain values.
    shapes: tuple[Shape, ...]

    @property
    def repeatable(self) -> bool:
        """Whether the next call can use it: not where directions are drawn, or computed by the function itself."""
        return self.names is not None

    def orders(self, outputs: Sequence[str]) -> dict[str, dict[str, int]]:
        """Of each output that is asked for, the highest order of a derivative along each input."""
        found: dict[str, dict[str, int]] = {}
        for linear in self.asked:
            for number, operator in linear.operators.items():
                of = found.setdefault(outputs[number], {})
                for term in operator.expanded(len(self.inputs)).terms:
                    for axis, name in enumerate(self.inputs):
                        if isinstance(term, Directional):
                            order = term.order if bool(self.for_engine.vectors[term.slot][:, axis].any()) else 0
                        else:
                            order = term.axes.count(axis)
                        if order:
                            of[name] = max(order, of.get(name, 0))
        return found

    def fitting(self, x: Tensor) -> Request:
        """The request itself, if its vectors fit the points."""
        for vector in self.for_engine.vectors:
            check_vector(vector, x)
        return self

    def with_data(self, data: Mapping[str, Tensor], x: Tensor) -> Request:
        """The request with the vectors of another call."""
        if not self.names:
            return self
        vectors = tuple(data[name] for name in self.names)
        return replace(self, for_engine=EngineRequest(self.for_engine.operators, vectors)).fitting(x)


class Recorder:
    """Hands out placeholders and notes what was asked for."""

    def __init__(self, inputs: tuple[str, ...], x: Tensor, columns: int = 1):
        self.inputs, self.shape, self.like = inputs, (len(x), columns), x
        self._asked: list[Linear] = []
        self._slots = Slots()
        self._directional: list[Along] = []
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

    def in_slots(self, operator: Operator) -> Operator:
        taken = self._slots.take(operator)
        terms = ((term, c) for term, c in taken.terms.items() if isinstance(term, Directional))
        self._directional.append(tuple((term.slot, term.order, c) for term, c in terms))
        return taken

    def drawn(self, draw: Callable[[Tensor], Operator]) -> Operator:
        return self.in_slots(draw(self.like))

    def request(self, data: Mapping[str, Tensor]) -> Request:
        """What was asked for."""
        known = {id(tensor): name for name, tensor in data.items()}
        vectors = tuple(self._slots.vectors)
        names = tuple(known.get(id(vector), "") for vector in vectors)
        distinct: dict[Operator, int] = {}
        places = tuple(
            tuple(
                (output, distinct.setdefault(operator.expanded(len(self.inputs)), len(distinct)))
                for output, operator in linear.operators.items()
            )
            for linear in self._asked
        )
        return Request(
            tuple(self._asked),
            tuple(self._directional),
            self.inputs,
            EngineRequest(tuple(distinct), vectors),
            names if all(names) else None,
            self._elsewhere,
            places,
            tuple(linear.shape for linear in self._asked),
        )


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
        self._number = self._directional = 0

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
        operators = (operator.expanded(len(self.inputs)) for operator in linear.operators.values())
        found = self._elsewhere(EngineRequest(tuple(operators)), rows)
        return self._sum(zip(linear.operators, found, strict=True)).unflatten(0, (len(rows), -1))

    def sided(self, linear: Linear, side: str) -> Tensor:
        plain = self.of(linear)
        assert self._elsewhere is not None
        found = self._elsewhere(EngineRequest(tuple(linear.operators.values())), self.like.unsqueeze(0), side)
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

    def in_slots(self, operator: Operator) -> Operator:
        """The operator as it was recorded, if its vectors are those that were; computed ones count by their values."""
        recorded = self._next_directional()
        if len(operator.terms) != len(recorded):
            raise OtherRequestError
        for (term, coefficient), (slot, order, known) in zip(operator.terms.items(), recorded, strict=True):
            if not isinstance(term, Directional) or (term.order, coefficient) != (order, known):
                raise OtherRequestError
            # A compiled graph takes the vectors as they come.
            if not torch.compiler.is_compiling():
                one, another = operator.vectors[term.slot], self._request.for_engine.vectors[slot]
                if one is not another and not torch.equal(one, another):  # which cannot be known inside of vmap
                    raise OtherRequestError
        return _along(recorded)

    def drawn(self, draw: Callable[[Tensor], Operator]) -> Operator:
        """The operator that was drawn while recording."""
        return _along(self._next_directional())

    def _next_directional(self) -> Along:
        number = self._directional
        if number >= len(self._request.directional):
            raise OtherRequestError
        self._directional = number + 1
        return self._request.directional[number]


def _along(recorded: Along) -> Operator:
    return Operator({Directional(slot, order): coefficient for slot, order, coefficient in recorded})


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
