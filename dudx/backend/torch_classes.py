"""Private classes and functions of torch that have no public name, and names of torch functions."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules import batchnorm as _batchnorm
from torch.overrides import resolve_name
from torch.utils import _python_dispatch

#: Class of the operators that exported graphs consist of, such as `torch.ops.aten.tanh.default`. Without it the Taylor
#: engine differentiates such a graph operator by operator with torch's own derivatives.
Overload: type = getattr(getattr(torch, "_ops", None), "OpOverload", type(None))

#: Class of the operators of control flow, such as torch.cond.
ControlFlow: type = getattr(getattr(torch, "_ops", None), "HigherOrderOperator", type(None))

#: Base class of `torch.autograd.Function`, through which every call of `apply` goes. There is no public hook.
FunctionBase: Any = torch.autograd.Function.__mro__[1]

#: Base class of all batch norm layers.
BatchNorm = _batchnorm._BatchNorm

#: Mode that sees every kernel run in this thread and may replace it; used to draw random numbers from a generator of
#: our own.
DispatchMode = _python_dispatch.TorchDispatchMode

#: Search along a direction by cubic interpolation until the strong Wolfe conditions hold. Torch has no public line
#: search, and the self-scaled Broyden method needs one.
strong_wolfe: Callable[..., tuple[float, Tensor, float, int]]
strong_wolfe = importlib.import_module("torch.optim.lbfgs")._strong_wolfe


def function_name(function: Any) -> str:
    """Return the name of a function, as a user would write it."""
    if isinstance(function, Overload):
        return f"torch.ops.{function}"
    named = resolve_name(function) if callable(function) and not hasattr(function, "forward") else None
    return named or getattr(function, "__qualname__", None) or type(function).__qualname__
