"""The request of a residual: all operators that its function asks for, in the order in which it asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from dudx.engines.request import Request, check_vector
from dudx.operators import Directional
from dudx.residual.linear_expression import Linear, Shape

#: An operator along vectors in plain values, which torch.compile can read: slots, orders and coefficients.
DirectionalTerms = tuple[tuple[int, int, float], ...]


@dataclass(frozen=True)
class RecordedRequest:
    """All expressions that a function asks for, and the distinct operators that an engine computes for them.

    Args:
        asked: the expressions in the order of the function, with directions as slots.
        directional: the operators along vectors in the order of the function.
        inputs: the names of the inputs; their number expands open Laplacians.
        for_engine: the distinct operators, and the vectors of this call by slot.
        names: the names of the data that the vectors are, by slot; None if a vector was computed, so that the next
            call has others.
        nonlocal_terms: True if the function evaluates the network at other points too.
        places: for each expression, the (output, operator) pairs whose sum it is.
        shapes: the expressions in plain values.
    """

    asked: tuple[Linear, ...]
    directional: tuple[DirectionalTerms, ...]
    inputs: tuple[str, ...]
    for_engine: Request
    names: tuple[str, ...] | None
    nonlocal_terms: bool
    places: tuple[tuple[tuple[int, int], ...], ...]
    shapes: tuple[Shape, ...]

    @property
    def repeatable(self) -> bool:
        """True if the next call can use this request: no vector is computed by the function."""
        return self.names is not None

    def orders(self, outputs: Sequence[str]) -> dict[str, dict[str, int]]:
        """The highest order of a derivative along each input, for each output that is asked for."""
        found: dict[str, dict[str, int]] = {}
        for linear in self.asked:
            for number, operator in linear.operators.items():
                of_output = found.setdefault(outputs[number], {})
                for term in operator.expanded(len(self.inputs)).terms:
                    for axis, name in enumerate(self.inputs):
                        if isinstance(term, Directional):
                            order = term.order if bool(self.for_engine.vectors[term.slot][:, axis].any()) else 0
                        else:
                            order = term.axes.count(axis)
                        if order:
                            of_output[name] = max(order, of_output.get(name, 0))
        return found

    def fitting(self, x: Tensor) -> RecordedRequest:
        """The request itself, after a check that its vectors fit the points."""
        for vector in self.for_engine.vectors:
            check_vector(vector, x)
        return self

    @property
    def without_vectors(self) -> RecordedRequest:
        """The request without the vectors of its call, which are not to be kept alive."""
        return replace(self, for_engine=Request(self.for_engine.operators)) if self.for_engine.vectors else self

    def with_data(self, data: Mapping[str, Tensor], x: Tensor) -> RecordedRequest:
        """The request with the vectors of another call."""
        if not self.names:
            return self
        vectors = tuple(data[name] for name in self.names)
        return replace(self, for_engine=Request(self.for_engine.operators, vectors)).fitting(x)
