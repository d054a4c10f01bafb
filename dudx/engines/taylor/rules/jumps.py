"""Piecewise constant functions and functions whose results are not real numbers: only values are computed."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.backend.containers import mapped
from dudx.engines.taylor.rule_helpers import values_of
from dudx.engines.taylor.rule_table import RULES, NotCoveredError

_NAMES = [
    "floor", "ceil", "round", "trunc", "fix", "sign", "sgn", "argmax", "argmin", "argsort", "searchsorted", "bucketize",
    "isnan", "isinf", "isfinite", "isposinf", "isneginf", "isreal", "isclose", "allclose", "equal", "logical_and",
    "logical_or", "logical_not", "logical_xor", "signbit", "heaviside", "count_nonzero", "any", "all", "nonzero",
    "argwhere", "isin", "gt", "ge", "lt", "le", "eq", "ne", "greater", "greater_equal", "less", "less_equal",
    "not_equal", "is_nonzero", "histc", "floor_divide", "nextafter", "numel", "is_complex", "is_floating_point",
    "is_tensor", "result_type", "can_cast",
]  # fmt: skip
_METHODS = [
    "long", "int", "short", "bool", "char", "byte", "size", "stride", "dim", "nelement", "element_size",
    "is_contiguous", "storage_offset", "get_device", "ndimension", "is_signed", "is_inference", "data_ptr",
    "__gt__", "__ge__", "__lt__", "__le__", "__eq__", "__ne__", "__floordiv__", "__len__",
]  # fmt: skip


def jumping(function: Any) -> Any:
    """Return the rule of a piecewise constant function."""

    def rule(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("out") is not None:
            raise NotCoveredError
        args, kwargs = mapped(args, values_of), mapped(kwargs, values_of)
        result = function(*args, **kwargs)
        if isinstance(result, Tensor) and result.is_complex():  # the sign of a complex number is not piecewise constant
            raise NotCoveredError
        return result.detach() if isinstance(result, Tensor) else result

    return rule


def _register() -> None:
    for owner in (torch, Tensor):
        for name in _NAMES:
            function = getattr(owner, name, None)
            if function is not None:
                RULES[function] = jumping(function)
    for name in _METHODS:
        RULES[getattr(Tensor, name)] = jumping(getattr(Tensor, name))
    RULES[F.one_hot] = jumping(F.one_hot)
    RULES[Tensor.__rfloordiv__] = jumping(Tensor.__rfloordiv__)


_register()
