"""Queries about what is active in torch: function modes, `torch.func` transforms, checkpointing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

#: Return the number of active torch function modes. Without it a mode is assumed to be active, and operators on jets
#: take the slower path through torch's dispatch.
modes_active: Callable[[], int] = getattr(torch._C, "_len_torch_function_stack", lambda: 1)

#: Return True inside a `torch.func` transform, where rows of a batch cannot be told apart. Without it a transform is
#: assumed to be active, and per-sample gradients are computed row by row.
transforms_active: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)


def vmap_active() -> bool:
    """Return True inside `torch.func.vmap`, where the values of a tensor cannot be read.

    If torch does not tell transforms apart, any transform counts as vmap.
    """
    if not transforms_active():
        return False
    functorch: Any = getattr(torch._C, "_functorch", None)
    if not hasattr(functorch, "get_interpreter_stack") or not hasattr(functorch, "TransformType"):
        return True
    return any(layer.key() == functorch.TransformType.Vmap for layer in functorch.get_interpreter_stack() or ())


@contextlib.contextmanager
def lasting_constants() -> Iterator[None]:
    """Create tensors that may be cached: they belong neither to inference mode nor to an active transform.

    A tensor created inside a `torch.func` transform belongs to it, and torch raises an internal error if it is used
    later. Without the private switch, caches must not be filled inside a transform.
    """
    available = hasattr(torch._C, "_DisableFuncTorch") and not torch.compiler.is_compiling()  # dynamo rejects it
    outside: Any = torch._C._DisableFuncTorch if available else contextlib.nullcontext
    with torch.inference_mode(False), torch.no_grad(), outside():
        yield


#: Return the hooks on tensors that are saved for a backward pass, or None.
_top_hooks: Callable[[bool], Any]
_top_hooks = getattr(getattr(torch._C, "_autograd", None), "_top_saved_tensors_default_hooks", lambda _: None)


def saved_tensors_hooked() -> bool:
    """Return True where hooks may change what a backward pass reads, as in checkpoints.

    If torch does not tell, hooks that change it are not noticed.
    """
    return _top_hooks(True) is not None


def checkpoint_active() -> bool:
    """Return True inside `torch.utils.checkpoint`, whose forward pass is run again in the backward pass.

    If torch does not tell, a checkpointed network that draws random numbers fails with torch's own error.
    """
    hooks = _top_hooks(True)
    return hooks is not None and getattr(hooks[0], "__module__", "") == "torch.utils.checkpoint"
