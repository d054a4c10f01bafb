"""A trial of an engine at its first meeting with a network: right, or refused with a sentence that says what to do.

Whatever a network does with its graph (leaves it, cuts it, writes into it), a derivative is how much the output moves
when the points do. So the derivatives of each order are compared with differences of the order below. What training
changes later is found at the 2nd, 4th, 8th … meeting, which costs nothing in the long run.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from dudx.checks import Model
from dudx.engines.base import Engine
from dudx.errors import KinkWarning, UnsupportedError
from dudx.network import facts
from dudx.network.batches import on_each
from dudx.network.detect import refuse_coupling
from dudx.network.meetings import looked_at
from dudx.network.modules import owner_of
from dudx.network.pointwise import Pointwise
from dudx.network.probes import GOLDEN, at_rest
from dudx.network.sandbox import unchanged_buffers, unobserved
from dudx.network.slices import slicing
from dudx.operators import Along, D, Operator, fitting, orders_of

#: Rows of a trial, how many of them move where it is one at a time, and the highest orders that are looked at then.
_ROWS, _MOVING, _HIGHEST, _HIGHEST_ALONE = 6, 2, 4, 2
#: How far two differences may disagree and still tell something, and how far the derivative may be from them.
_SURE, _WRONG = 0.005, 0.05
#: The share of rounding in a difference from which on it is refused.
_NOISE = 0.25


@dataclass(frozen=True)
class _Found:
    random: bool = False


_NOTHING = _Found()


def admitted(model: Model, x: Tensor, operators: Sequence[Operator], engine: Engine) -> Model:
    """The model as the engine is to take it, after a trial if they have not met often."""
    if x.is_meta or torch.compiler.is_compiling():
        return model
    if isinstance(model, Pointwise):
        return _admitted_pointwise(model, x, operators, engine)
    # A slice of a coupled batch is another batch, so there even engines that are right for coupled networks are not.
    alone = engine.coupled == "refuse" or bool(slicing())
    order = max(orders_of(tuple(operators)), default=0)
    met = (type(engine), alone, order, torch.is_autocast_enabled(x.device.type))
    found = looked_at(model, met, lambda: _tried(model, x, engine, order, alone))
    return SameNumbers(model, len(x)) if found.random and engine.approximate else model


def _admitted_pointwise(model: Any, x: Tensor, operators: Sequence[Operator], engine: Engine) -> Model:
    """The same for what is made anew for every batch: the network inside is what is met, at a few of the samples."""
    order = max(orders_of(tuple(operators)), default=0)
    if order and not engine.approximate:
        met = (type(model), type(engine), order, torch.is_autocast_enabled(x.device.type))
        refused = looked_at(model.unbound()[0], met, lambda: _verdict_on_some(model, x, engine, order))
        if refused is not None:
            raise UnsupportedError(refused)
    return model


def _verdict_on_some(model: Pointwise, x: Tensor, engine: Engine, order: int) -> str | None:
    try:
        with torch.no_grad():  # graphs of many batches would be large
            wrong = _on_first(model, x, engine, order, _MOVING + 1).contradicted()
        with saved_tensors_hooks(_as_it_is, _as_it_is):  # hooks of the caller's are not for graphs that nobody keeps
            refused = _on_first(model, x, engine, 1, _MOVING).lost() if wrong is None else _refusal(wrong, engine)
    except Exception:  # as above
        return None
    return None if refused is None else str(refused)


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


def _on_first(model: Pointwise, x: Tensor, engine: Engine, order: int, count: int) -> Trial:
    some: Any = model.first(count)
    return Trial(some, x[: some.samples].detach(), engine, order, random=True)


class SameNumbers:
    """A network that draws random numbers, for stencils: all rows that belong to a point see the same ones."""

    def __init__(self, model: Model, points: int):
        self.model, self.points = model, points

    def __call__(self, rows: Tensor) -> Tensor:
        return on_each(self.model, rows.view(-1, self.points, rows.shape[1])).flatten(0, 1)


def _tried(model: Model, x: Tensor, engine: Engine, order: int, alone: bool) -> _Found:
    if alone:
        refuse_coupling(model, x)
    if not order:
        return _NOTHING
    if engine.coupled == "ignore":  # the network is taken as it is, without a pass to look at it
        return _Found(facts.has_dropout(model))
    few = _ROWS if engine.coupled is not None else _MOVING + 1
    refused = None
    try:
        rows, still = at_rest(model, x, few, few)
        is_random = facts.random(model, rows, still)
        if engine.approximate:
            refused = _noise(model, rows, still, engine, order)
        else:
            refused = Trial(model, rows, engine, order, is_random).verdict()
        kink = facts.kinks(model, rows) if order > 1 and not _is_warned(model) else None
    except Exception:  # A network may be defined at the points alone; whatever else it is, the call itself will say so.
        return _NOTHING
    if refused is not None:
        raise refused
    if kink is not None:
        _warn_of_kinks(model, kink)
    return _Found(is_random)


class Trial:
    """All derivatives along one direction, at the rows and a little to both sides of them."""

    def __init__(self, model: Model, rows: Tensor, engine: Engine, order: int, random: bool):
        self.model, self.rows, self.engine, self.random = model, rows, engine, random
        alone = engine.coupled is None
        self.order = min(order, _HIGHEST_ALONE if alone else _HIGHEST)
        self.eps = max(torch.finfo(rows.dtype).eps, 4 * facts.coarseness(model, rows))
        self.step = self.eps**0.25 * float(1 + rows.abs().amax())
        # Something of every axis, and of no two axes as much.
        along = 1 + torch.arange(1, rows.shape[1] + 1, dtype=torch.float64) * GOLDEN % 1
        self.along = (along / along.norm()).to(rows).expand_as(rows).contiguous()
        #: Where engines are right for coupled networks, only some of the rows move, one at a time.
        self.moving: list[Any] = [slice(i, i + 1) for i in range(_MOVING)] if alone else [slice(None)]

    def derivatives(self, rows: Tensor) -> list[Tensor]:
        operators = [D(), *(Along(self.along, k) for k in range(1, self.order + 1))]
        with self._unobserved():
            return list(self.engine.derivatives(self.model, rows, fitting(operators, rows)))

    def verdict(self) -> UnsupportedError | None:
        """The refusal of a network whose derivatives are not what its output does, or have lost their gradients."""
        here = self.derivatives(self.rows)
        lost = self.lost(here)
        if lost is not None:
            return lost
        order = self.contradicted(here)
        return None if order is None else _refusal(order, self.engine)

    def lost(self, here: list[Tensor] | None = None) -> UnsupportedError | None:
        """The refusal of a network whose parameters the engine's results, given those at the rows, have lost."""
        here = self.derivatives(self.rows) if here is None else here
        if not self._loses_gradients(here[0]):
            return None
        return UnsupportedError(
            f"{type(self.engine).__name__} would lose the gradients of some of this network's parameters: it has a "
            "torch.autograd.Function or a reentrant checkpoint in it, where nothing is recorded. Use dudx.AD(), and "
            "checkpoint with use_reentrant=False."
        )

    def contradicted(self, here: list[Tensor] | None = None) -> int | None:
        """The lowest order at which derivatives, given those at the rows, are not what the order below does."""
        here = self.derivatives(self.rows) if here is None else here
        with torch.no_grad():
            sides = [[self._moved(which, share) for which in self.moving] for share in (1, -1, 0.5, -0.5)]
            for k in range(1, self.order + 1):
                below = [
                    torch.cat([values[k - 1][which] for which, values in zip(self.moving, side, strict=True)])
                    for side in sides
                ]
                if self._contradicted(torch.cat([here[k].detach()[which] for which in self.moving]), below):
                    return k
        return None

    def _moved(self, which: Any, share: float) -> list[Tensor]:
        rows = self.rows.clone()
        rows[which] += share * self.step * self.along[which]
        return [value.detach() for value in self.derivatives(rows)]

    def _contradicted(self, ours: Tensor, below: list[Tensor]) -> bool:
        """Whether two differences that agree with each other disagree with a derivative in most rows of an output."""
        ours, *below = (value.double() for value in (ours, *below))
        wide, narrow = (below[0] - below[1]) / (2 * self.step), (below[2] - below[3]) / self.step
        size = torch.maximum(ours.abs(), narrow.abs())
        rounding = 64 * self.eps * below[2].abs().amax(0) / self.step
        sure = ((wide - narrow).abs() <= _SURE * size) & (size > rounding)
        wrong = sure & ((ours - narrow).abs() > _WRONG * size)
        return bool(((wrong.sum(0) >= 2) & (2 * wrong.sum(0) > sure.sum(0))).any())

    def _loses_gradients(self, ours: Tensor) -> bool:
        """Whether the output that the engine gets has other gradients than the plain one, or no way to a parameter."""
        if not torch.is_grad_enabled():
            return False
        with unobserved(self.model) as numbers:
            plain = self.model(self.rows.clone())
        parameters = _leaves(plain)
        if parameters.keys() - _leaves(ours).keys():
            return True
        if numbers.drawn:  # others, perhaps, than the engine draws
            return False
        weights = torch.cos(torch.arange(plain.numel(), device=plain.device)).view_as(plain)
        try:
            pairs = [
                torch.autograd.grad(
                    (weights * u).sum(), list(parameters.values()), retain_graph=True, allow_unused=True
                )
                for u in (ours, plain)
            ]
        except RuntimeError:  # as of reentrant checkpoints
            return False
        # Beside the largest: where a normalisation follows, the gradient of a bias is zero, and rounding all there is.
        largest = max((float(theirs.abs().amax()) for theirs in pairs[1] if theirs is not None), default=0.0)
        differences = [
            torch.inf if mine is None else float((mine - theirs).abs().amax())
            for mine, theirs in zip(*pairs, strict=True)
            if theirs is not None
        ]
        return max(differences, default=0.0) > 10 * self.eps**0.25 * largest

    def _unobserved(self) -> contextlib.AbstractContextManager[Any]:
        """Where nothing is drawn there is no need for numbers of our own, which take their time."""
        return unobserved(self.model) if self.random else unchanged_buffers(self.model)


