"""Detect networks that depend on the number or order of rows, which differ in enlarged or split batches."""

from __future__ import annotations

import torch
from torch import Tensor

from dudx.backend.active_modes import vmap_active
from dudx.errors import UnsupportedError
from dudx.network.batch_bound import Pointwise, samples_of
from dudx.network.double_precision import in_double
from dudx.network.model_checks import Model
from dudx.network.probe_rows import difference, in_general_position
from dudx.network.sandbox import output_of

#: Maximal numbers of rows of the two batches that are compared.
_MOST_OWN, _MOST_PASSED = 2**12, 2**16


def refuse_if_rows_are_counted(model: Model, x: Tensor, what: str, own: int, passed: int) -> None:
    """Raise UnsupportedError for a network whose output for a point depends on the batch size or the row index.

    Args:
        model: the network.
        x: the points, (B, d).
        what: subject and verb of the message, such as "FD passes".
        own: number of rows in the user's batch.
        passed: number of rows in the batch that is passed instead.
    """
    if x.is_meta or isinstance(model, Pointwise) or vmap_active():
        return
    if not rows_are_counted(model, x, own, passed):
        return
    raise UnsupportedError(
        "This network's output for a point depends on how many rows its batch has or on the row's number (len(x), "
        f"arange(len(x)), a table by row, experts with a capacity), and {what} other batches through it than yours. "
        "Use dudx.AD() or dudx.Taylor() on the whole batch; numbers that belong to points are data, as in "
        "dudx.given(model, a=a)."
    )


@torch.no_grad()
def rows_are_counted(model: Model, x: Tensor, own: int, passed: int) -> bool:
    """Return True if a row's output in a batch of `own` rows differs from that in one of `passed` rows, in any order.

    Returns False for a network that accepts no other batch, or that draws random numbers.
    """
    own, passed = min(own, _MOST_OWN), min(passed, _MOST_PASSED)
    blocks = samples_of(model) > 1
    points = x.detach() if blocks else x.detach()[: min(own, passed)]
    # Where a network is defined at its points alone, they stay where they are.
    for rows in (points,) if blocks else (in_general_position(points), points):
        double = in_double(model, rows)
        used, rows = (model, rows) if double is None else (double, rows.double())
        # Models with one row of data per point accept whole blocks only, in which the order is fixed.
        first = torch.arange(len(rows) if blocks else own, device=rows.device) % len(rows)
        if blocks:
            order = first.repeat(max(2, passed // len(rows)))
        else:
            order = torch.randperm(passed, generator=torch.Generator("cpu").manual_seed(0), device="cpu").to(
                rows.device
            ) % len(rows)
        try:
            still, now = output_of(used, rows[first]), output_of(used, rows[order])
        except Exception:
            continue
        size = still.masked_fill(~still.isfinite(), 0).abs().amax(0)
        # The order of sums depends on the batch size, so that more than the last digit may differ.
        allowed = torch.finfo(still.dtype).eps ** 0.75 * size
        if all(bool((difference(u, still[of]) <= allowed).all()) for u, of in ((still, first), (now, order))):
            return False
        return torch.equal(output_of(used, rows[first], seed=1).nan_to_num(), still.nan_to_num())
    return False
