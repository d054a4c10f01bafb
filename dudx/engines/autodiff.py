"""Batched reverse-mode differentiation: the `grad_outputs=ones` idiom, with shared prefixes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction, once_differentiable

from dudx import checks
from dudx.checks import Model
from dudx.engines.base import Engine, RowsPerPoint
from dudx.errors import UnsupportedError, first_line
from dudx.kernels import differentiable_kernels
from dudx.operators import Directional, Operator, Partial, fitting

Axes = tuple[int, ...]


@dataclass(frozen=True)
class AD(Engine):
    """Automatic differentiation, exact for any order.

    Each sample's derivative is read off the derivative of the sum over samples, which is right only while samples do
    not influence each other; `coupled="ignore"` computes that sum for coupled networks as well.
    """

    name = "ad"
    label = "AD"
    summary = "automatic differentiation, batched; exact"
    recommended = True
    rank = 0

    coupled: str | None = field(default="refuse", kw_only=True)

    @classmethod
    def for_training(cls, accuracy: int, generator: torch.Generator, coupled: str) -> AD:
        return cls(coupled=coupled)

    def __post_init__(self) -> None:
        checks.choice(self.coupled, ("refuse", "ignore"), "coupled")

    def derivatives(self, model: Model, x: Tensor, operators: Sequence[Operator]) -> list[Tensor]:
        differentiable = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.enable_grad():
            # A non-leaf copy: the model may not write into the user's points, nor a direction depend on this copy.
            own = x.clone() if x.requires_grad else x.detach().clone().requires_grad_(True)
            with differentiable_kernels():
                u = checks.forward(model, own.clone())
            results = reverse_derivatives(u, own, operators, differentiable=differentiable)
        return results if differentiable else [result.detach() for result in results]

    def rows(self, x: Tensor, operators: Sequence[Operator]) -> RowsPerPoint:
        """One pass at a time, but each gradient keeps the passes of what it is the gradient of, and as many again."""
        terms = {term for operator in fitting(operators, x) for term in operator.terms}
        prefixes = gradients_needed(term.axes for term in terms if isinstance(term, Partial))
        along = [term for term in terms if isinstance(term, Directional)]
        kept = 1 + sum(2 ** len(prefix) for prefix in prefixes) + sum(2**term.order for term in along)
        return RowsPerPoint(4, kept)


def reverse_derivatives(u: Tensor, x: Tensor, operators: Sequence[Operator], *, differentiable: bool) -> list[Tensor]:
    """Every operator applied to u, a function of x; u is (..., m) and x is (..., d)."""
    if any(order > 1 for operator in operators for order in operator.orders):
        _refuse_once_differentiable(u)
    columns = [_Column(column, x, operators, differentiable) for column in u.unbind(-1)]
    return [torch.stack([column.apply(operator) for column in columns], dim=-1) for operator in operators]


class _Column:
    """The derivatives of one output: each gradient is taken once and shared by all the terms that need it."""

    def __init__(self, u: Tensor, x: Tensor, operators: Sequence[Operator], differentiable: bool):
        self.x = x
        self.value = u
        self.differentiable = differentiable
        self.gradients: dict[object, Tensor] = {}
        terms = {term for operator in operators for term in operator.terms}
        self.top = max((term.order for term in terms), default=0)
        self.partials: dict[Axes, Tensor] = {(): u}
        for prefix in gradients_needed(term.axes for term in terms if isinstance(term, Partial)):
            gradient = self._gradient(self.partials[prefix], prefix, len(prefix))
            for axis in range(x.shape[-1]):
                self.partials.setdefault(tuple(sorted((*prefix, axis))), gradient[..., axis])

    def _gradient(self, value: Tensor, key: object, order: int) -> Tensor:
        """The gradient of a derivative of the given order, computed once for each key."""
        if key not in self.gradients:
            if value.requires_grad:
                # Without a backward pass to come, a gradient of the highest order is not differentiated again.
                self.gradients[key] = _gradient(value, self.x, self.differentiable or order + 1 < self.top)
            else:  # constant in x, for instance beyond a polynomial's degree
                self.gradients[key] = torch.zeros_like(self.x)
        return self.gradients[key]

    def _along(self, term: Directional) -> Tensor:
        along, key = self.value, ()
        for order in range(term.order):
            along = (self._gradient(along, key, order) * term.direction).sum(-1)
            key = (id(term.direction), order)
        return along

    def apply(self, operator: Operator) -> Tensor:
        total = torch.zeros_like(self.value) if not operator.terms else None
        for term, coefficient in operator.terms.items():
            value = self._along(term) if isinstance(term, Directional) else self.partials[term.axes]
            scaled = value if coefficient == 1 else coefficient * value
            total = scaled if total is None else total + scaled
        assert total is not None
        return total


def _gradient(value: Tensor, x: Tensor, create_graph: bool) -> Tensor:
    try:
        (gradient,) = torch.autograd.grad(
            value,
            x,
            torch.ones_like(value),
            retain_graph=True,
            create_graph=create_graph,
            allow_unused=True,
            materialize_grads=True,
        )
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise _too_often(first_line(error)) from error
    return gradient


#: What every backward pass decorated by once_differentiable has for its code.
_ONCE = once_differentiable(lambda ctx: None).__code__


def _refuse_once_differentiable(u: Tensor) -> None:
    """Raise an error for a function whose gradient torch takes for a constant: the rest would be computed without it.

    Torch itself raises one only where gradients of all leaves are asked for, and here it is that of the points.
    """
    seen, ahead = set(), [u.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, BackwardCFunction):
            function: Any = node._forward_cls  # type: ignore[attr-defined]
            if getattr(function.backward, "__code__", None) is _ONCE:
                raise _too_often(f"{function.__name__} is marked once_differentiable")
        ahead.extend(following for following, _ in node.next_functions)


def _too_often(reason: str) -> UnsupportedError:
    return UnsupportedError(
        f"This network cannot be differentiated automatically as often as was asked ({reason}). Differences need no "
        "such thing: dudx.FD().calibrated(model, x, operators, reference='differences')."
    )


def gradients_needed(wanted: Iterable[Axes]) -> list[Axes]:
    """The partial derivatives whose gradients yield all the wanted ones, lowest order first, few by greedy choice.

    {xy, yy} needs the gradient of u_y only; {xx, xy} that of u_x only.
    """
    needed: dict[int, set[Axes]] = {}
    for axes in wanted:
        needed.setdefault(len(axes), set()).add(axes)
    chosen: list[Axes] = []
    for order in range(max(needed, default=0), 0, -1):
        open_ = set(needed.get(order, ()))
        below = needed.setdefault(order - 1, set())
        while open_:
            covers: Counter[Axes] = Counter()
            for axes in open_:
                covers.update({axes[:i] + axes[i + 1 :] for i in range(order)})
            forced = {axes[1:] for axes in open_ if len(set(axes)) == 1}  # a pure derivative leaves no choice
            best = max(sorted(forced or covers), key=lambda prefix: (covers[prefix], prefix in below))
            chosen.append(best)
            below.add(best)
            open_ = {axes for axes in open_ if not _contains(axes, best)}
    return sorted(chosen, key=len)


def _contains(axes: Axes, prefix: Axes) -> bool:
    return not Counter(prefix) - Counter(axes)
