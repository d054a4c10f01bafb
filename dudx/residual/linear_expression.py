"""Linear combinations of derivatives of a network's outputs: the symbolic part of an expression."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from dudx.operators import Directional, Operator, Partial

#: The terms of each output with coefficients: slots and orders of directions, axes and Laplacians of partials.
Shape = tuple[tuple[int, tuple], ...]

#: Expressions kept at most; a residual that reads a number which changes at each call makes new ones forever.
_REMEMBERED = 256


class Linear:
    """A linear combination of derivatives of the outputs, which keeps the expressions derived from it.

    A residual makes equal expressions at each call: from the second call on they are looked up, and compared by
    identity.
    """

    def __init__(self, operators: Mapping[int, Operator]):
        self.operators = {output: operator for output, operator in operators.items() if operator.terms}
        #: Expressions derived from this one, by operation; looked up before a new one is made.
        self.known: dict[object, Linear] = {}

    def remember(self, key: object, made: Linear) -> Linear:
        # Kept out of the compiled graph, so that torch.compile adds no guards for it.
        if torch.compiler.is_compiling():
            return made
        if len(self.known) >= _REMEMBERED:
            self.known.clear()
        self.known[key] = made
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
        made = Linear({output: operator * factor for output, operator in self.operators.items()})
        return self.remember(factor, made)

    def plus(self, other: Linear, sign: float) -> Linear:
        total = dict(self.operators)
        for output, operator in other.operators.items():
            total[output] = total.get(output, Operator({})) + sign * operator
        return self.remember((other, sign), Linear(total))

    def same(self, other: Linear) -> bool:
        """True if it is the same expression."""
        return self.operators == other.operators

    @property
    def shape(self) -> Shape:
        """The expression in plain values, which torch.compile can compare."""
        return tuple((output, _shape(operator)) for output, operator in self.operators.items())


def _shape(operator: Operator) -> tuple:
    return tuple(
        (term.slot, term.order, coefficient)
        if isinstance(term, Directional)
        else (term.axes, term.laplacians, coefficient)
        for term, coefficient in operator.terms.items()
    )


NO_DERIVATIVES = Linear({})