def _leaves(u: Tensor) -> dict[int, nn.Parameter]:
    """The parameters, by their identities, that a tensor's graph ends at."""
    found: dict[int, nn.Parameter] = {}
    seen, ahead = set(), [u.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if isinstance(variable, nn.Parameter):
            found[id(variable)] = variable
        ahead.extend(following for following, _ in node.next_functions)
    return found


def _refusal(order: int, engine: Engine) -> UnsupportedError:
    which = {1: "first", 2: "second", 3: "third"}.get(order, f"{order}th")
    return UnsupportedError(
        f"The {which} derivative that {type(engine).__name__} gets of this network is not how its output moves when "
        "the points do: the network leaves the graph (no_grad, detach, .data, numpy, a function that torch cannot "
        "differentiate) or has a backward pass that is not its derivative. Write it in differentiable functions of "
        "torch, or use differences: dudx.FD().calibrated(model, x, operators, reference='differences')."
    )


def _noise(model: Model, rows: Tensor, still: Tensor, engine: Engine, order: int) -> UnsupportedError | None:
    """The refusal of a network that computes so coarsely that differences at the engine's step are noise."""
    step = _smallest_step(engine, order)
    found = None if step is None else facts.noise(model, rows)
    if step is None or found is None:
        return None
    still = still.double()
    spread = (still - still.mean(0)).square().mean(0).sqrt()
    width = float((rows - rows.mean(0)).double().square().mean().sqrt())
    share = float((found / spread.clamp(min=torch.finfo(torch.float64).tiny)).amax()) * (width / step) ** order
    if share <= _NOISE:
        return None
    name = type(engine).__name__
    return UnsupportedError(
        f"This network computes in a coarser format than its points' {str(rows.dtype).removeprefix('torch.')} "
        f"(autocast, or .half() inside), and at a step of {step:.1e} differences of order {order} are mostly "
        f"rounding: calibrate as it is evaluated, dudx.{name}().calibrated(model, x, operators) under the same "
        "autocast, or use dudx.AD() or dudx.Taylor()."
    )


def _smallest_step(engine: Engine, order: int) -> float | None:
    steps: Any = engine.state.get("steps")
    if isinstance(steps, dict):
        steps = steps.get(order, min(steps.values(), key=lambda step: min(step) if isinstance(step, tuple) else step))
    return min(steps) if isinstance(steps, tuple | list) else steps


_warned: weakref.WeakSet[Any] = weakref.WeakSet()


def _is_warned(model: Model) -> bool:
    try:
        return owner_of(model) in _warned
    except TypeError:  # what cannot be remembered is warned of each time
        return False


def _warn_of_kinks(model: Model, where: str) -> None:
    with contextlib.suppress(TypeError):
        _warned.add(owner_of(model))
    warnings.warn(
        f"This network is made of straight pieces in {where}: its second derivative is zero between the kinks, and "
        "none at them, so a residual with derivatives of order 2 says nothing about it. Use a smooth activation, such "
        "as nn.Tanh, nn.SiLU or nn.GELU.",
        KinkWarning,
        stacklevel=8,
    )
