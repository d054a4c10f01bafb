"""The output of a network whose graph is to be differentiated more than once: what the graph is made of matters."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction, once_differentiable

from dudx.backend.differentiable_kernels import differentiable_kernels
from dudx.backend.fused_kernels import is_fused, is_higher_order
from dudx.errors import UnsupportedError
from dudx.network import model_checks
from dudx.network.function_monitor import mark_doubtful
from dudx.network.model_checks import Model
from dudx.network.modules import modules_of, owner_of
from dudx.network.random_numbers import PrivateRandomNumbers
from dudx.network.restored_state import unchanged_state

#: What every backward pass decorated by once_differentiable has for its code.
_ONCE = once_differentiable(lambda ctx: None).__code__

#: Modules whose graphs hold nothing special: a network made of them alone need not be looked at.
_ORDINARY = {
    nn.Sequential, nn.Linear, nn.Identity, nn.Flatten, nn.Tanh, nn.Sigmoid, nn.SiLU, nn.GELU, nn.Softplus, nn.Mish,
    nn.ELU, nn.CELU, nn.SELU, nn.ReLU, nn.LeakyReLU, nn.Softsign, nn.Tanhshrink, nn.LogSigmoid,
}  # fmt: skip

#: Networks that were met before, and whether fused kernels were found in them.
_met: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def differentiable_output(model: Model, x: Tensor, order: int) -> Tensor:
    """The output at x, of which derivatives up to an order, and their gradients, can be taken.

    Most networks have nothing but ordinary kernels, and run as they are; others run again with these written out.
    """
    if is_ordinary(model):
        return model_checks.forward(model, x)  # without a copy of the points, which such a network does not write into
    owner = owner_of(model)
    fused = _met.get(owner) if _can_be_met(owner) else None
    if not fused:
        # The first look may not be the last pass, so that it must leave no trace in the process's random numbers.
        with PrivateRandomNumbers() if fused is None else contextlib.nullcontext() as numbers:
            u = model_checks.forward(model, x.clone())
        found = _looked_at(u, order)
        if _can_be_met(owner):
            _met[owner] = found is not None
        if found is None and (numbers is None or not numbers.drawn):
            return u
        if found is not None and any(isinstance(module, torch.jit.ScriptModule) for module in modules_of(model)):
            refuse_what_is_hidden(u, order)  # nothing in there can be written out
            return u
        with unchanged_state(model), differentiable_kernels() if found else contextlib.nullcontext():
            u = model_checks.forward(model, x.clone())
    else:
        with differentiable_kernels():
            u = model_checks.forward(model, x.clone())
    refuse_what_is_hidden(u, order)
    return u


def refuse_what_is_hidden(u: Tensor, order: int) -> None:
    """Raise an error for an output whose derivatives would be wrong from some order on, without a word."""
    found = _looked_at(u, order)
    if found is not None and order > 1:
        raise UnsupportedError(
            f"This network has a fused kernel ({found}) that cannot be written out, as in a traced, scripted or "
            "exported module; its second derivative would have a wrong gradient. Use the original module, "
            "dudx.Taylor() for an exported one, or differences: dudx.FD().calibrated(model, x, operators, "
            "reference='differences')."
        )


def fused_kernel(u: Tensor) -> str | None:
    """The name of a fused kernel in the graph of an output; None where there is none."""
    return _looked_at(u, 1)


def is_ordinary(model: object) -> bool:
    """Whether a network is a sequence of ordinary modules that nobody has changed, none of which works in place."""
    ahead = [model]
    while ahead:
        module = ahead.pop()
        if type(module) not in _ORDINARY:
            return False
        state = vars(module)
        if state["_forward_hooks"] or state["_forward_pre_hooks"] or "forward" in state or state.get("inplace"):
            return False
        ahead.extend(state["_modules"].values())
    return True


def _can_be_met(owner: object) -> bool:
    return type(owner).__weakrefoffset__ != 0 and type(owner).__hash__ is not None


def _looked_at(u: Tensor, order: int) -> str | None:
    """The name of a fused kernel in the graph of u; an error for a function that can be differentiated once only.

    Torch takes the gradient of such a function for a constant, and computes the rest without it. It raises an error
    itself only where gradients of all leaves are asked for, and here it is that of the points.
    """
    fused = None
    seen, ahead = set(), [u.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if is_fused(node):
            fused = node.name()
        if isinstance(node, BackwardCFunction):
            mark_doubtful()
            function: Any = node._forward_cls  # type: ignore[attr-defined]
            if order and is_higher_order(function):
                raise too_often(f"{function.__name__}, of torch.cond and the like, loses second derivatives")
            if order > 1 and getattr(function.backward, "__code__", None) is _ONCE:
                raise too_often(f"{function.__name__} is marked once_differentiable")
        for following, _ in node.next_functions:
            ahead.append(following)
    return fused


def too_often(reason: str) -> UnsupportedError:
    """The refusal of a network that cannot be differentiated automatically as often as asked."""
    return UnsupportedError(
        f"This network cannot be differentiated automatically as often as was asked ({reason}). Differences need no "
        "such thing: dudx.FD().calibrated(model, x, operators, reference='differences')."
    )
