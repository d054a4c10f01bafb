"""Detect networks that depend on the number or order of rows, which differ in enlarged or split batches."""

from __future__ import annotations

import torch
from torch import Tensor

from dudx.backend.active_modes import vmap_active
from dudx.errors import UnsupportedError
from dudx.network.batch_bound import Pointwise, samples_of
from dudx.network.double_precision import in_double
from dudx.network.model_checks import Model
from dudx.network.probe_rows import GOLDEN_RATIO, difference, probe_batch
from dudx.network.sandbox import output_of

_ROWS = 8


def refuse_if_rows_are_counted(model: Model, x: Tensor, what: str) -> None:
    """Raise UnsupportedError for a network whose output for a point depends on the batch size or the row index.

    Args:
        model: the network.
        x: the points, (B, d).
        what: subject and verb of the message, such as "FD passes".
    """
    if x.is_meta or isinstance(model, Pointwise) or vmap_active():
        return
    if not rows_are_counted(model, x):
        return
    raise UnsupportedError(
        "This network's output for a point depends on how many rows its batch has or on the row's number (len(x), "
        f"arange(len(x)), a table by row, experts with a capacity), and {what} other batches through it than yours. "
        "Use dudx.AD() or dudx.Taylor() on the whole batch; numbers that belong to points are data, as in "
        "dudx.given(model, a=a)."
    )


def rows_are_counted(model: Model, x: Tensor) -> bool:
    """Return True if a batch of another size and order changes the output of some row.

    Returns False for a network that accepts no other batch, or that draws random numbers.
    """
    with torch.no_grad():
        blocks = samples_of(model) > 1
        rows, still = (x.detach(), output_of(model, x.detach())) if blocks else probe_batch(model, x, _ROWS, _ROWS)
        double = in_double(model, rows)
        if double is not None:
            model, rows = double, rows.double()
            still = output_of(model, rows)
        # Models with one row of data per point accept whole blocks only, in which the order is fixed.
        order = torch.arange(len(rows), device=rows.device)
        order = (order if blocks else (order.double() * GOLDEN_RATIO % 1).argsort()).repeat(3)
        try:
            now = output_of(model, rows[order])
        except Exception:
            return False
        size = still.masked_fill(~still.isfinite(), 0).abs().amax(0)
        # The order of sums depends on the batch size, so that more than the last digit may differ.
        if bool((difference(now, still[order]) <= torch.finfo(still.dtype).eps ** 0.75 * size).all()):
            return False
        return torch.equal(output_of(model, rows, seed=1).nan_to_num(), still.nan_to_num())
