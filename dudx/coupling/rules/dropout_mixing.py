"""Dropout: it mixes no samples, but a sample must keep its mask wherever it moves."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from dudx.coupling.mixing_rule_table import mixing_rule
from dudx.coupling.one_pass_isolation import ContextPass
from dudx.coupling.query_rows import QueryRows


def _drop(
    context_pass: ContextPass, function: Any, x: Any, p: float = 0.5, training: bool = True, *args: Any, **kwargs: Any
) -> Any:
    """Apply dropout to the context and record the mask."""
    if not training or p == 0:
        return function(x, p, training, *args, **kwargs)
    context_pass.note = F.dropout(torch.ones_like(x), p)
    return x * context_pass.note


@mixing_rule(F.dropout, torch.dropout, context=_drop)
def _dropout(rows: QueryRows, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply the masks of the context to the queries."""
    kept = rows.note
    if kept is None:
        return function(x, *args, **kwargs)
    rows.alone()
    axes = rows.axes(x)
    return x * (rows.owned(kept, axes[0]) if axes else kept)
