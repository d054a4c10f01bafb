"""Batched reverse-mode differentiation: the `grad_outputs=ones` idiom, with shared prefixes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from dudx import errors
from dudx.backend.active_modes import transforms_active
from dudx.backend.differentiable_kernels import differentiable_kernels
from dudx.engines.autograd_graph import differentiable_output, refuse_what_is_hidden, too_often
from dudx.engines.interface import Counted, Coupled, RowsPerPoint, in_common_format
from dudx.engines.request import Request
from dudx.errors import InputError, UnsupportedError, first_line
from dudx.network import model_checks
from dudx.network.function_monitor import ACTIVE_MONITOR
from dudx.network.model_checks import Model
from dudx.operators import Directional, Operator, Partial, Term

Axes = tuple[int, ...]

#: From so many outputs on they are differentiated together; `python benchmarks/functions.py` measures what that gains.
_TOGETHER = 3


@dataclass(frozen=True)
class AD(Counted):
    """Automatic differentiation, exact for any order.

    Each sample's derivative is read off the derivative of the sum over samples, which is right only while samples do
    not influence each other; `coupled="ignore"` computes that sum for coupled networks as well.

    Many outputs, as those of a DeepONet for many functions at the same points, are differentiated together: the sum
    over outputs with weights a is one function of the points, and the derivative of its derivatives in a has those of
    each output (the trick of zero coordinate shift, Leng et al. 2024).

    Args:
        together: whether outputs are differentiated together or one after the other; None takes three or more
            together.

    Example:
        >>> x = torch.rand(10, 2, dtype=torch.float64)
        >>> laplacian = dudx.evaluate(lambda x: torch.sin(x[:, :1]) * x[:, 1:], x, dudx.Laplacian(), dudx.AD())
        >>> torch.allclose(laplacian, -torch.sin(x[:, :1]) * x[:, 1:])
        True
    """

    name = "ad"
    by_code = True

    coupled: Coupled | None = field(default="refuse", kw_only=True)
    together: bool | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        errors.one_of(self.coupled, Coupled, "coupled")
        if self.together not in (None, True, False):
            raise InputError(f"together is True, False, or None for what is faster; got {self.together!r}.")

    def derivatives(self, model: Model, x: Tensor, request: Request) -> list[Tensor]:
        order = _plan(request.operators).top
        if not order:
            u = model_checks.forward(model, x.clone())
            return in_common_format([sum(operator.terms.values()) * u for operator in request], x.dtype, u.dtype)
        if transforms_active():
            return _in_transform(model, x, request)
        differentiable = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.enable_grad():
            # A copy, so that no direction depends on it; a model that might write into its input gets a further one.
            own = x.clone() if x.requires_grad else x.detach().clone().requires_grad_(True)
            u = differentiable_output(model, own, order)
            outputs = u.shape[1]
            if self.together or (self.together is None and outputs >= _TOGETHER):
                results = together(u, own, request, differentiable)
            else:
                results = reverse_derivatives(u, own, request, differentiable=differentiable)
            if u.dtype != x.dtype:
                results = in_common_format(results, x.dtype, u.dtype)
        return results if differentiable else [result.detach() for result in results]

    def rows_for(self, x: Tensor, request: Request) -> RowsPerPoint:
        """One pass at a time, but each gradient keeps the passes of what it is the gradient of, and as many again."""
        terms = {term for operator in request for term in operator.terms}
        prefixes = gradients_needed(term.axes for term in terms if isinstance(term, Partial))
        along = [term for term in terms if isinstance(term, Directional)]
        kept = 1 + sum(2 ** len(prefix) for prefix in prefixes) + sum(2**term.order for term in along)
        return RowsPerPoint(4, kept)


def _in_transform(model: Model, x: Tensor, request: Request) -> list[Tensor]:
    """Derivatives inside of vmap, grad or jacrev, which follow torch.func's own gradients only; nothing is shared."""

    def slope(function: Model) -> Model:
        return torch.func.grad(lambda x: function(x).sum())

    def once(function: Model, term: Term, number: int) -> Model:
        gradient = slope(function)
        if isinstance(term, Directional):
            return lambda x: (gradient(x) * request.vectors[term.slot]).sum(-1)
        return lambda x: gradient(x)[:, term.axes[number]]

    def derived(column: int, term: Term) -> Tensor:
        function: Model = lambda x: model_checks.forward(model, x)[:, column]  # noqa: E731
        for number in range(term.order):
            function = once(function, term, number)
        return function(x)

    with differentiable_kernels():
        u = model_checks.forward(model, x)
        return [
            torch.stack(
                [
                    sum((c * derived(j, term) for term, c in operator.terms.items()), torch.zeros_like(u[:, j]))
                    for j in range(u.shape[1])
                ],
                dim=1,
            )
            for operator in request
        ]


@dataclass(frozen=True)
class _Plan:
    """Which gradients are taken, from the lowest order, and which partial derivatives are read off each."""

    #: The highest order that occurs.
    top: int
    #: A partial derivative, and of its gradient the components that are wanted: (their axes, the last axis).
    gradients: tuple[tuple[Axes, tuple[tuple[Axes, int], ...]], ...]


