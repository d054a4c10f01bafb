"""Networks on jets: unchanged, with shadows for plain tensors, or as one function that torch differentiates."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch

from dudx.backend.differentiable_kernels import differentiable_kernels
from dudx.engines.autograd_graph import is_ordinary
from dudx.engines.taylor.custom_functions import custom_functions
from dudx.engines.taylor.inplace import PlainTensorWrittenError, Shadows
from dudx.engines.taylor.jet import Jet, NotFollowedError, ScriptedError
from dudx.engines.taylor.torch_derivatives import through
from dudx.errors import DudxError
from dudx.network.model_checks import Model
from dudx.network.modules import modules_of, owner_of, type_name
from dudx.network.restored_state import unchanged_state

Method = Callable[[Model, Jet], Any]

#: Networks that jets do not pass directly, and the method that was found for them.
_methods: weakref.WeakKeyDictionary[Any, Method] = weakref.WeakKeyDictionary()


def output_of(model: Model, jet: Any) -> Any:
    """Return the network's output for a jet: a jet, or a tensor that does not depend on the input."""
    if torch.compiler.is_compiling():
        return model(jet)  # type: ignore[arg-type]
    if type(model).__name__ == "OptimizedModule":  # would compile itself for jets
        model = model._orig_mod  # type: ignore[attr-defined]
    if is_ordinary(model):
        return model(jet)  # type: ignore[arg-type]
    with custom_functions:
        known = _known_method(model) if _methods else None
        if known is not None:
            return known(model, jet)
        try:
            return model(jet)  # type: ignore[arg-type]
        except (DudxError, torch.cuda.OutOfMemoryError) as error:
            if not isinstance(error, NotFollowedError):
                raise
            reason: Exception = error
        except Exception as error:  # an error of the network itself occurs again with a tensor
            reason = error
        return _by_another_method(model, jet, reason)


def _by_another_method(model: Model, jet: Jet, reason: Exception) -> Any:
    owner = owner_of(model)
    methods: tuple[Method, ...] = (_as_one_function,)
    if isinstance(reason, PlainTensorWrittenError):
        methods = (_with_shadows, _as_one_function)
    elif isinstance(reason, ScriptedError) or isinstance(owner, torch.jit.ScriptFunction):
        methods = (_by_gradients,)
    for method in methods:
        try:
            found = method(model, jet)
        except NotFollowedError:
            continue
        if type(owner).__weakrefoffset__ and type(owner).__hash__ is not None:
            _methods[owner] = method
        return found
    raise reason


def _known_method(model: Model) -> Method | None:
    try:
        return _methods.get(owner_of(model))
    except TypeError:  # neither hashable nor weakly referable
        return None


def _with_shadows(model: Model, jet: Jet) -> Any:
    with Shadows() as shadows:
        return shadows.of(model(jet))  # type: ignore[arg-type]


def _as_one_function(model: Model, jet: Jet, gradient: bool = False) -> Any:
    """Differentiate the network as one function, which sees tensors only.

    Args:
        model: the network.
        jet: its input.
        gradient: use gradients only; TorchScript silently loses the tangents of forward mode.
    """

    def on_tensors(x: Any) -> Any:
        with unchanged_state(model), differentiable_kernels():
            return model(x)

    hint = f"Jets cannot pass the network {type_name(model)}, which torch differentiates as a whole: exact, but slower."
    owner = owner_of(model)
    key = weakref.ref(owner) if type(owner).__weakrefoffset__ else id(owner)
    found = through(on_tensors, (jet,), {}, hint, key=key, gradient=gradient)
    if any(True for module in modules_of(model) for _ in module.buffers(recurse=False)):
        with torch.no_grad():
            model(jet.value)  # one call that updates the buffers
    return found


_by_gradients: Method = functools.partial(_as_one_function, gradient=True)
