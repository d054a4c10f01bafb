"""Networks on jets: as they are, with jets written into plain tensors, or as one function that torch differentiates."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointFunction

from dudx.backend.differentiable_kernels import differentiable_kernels
from dudx.backend.torch_classes import FunctionBase
from dudx.engines.autograd_graph import is_ordinary
from dudx.engines.taylor.inplace import PlainTensorWrittenError, Shadows, shadow_of
from dudx.engines.taylor.jet import Jet, NotFollowedError
from dudx.engines.taylor.torch_derivatives import through
from dudx.errors import DudxError
from dudx.network.model_checks import Model
from dudx.network.modules import kind, modules_of, owner_of
from dudx.network.sandbox import unchanged_buffers

Way = Callable[[Model, Jet], Any]

#: Networks through which jets do not simply flow, and the way that was found for them.
_ways: weakref.WeakKeyDictionary[Any, Way] = weakref.WeakKeyDictionary()


def output_of(model: Model, jet: Any) -> Any:
    """The network's output for a jet: a jet, or a tensor that does not depend on the input."""
    if torch.compiler.is_compiling():
        return model(jet)  # type: ignore[arg-type]
    if type(model).__name__ == "OptimizedModule":  # which would compile itself for jets
        model = model._orig_mod  # type: ignore[attr-defined]
    if is_ordinary(model):
        return model(jet)  # type: ignore[arg-type]
    with _custom_functions:
        if _ways:
            known = _known(model)
            if known is not None:
                return known(model, jet)
        try:
            return model(jet)  # type: ignore[arg-type]
        except (NotFollowedError, torch.cuda.OutOfMemoryError) as error:
            if not isinstance(error, NotFollowedError):
                raise
            reason: Exception = error
        except DudxError:
            raise
        except Exception as error:  # a mistake of the network shows again where it gets a tensor
            reason = error
        return _another_way(model, jet, reason)


def _another_way(model: Model, jet: Jet, reason: Exception) -> Any:
    for way in (_shadowed, _as_one) if isinstance(reason, PlainTensorWrittenError) else (_as_one,):
        try:
            found = way(model, jet)
        except NotFollowedError:
            continue
        owner = owner_of(model)
        if type(owner).__weakrefoffset__ and type(owner).__hash__ is not None:
            _ways[owner] = way
        return found
    raise reason


def _known(model: Model) -> Way | None:
    try:
        return _ways.get(owner_of(model))
    except TypeError:  # neither hashable nor weakly referable
        return None


def _shadowed(model: Model, jet: Jet) -> Any:
    with Shadows() as shadows:
        return shadows.of(model(jet))  # type: ignore[arg-type]


def _as_one(model: Model, jet: Jet) -> Any:
    """The whole network as one function: what is inside of it needs to know nothing of jets."""
    modules = modules_of(model)
    # What the interpreter of scripts makes of a graph loses the tangents of forward mode without a word.
    scripted = any(isinstance(module, torch.jit.ScriptModule | torch.jit.ScriptFunction) for module in modules)

    def alone(x: Any) -> Any:
        with unchanged_buffers(model), differentiable_kernels():
            return model(x)

    hint = f"Jets do not get through the network {kind(model)}, which is differentiated as a whole: exact, but slower."
    owner = owner_of(model)
    key = weakref.ref(owner) if type(owner).__weakrefoffset__ else id(owner)
    found = through(alone, (jet,), {}, hint, key=key, gradient=scripted)
    if any(True for module in modules for _ in module.buffers(recurse=False)):
        with torch.no_grad():
            model(jet.value)  # what one call leaves in the buffers
    return found


class _CustomFunctions:
    """While networks run on jets, functions with a derivative of their own get these too.

    A jet is no tensor, so torch would run their forward pass on it, without a graph, and never ask for the gradient
    that they define.
    """

    def __init__(self) -> None:
        self._running, self._lock = 0, threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            if not self._running:
                FunctionBase.apply = classmethod(_applied)
            self._running += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                del FunctionBase.apply


_custom_functions = _CustomFunctions()


def _applied(function: Any, *args: Any, **kwargs: Any) -> Any:
    args = tuple(shadow_of(argument) for argument in args)
    if not any(isinstance(argument, Jet) for argument in args):
        return super(FunctionBase, function).apply(*args, **kwargs)
    if function is CheckpointFunction:  # which would compute the inside again to save memory
        run, _, *given = args
        return run(*given)
    hint = f"Taylor takes the gradient that {function.__qualname__} defines: exact, but slower than a rule would be."
    return through(function.apply, args, kwargs, hint, key=function, gradient=True)