@lru_cache(maxsize=256)
def _plan(operators: tuple[Operator, ...]) -> _Plan:
    terms = {term for operator in operators for term in operator.terms}
    partials = {term.axes for term in terms if isinstance(term, Partial)}
    prefixes = gradients_needed(partials)
    open_ = {*partials, *prefixes} - {()}
    gradients = []
    for prefix in prefixes:
        read = {axes: _last(axes, prefix) for axes in sorted(open_) if _contains(axes, prefix, one_less=True)}
        gradients.append((prefix, tuple(read.items())))
        open_ -= read.keys()
    return _Plan(max((term.order for term in terms), default=0), tuple(gradients))


def _last(axes: Axes, prefix: Axes) -> int:
    """The axis that a derivative has more than another."""
    (axis,) = (Counter(axes) - Counter(prefix)).elements()
    return axis


def reverse_derivatives(u: Tensor, x: Tensor, request: Request, *, differentiable: bool) -> list[Tensor]:
    """Every operator applied to u, a function of x; u is (..., m) and x is (..., d)."""
    operators = request.operators
    plan = _plan(operators)
    # Each column keeps its axis of length 1: taking that off and putting it on again costs a node of the graph each.
    if u.shape[-1] == 1:
        column = _Column(u, x, plan, request.vectors, differentiable)
        results = [column.apply(operator) for operator in operators]
        _tell([column])
        return results
    columns = [_Column(column, x, plan, request.vectors, differentiable) for column in u.split(1, dim=-1)]
    results = [torch.cat([column.apply(operator) for column in columns], dim=-1) for operator in operators]
    _tell(columns)
    return results


def together(u: Tensor, x: Tensor, request: Request, differentiable: bool) -> list[Tensor]:
    """Every operator applied to all outputs at once: the weights of a sum over outputs have them as derivatives.

    That differentiates once more than was asked for; a network that cannot is taken output by output.
    """
    try:
        refuse_what_is_hidden(u, 1 + max(request.orders))
        return _together(u, x, request, differentiable)
    except UnsupportedError:
        return reverse_derivatives(u, x, request, differentiable=differentiable)


def _together(u: Tensor, x: Tensor, request: Request, differentiable: bool) -> list[Tensor]:
    weights = torch.ones_like(u, requires_grad=True)
    total = (weights * u).sum(-1, keepdim=True)
    column = _Column(total, x, _plan(request.operators), request.vectors, differentiable=True)
    results = []
    for operator in request:
        if not operator.orders - {0}:
            results.append(sum(operator.terms.values()) * u)
            continue
        combined = column.apply(operator)
        results.append(_gradient(combined, weights, differentiable) if combined.requires_grad else torch.zeros_like(u))
    return results


def _tell(columns: Sequence[_Column]) -> None:
    """Show the gradients of the outputs to who looks on at a first meeting."""
    observed = ACTIVE_MONITOR.get()
    if observed is not None:
        for number, column in enumerate(columns):
            observed.note_slope(number, column.gradients.get((), torch.zeros_like(column.x)))


class _Column:
    """The derivatives of one output: each gradient is taken once and shared by all the terms that need it."""

    def __init__(self, u: Tensor, x: Tensor, plan: _Plan, vectors: Sequence[Tensor], differentiable: bool):
        self.x, self.value, self.plan, self.vectors, self.differentiable = x, u, plan, vectors, differentiable
        self.gradients: dict[object, Tensor] = {}
        self.partials: dict[Axes, Tensor] = {(): u}
        for prefix, components in plan.gradients:
            gradient = self._gradient(self.partials[prefix], prefix, len(prefix))
            for axes, axis in components:
                self.partials[axes] = gradient.narrow(-1, axis, 1)

    def _gradient(self, value: Tensor, key: object, order: int) -> Tensor:
        """The gradient of a derivative of the given order, computed once for each key."""
        known = self.gradients.get(key)
        if known is not None:
            return known
        if value.requires_grad:
            # Without a backward pass to come, a gradient of the highest order is not differentiated again.
            gradient = _gradient(value, self.x, self.differentiable or order + 1 < self.plan.top)
        else:  # constant in x, for instance beyond a polynomial's degree
            gradient = torch.zeros_like(self.x)
        self.gradients[key] = gradient
        return gradient

    def _along(self, term: Directional) -> Tensor:
        along, key = self.value, ()
        for order in range(term.order):
            along = (self._gradient(along, key, order) * self.vectors[term.slot]).sum(-1, keepdim=True)
            key = ("along", term.slot, order)  # axes are keys too
        return along

    def apply(self, operator: Operator) -> Tensor:
        total: Tensor | None = None
        for term, coefficient in operator.terms.items():
            value = self._along(term) if isinstance(term, Directional) else self.partials[term.axes]
            scaled = value if coefficient == 1 else coefficient * value
            total = scaled if total is None else total + scaled
        return torch.zeros_like(self.value) if total is None else total


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
        raise too_often(first_line(error)) from error
    return gradient


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


def _contains(axes: Axes, prefix: Axes, one_less: bool = False) -> bool:
    return not Counter(prefix) - Counter(axes) and (not one_less or len(prefix) == len(axes) - 1)
