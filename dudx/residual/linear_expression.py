"""Linear combinations of derivatives of a network's outputs: what is still an operator in an expression."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from dudx.operators import Directional, Operator, Partial

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
        #: What was made of this before, by the way it was made. Whoever makes something looks here first.
        self.known: dict[object, Linear] = {}

    def remember(self, key: object, made: Linear) -> Linear:
        # torch.compile shall not have to guard all of it.
        if torch.compiler.is_compiling() or made.passing:
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
        """Whether it is the same expression; directions that are computed anew at each call count by their values."""
        return self.shape == other.shape and all(map(_equal, self._directions(), other._directions()))

    @property
    def shape(self) -> Shape:
        """The expression without its tensors, in plain values, which torch.compile can compare."""
        return tuple((output, _shape(operator)) for output, operator in self.operators.items())

    def _directions(self) -> list[Tensor]:
        terms = [term for operator in self.operators.values() for term in operator.terms]
        return [term.direction for term in terms if isinstance(term, Directional)]


def _equal(a: Tensor, b: Tensor) -> bool:
    return a is b or torch.equal(a, b)  # numbers cannot be looked at inside of vmap


def _shape(operator: Operator) -> tuple:
    return tuple(
        (term.order, coefficient) if isinstance(term, Directional) else (term.axes, term.laplacians, coefficient)
        for term, coefficient in operator.terms.items()
    )


NOTHING = Linear({})
