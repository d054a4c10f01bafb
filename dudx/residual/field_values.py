"""The sources of a field's numbers: a recorder in the first call of a function, an engine's results afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from dudx.engines.request import Request
from dudx.operators import Directional, Operator, Slots
from dudx.residual.linear_expression import Linear
from dudx.residual.nonlocal_terms.other_points import Nonlocal, NonlocalRecorder, NonlocalReplay
from dudx.residual.recorded_request import DirectionalTerms, RecordedRequest


class ChangedRequestError(Exception):
    """The function asks for other operators than those that were recorded."""


class Values(Protocol):
    """The numbers of the fields in one call of a function."""

    inputs: tuple[str, ...]
    #: The shape of a field, (points, 1) or (points, functions).
    shape: tuple[int, int]
    #: The points.
    like: Tensor
    #: True while the function is recorded, with NaN for numbers.
    recording: bool
    #: True if the residual is compiled: NumPy numbers, which torch.compile takes for tensors, then are not symbolic.
    compiled: bool

    def of(self, linear: Linear) -> Tensor: ...

    def at(self, linear: Linear, rows: Tensor) -> Tensor: ...

    def in_slots(self, operator: Operator) -> Operator: ...


class Recorder(NonlocalRecorder):
    """Return placeholders for a field's numbers and record which operators are asked for."""

    recording = True

    def __init__(self, inputs: tuple[str, ...], x: Tensor, columns: int = 1, compiled: bool = False):
        self.compiled = compiled
        self.inputs, self.shape, self.like = inputs, (len(x), columns), x
        self._asked: list[Linear] = []
        self._slots = Slots()
        self._directional: list[DirectionalTerms] = []
        # NaN, so that a direction computed from a field's values is noticed: engines refuse directions with NaN.
        self._placeholder = x.new_full(self.shape, float("nan"))

    def of(self, linear: Linear) -> Tensor:
        self._asked.append(linear)
        return self._placeholder

    def in_slots(self, operator: Operator) -> Operator:
        taken = self._slots.take(operator)
        terms = ((term, c) for term, c in taken.terms.items() if isinstance(term, Directional))
        self._directional.append(tuple((term.slot, term.order, c) for term, c in terms))
        return taken

    def request(self, data: Mapping[str, Tensor]) -> RecordedRequest:
        """The recorded request."""
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
        return RecordedRequest(
            tuple(self._asked),
            tuple(self._directional),
            self.inputs,
            Request(tuple(distinct), vectors),
            names if all(names) else None,
            self.nonlocal_terms,
            places,
            tuple(linear.shape for linear in self._asked),
        )


class Replay(NonlocalReplay):
    """Return an engine's results in the order in which they were recorded.

    A function that asks for anything else than what was recorded raises `ChangedRequestError`.

    Args:
        x: the points.
        request: the recorded request.
        computed: the engine's results.
        columns: the number of columns of an output.
        other_points: computes the operators of nonlocal terms; see `Nonlocal`.
        compiled: True if the residual is compiled.
    """

    recording = False

    def __init__(
        self,
        x: Tensor,
        request: RecordedRequest,
        computed: Sequence[Tensor],
        columns: int = 1,
        other_points: Nonlocal | None = None,
        compiled: bool = False,
    ):
        self.compiled = compiled
        self.inputs, self.shape, self.like = request.inputs, (len(x), columns), x
        self._request, self._computed, self._other_points = request, computed, other_points
        self._one_output = computed[0].shape[1] == columns
        self._number = self._directional = 0

    def of(self, linear: Linear) -> Tensor:
        number = self._number
        request = self._request
        if number >= len(request.places):
            raise ChangedRequestError
        if torch.compiler.is_compiling():
            if linear.shape != request.shapes[number]:
                raise ChangedRequestError
        elif linear is not request.asked[number] and not linear.same(request.asked[number]):
            raise ChangedRequestError
        self._number = number + 1
        return self._sum((output, self._computed[place]) for output, place in request.places[number])

    def _sum(self, parts: Iterable[tuple[int, Tensor]]) -> Tensor:
        """Sum the columns that belong to one output each, from tensors with the columns of all outputs."""
        total: Tensor | None = None
        columns = self.shape[1]
        for output, part in parts:
            part = part if self._one_output else part[:, output * columns : (output + 1) * columns]
            total = part if total is None else total + part
        assert total is not None
        return total

    def in_slots(self, operator: Operator) -> Operator:
        """The recorded operator, after a check of its vectors; computed vectors are compared by their values."""
        number = self._directional
        if number >= len(self._request.directional):
            raise ChangedRequestError
        self._directional, recorded = number + 1, self._request.directional[number]
        if len(operator.terms) != len(recorded):
            raise ChangedRequestError
        for (term, coefficient), (slot, order, known) in zip(operator.terms.items(), recorded, strict=True):
            if not isinstance(term, Directional) or (term.order, coefficient) != (order, known):
                raise ChangedRequestError
            # A compiled graph takes the vectors as they come.
            if not torch.compiler.is_compiling():
                one, another = operator.vectors[term.slot], self._request.for_engine.vectors[slot]
                if one is not another and not torch.equal(one, another):  # which cannot be known inside of vmap
                    raise ChangedRequestError
        return Operator({Directional(slot, order): coefficient for slot, order, coefficient in recorded})
