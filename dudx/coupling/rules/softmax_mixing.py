"""Softmax over the batch, with one sample replaced."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.coupling.mixing_rule_table import mixing_rule
from dudx.coupling.query_rows import QueryRows


def _still(x: Any) -> Tensor:
    """Return the detached value of a tensor or jet."""
    return getattr(x, "value", x).detach()


@mixing_rule(torch.softmax, Tensor.softmax, F.softmax, torch.log_softmax, Tensor.log_softmax, F.log_softmax)
def _softmax(rows: QueryRows, function: Any, x: Any, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    if dim is None or not rows.leads(x) or dim % x.ndim != 0:
        return function(x, dim, *args, **kwargs)
    context, queries = rows.split(x)
    # The shift by the maximum of the context and the row itself keeps exponentials finite; its derivative cancels, and
    # no row depends on another.
    largest = _still(context).amax(0, keepdim=True)
    shift = torch.maximum(largest, _still(queries))
    weights, of_context = torch.exp(torch.sub(queries, shift)), torch.exp(context - largest)
    leaving, entering = rows.exchange(of_context, weights)
    others = of_context.sum(0, keepdim=True)
    raised = torch.exp(largest - shift)
    sums = raised * (others - leaving) + entering if rows.replace else raised * others
    if function.__name__ == "softmax":
        return rows.join(context, weights / sums)
    return rows.join(context, torch.sub(queries, shift) - torch.log(sums))
