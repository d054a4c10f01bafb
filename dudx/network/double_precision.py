"""Copy a network to double precision, to measure small changes of large values."""

from __future__ import annotations

import copy
import types
from typing import Any

import torch
from torch import Tensor, nn

from dudx.network.batch_bound import BatchBound
from dudx.network.model_checks import Model
from dudx.network.modules import modules_of, owner_of
from dudx.network.sandbox import output_of


def in_double(model: Model, rows: Tensor) -> Model | None:
    """Return the network in double precision, or None if it cannot be copied.

    A module, or the owner of a method, is copied. A function without modules computes in the format of its points.
    """
    if isinstance(model, BatchBound) or rows.dtype == torch.float64 or rows.is_meta:
        return None
    try:
        double: Any = _copied(model)
        return None if output_of(double, rows[:2].double()).dtype != torch.float64 else double
    except Exception:  # it cannot be copied, or holds tensors of another format
        return None


def _copied(model: Any) -> Any:
    owner = owner_of(model)
    if isinstance(owner, nn.Module):
        twin = copy.deepcopy(owner).double()
        return types.MethodType(model.__func__, twin) if isinstance(model, types.MethodType) else twin
    if modules_of(model):
        raise TypeError("The modules that a function uses cannot be exchanged.")
    return model
