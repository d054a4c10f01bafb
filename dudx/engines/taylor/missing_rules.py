"""Functions on jets that have no rule: overloads of functions with rules, operations in place, and all others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dudx.backend.containers import flattened, rebuilt
from dudx.backend.torch_classes import Overload, function_name
from dudx.engines.taylor.inplace import writable, write
from dudx.engines.taylor.jet import Jet, NotFollowedError, ScriptedError
from dudx.engines.taylor.rule_table import RULES
from dudx.engines.taylor.torch_derivatives import through
from dudx.errors import UnsupportedError

#: Methods that convert a tensor to numbers and would silently lose its derivatives.
_NUMBERS = {"item", "tolist", "numpy", "__array__", "__float__", "__int__", "__index__", "__complex__", "__dlpack__"}

#: Methods of tensors in a graph; networks that use them differentiate in their own forward pass.
_OF_GRAPHS = {"requires_grad_", "register_hook", "backward", "retain_grad", "register_post_accumulate_grad_hook"}

#: Methods in place that change the shape or the memory of a tensor.
_RESHAPING = {"squeeze_", "unsqueeze_", "transpose_", "t_", "swapaxes_", "swapdims_", "resize_", "resize_as_", "set_",
    "as_strided_", "rename_"}  # fmt: skip

#: Methods in place that overwrite a tensor with values that do not depend on it.
_FILLING = {
    "zero_", "random_", "uniform_", "normal_", "exponential_", "bernoulli_", "log_normal_", "cauchy_", "geometric_",
}  # fmt: skip


def without_rule(function: Any, args: Any, kwargs: Any) -> Any:
    """Apply a function without a rule to jets: by a rule of a related function, or by torch's derivatives of it."""
    name = getattr(function, "__name__", "")
    if torch.compiler.is_compiling():
        raise UnsupportedError(f"Taylor has no rule for {function_name(function)}, which a compiled graph needs.")
    if isinstance(function, Overload):
        name, same = _public_function(function)
        if same is not None and same in RULES:
            return Jet.__torch_function__(same, (), args, kwargs)
    if kwargs.get("out") is not None:
        return _into_out(function, args, dict(kwargs))
    if name in _NUMBERS:
        return float(next(leaf for leaf in flattened((args, kwargs)) if isinstance(leaf, Jet)))
    if name in _OF_GRAPHS:
        raise NotFollowedError(f"Taylor has no rule for {function_name(function)}: use dudx.AD() for this network.")
    if isinstance(function, torch.ScriptMethod):
        raise ScriptedError("Taylor cannot follow a scripted or traced module; use the module it was made from.")
    if _is_in_place(name):
        return _in_place(function, name, args, kwargs)
    if kwargs.get("inplace"):
        result = Jet.__torch_function__(function, (), args, {**kwargs, "inplace": False})
        return write(args[0], result, result)
    return through(function, args, kwargs)


def _public_function(overload: Any) -> tuple[str, Any]:
    """Return the name of an operator such as aten.add.Tensor, and the public function with the same arguments."""
    name = overload._schema.name.partition("::")[2]
    same = getattr(torch, name, None) or getattr(Tensor, name, None)
    return name, torch.nn.functional.linear if name == "linear" else same


def _is_in_place(name: str) -> bool:
    return (name.endswith("_") and not name.endswith("__")) or (
        name.startswith("__i") and hasattr(Tensor, f"__{name[3:]}")
    )


def _in_place(function: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Apply a function in place: write the result of its counterpart into the first argument."""
    target, *others = args
    like = next(leaf for leaf in flattened((args, kwargs)) if isinstance(leaf, Jet))
    if name in _RESHAPING:
        raise NotFollowedError(f"Taylor has no rule for {function_name(function)}; use dudx.AD() for this network.")
    if name in _FILLING:
        return write(target, function(torch.empty_like(target.value), *others, **kwargs), like)
    if name in ("copy_", "fill_"):
        return write(target, others[0], like)
    counterpart = getattr(Tensor, f"__{name[3:]}" if name.startswith("__i") else name[:-1], None)
    if counterpart is not None and hasattr(Tensor, name):
        result = Jet.__torch_function__(counterpart, (), (writable(target, like), *others), kwargs)
    else:  # apply it to a copy
        result = through(
            lambda first, *rest, **named: function(first.clone(), *rest, **named),
            (writable(target, like), *others), kwargs, key=function_name(function),
        )  # fmt: skip
    return write(target, result, like)


def _into_out(function: Any, args: Any, kwargs: Any) -> Any:
    """Apply a function that writes its results into the tensors given as `out`."""
    targets = kwargs.pop("out")
    jets = [leaf for leaf in flattened((args, kwargs)) if isinstance(leaf, Jet)]
    if not jets:  # constants are written into a jet
        result = function(*args, **kwargs)
        jets = [leaf for leaf in flattened(targets) if isinstance(leaf, Jet)]
    else:
        result = Jet.__torch_function__(function, (), args, kwargs)
    leaves = [
        write(target, leaf, jets[0]) if isinstance(leaf, Jet) or isinstance(target, Jet) else target.copy_(leaf)
        for target, leaf in zip(flattened(targets), flattened(result), strict=True)
    ]
    return rebuilt(result, iter(leaves))
