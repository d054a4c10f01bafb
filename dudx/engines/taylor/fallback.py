"""What is done with a function on jets that has no rule, or whose rule does not know this variant."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dudx.backend.torch_classes import Overload, function_name
from dudx.engines.taylor.inplace import writable, write
from dudx.engines.taylor.jet import RULES, Jet, NotFollowedError
from dudx.engines.taylor.script import interpreted, is_script
from dudx.engines.taylor.torch_derivatives import flattened, rebuilt, through
from dudx.errors import UnsupportedError

#: What makes numbers of a tensor, which have no derivatives, and nobody would say so.
_NUMBERS = {"item", "tolist", "numpy", "__array__", "__float__", "__int__", "__index__", "__complex__", "__dlpack__"}

#: What only a graph has: networks that use it differentiate in their own forward pass.
_OF_GRAPHS = {"requires_grad_", "register_hook", "backward", "retain_grad", "register_post_accumulate_grad_hook"}

#: Methods in place that change the shape, or the memory itself.
_RESHAPING = {"squeeze_", "unsqueeze_", "transpose_", "t_", "swapaxes_", "swapdims_", "resize_", "resize_as_", "set_",
    "as_strided_", "rename_"}  # fmt: skip

#: Methods in place that have no counterpart, and what they leave.
_FILLING = {
    "zero_", "random_", "uniform_", "normal_", "exponential_", "bernoulli_", "log_normal_", "cauchy_", "geometric_",
}  # fmt: skip


def otherwise(function: Any, args: Any, kwargs: Any) -> Any:
    """The function by a rule of another name for the same, by writing, or by torch's derivatives of it."""
    name = getattr(function, "__name__", "")
    if torch.compiler.is_compiling():
        raise UnsupportedError(f"Taylor has no rule for {function_name(function)}, which a compiled graph needs.")
    if isinstance(function, Overload):
        name, known = _of_overload(function)
        if known is not None and known in RULES:
            return Jet.__torch_function__(known, (), args, kwargs)
    if kwargs.get("out") is not None:
        return _written_out(function, args, dict(kwargs))
    if name in _NUMBERS:
        return float(next(leaf for leaf in flattened((args, kwargs)) if isinstance(leaf, Jet)))
    if name in _OF_GRAPHS:
        raise NotFollowedError(f"Taylor has no rule for {function_name(function)}: use dudx.AD() for this network.")
    if is_script(function):
        return interpreted(function, args, kwargs)
    if _in_place(name):
        return _rewritten(function, name, args, kwargs)
    if kwargs.get("inplace"):
        result = Jet.__torch_function__(function, (), args, {**kwargs, "inplace": False})
        return write(args[0], result, result)
    return through(function, args, kwargs)


def _of_overload(function: Any) -> tuple[str, Any]:
    """The name of an operator of torch's own library, and the function of torch that takes the same arguments."""
    name = function._schema.name.partition("::")[2]
    same = getattr(torch, name, None) or getattr(Tensor, name, None)
    return name, torch.nn.functional.linear if name == "linear" else same


def _in_place(name: str) -> bool:
    return (name.endswith("_") and not name.endswith("__")) or (
        name.startswith("__i") and hasattr(Tensor, f"__{name[3:]}")
    )


def _rewritten(function: Any, name: str, args: Any, kwargs: Any) -> Any:
    """A function that works in place: what its counterpart returns is written into the first argument."""
    target, *others = args
    like = next(leaf for leaf in flattened((args, kwargs)) if isinstance(leaf, Jet))
    if name in _RESHAPING:
        raise NotFollowedError(f"Taylor has no rule for {function_name(function)}; use dudx.AD() for this network.")
    if name in _FILLING:
        return write(target, function(torch.empty_like(target.value), *others, **kwargs), like)
    if name == "copy_":
        return write(target, others[0], like)
    if name == "fill_":
        return write(target, others[0], like)
    counterpart = getattr(Tensor, f"__{name[3:]}" if name.startswith("__i") else name[:-1], None)
    if counterpart is not None and hasattr(Tensor, name):
        result = Jet.__torch_function__(counterpart, (), (writable(target, like), *others), kwargs)
    else:  # of a copy, which may be written to
        result = through(
            lambda first, *rest, **named: function(first.clone(), *rest, **named),
            (writable(target, like), *others), kwargs, key=function_name(function),
        )  # fmt: skip
    return write(target, result, like)


def _written_out(function: Any, args: Any, kwargs: Any) -> Any:
    """A function that writes its results into tensors that were given for it."""
    targets = kwargs.pop("out")
    jets = [leaf for leaf in flattened((args, kwargs)) if isinstance(leaf, Jet)]
    if not jets:  # nothing that depends on the inputs is written into a jet
        result = function(*args, **kwargs)
        jets = [leaf for leaf in flattened(targets) if isinstance(leaf, Jet)]
    else:
        result = Jet.__torch_function__(function, (), args, kwargs)
    leaves = [
        write(target, leaf, jets[0]) if isinstance(leaf, Jet) or isinstance(target, Jet) else target.copy_(leaf)
        for target, leaf in zip(flattened(targets), flattened(result), strict=True)
    ]
    return rebuilt(result, iter(leaves))
