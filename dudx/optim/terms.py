"""Terms of a loss: residuals that can be evaluated, and linearised in the parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from dudx.engines.interface import Engine
from dudx.errors import InputError
from dudx.gradients.jacobian_rows import Jacobian
from dudx.gradients.linearization import Function, linearized
from dudx.gradients.rewind import Rewind, generators_of
from dudx.network.model_checks import Model
from dudx.residual.jacobian import linearize
from dudx.residual.residual_function import Residual


@runtime_checkable
class LeastSquares(Protocol):
    """The interface of a term for the optimizer: `Term`, `FunctionTerm`, or a class of your own."""

    #: The weight of its mean square; None lets the optimizer choose it.
    weight: float | None

    def generators(self) -> Sequence[torch.Generator]:
        """Random generators, which one step rewinds so that all its evaluations draw the same numbers."""
        ...

    def values(self) -> Sequence[Tensor]:
        """The residual of each equation, (B,), without a graph."""
        ...

    def linearized(self, parameters: Sequence[Tensor], dtype: torch.dtype | None) -> tuple[Tensor, Jacobian]:
        """The residuals of all equations (N,) and their Jacobian, in factors of this precision."""
        ...


class Term:
    """The weighted mean square of a residual at some points, as a part of the loss.

    Args:
        residual: the equation, or several of them.
        model: the network.
        x: the points, (B, d).
        engine: how derivatives in the inputs are computed.
        weight: the weight of the mean square; None lets the optimizer balance it against the others.
        data: data of the residual, `data={"g": values}`.
        generators: random generators that the residual's function draws from, beside the engine's and torch's own.
        tame: count residuals far above their mean linearly rather than quadratically, such as those near a singular
            corner, which are large whatever the network does.
    """

    def __init__(
        self,
        residual: Residual,
        model: Model,
        x: Tensor,
        engine: Engine,
        weight: float | None = None,
        data: Mapping[str, Tensor] | None = None,
        generators: Sequence[torch.Generator] = (),
        tame: bool = False,
    ):
        if not isinstance(residual, Residual):
            raise InputError(f"A term is made of a dudx.Residual; got {type(residual).__name__}.")
        self.residual, self.model, self.x, self.engine = residual, model, x, engine
        self.weight, self.tame = checked_weight(weight), bool(tame)
        self.data = dict(data or {})
        self._generators = tuple(generators)

    def generators(self) -> list[torch.Generator]:
        return [*generators_of(self.engine, self.x.device), *self._generators]

    @torch.no_grad()
    def values(self) -> list[Tensor]:
        return _equations(self.residual(self.model, self.x, self.engine, **self.data))

    def linearized(self, parameters: Sequence[Tensor], dtype: torch.dtype | None) -> tuple[Tensor, Jacobian]:
        return linearize(self.residual, self.model, self.x, self.engine, parameters, dtype, self.data)


class FunctionTerm:
    """The weighted mean square of any function of the parameters that returns one number per sample, (B,) or (B, 1)."""

    def __init__(self, function: Function, weight: float | None = 1.0):
        self.function, self.weight = function, checked_weight(weight)

    def generators(self) -> list[torch.Generator]:
        return generators_of(None, torch.device("cpu"))

    @torch.no_grad()
    def values(self) -> list[Tensor]:
        return _equations(self.function())

    def linearized(self, parameters: Sequence[Tensor], dtype: torch.dtype | None) -> tuple[Tensor, Jacobian]:
        rewind = Rewind(self.generators())
        samples = self.values()[0].numel()
        rewind()
        return linearized(self.function, parameters, samples, rewind, dtype=dtype)


def as_terms(terms: object) -> list[LeastSquares]:
    """Return a list of terms, with functions wrapped as `FunctionTerm`."""
    given = [terms] if callable(terms) or isinstance(terms, LeastSquares) else terms
    if not isinstance(given, Sequence) or not given:
        raise InputError("A step takes a list of terms, such as [dudx.optim.Term(residual, model, x, engine)].")
    made: list[LeastSquares] = []
    for term in given:
        if isinstance(term, LeastSquares):
            made.append(term)
        elif callable(term):
            made.append(FunctionTerm(cast(Function, term)))
        else:
            raise InputError(
                f"A term is a dudx.optim.Term or a function that returns residuals; got {type(term).__name__}."
            )
    return made


def taming_factors(residuals: Tensor, mean: Tensor) -> Tensor:
    """Factors (N,) with which large residuals count linearly; `mean` is the mean of their absolute values."""
    return 1 / (0.5 + 0.5 * residuals.abs() / mean.clamp(min=1e-300))


def checked_weight(weight: object) -> float | None:
    """Return a positive number or None; raise `InputError` for anything else."""
    if weight is None:
        return None
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
        raise InputError(f"A term's weight is a positive number, or None for one found automatically; got {weight!r}.")
    return float(weight)


def _equations(returned: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
    values = returned if isinstance(returned, tuple | list) else (returned,)
    return [value.detach().reshape(-1) for value in values]
