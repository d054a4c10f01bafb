"""Run a network on many batches at once with `torch.func.vmap`."""

from __future__ import annotations

import torch
from torch import Tensor

from dudx.errors import ModelError, UnsupportedError
from dudx.network import model_checks
from dudx.network.model_checks import Model
from dudx.network.modules import scripted

_NOT_MAPPED = (
    "torch.func.vmap, by which many samples are run at once, cannot run this model; use "
    "dudx.PerSampleAD(method='loop')."
)


def batches_per_pass(size: int) -> int:
    """Number of batches of a size per pass: about 2¹⁵ rows, enough to keep a processor busy."""
    return max(1, 2**15 // size)


def with_one_replaced(context: Tensor, own: Tensor, places: Tensor) -> Tensor:
    """Return n copies (n, B, …) of the context (B, …); in copy j, entry places[j] is replaced by own[j]."""
    is_own = places.unsqueeze(1) == torch.arange(len(context), device=context.device)
    return torch.where(is_own.unsqueeze(-1), own.unsqueeze(1), context)


def on_each_batch(model: Model, batches: Tensor) -> Tensor:
    """Evaluate the model on each of n batches, (n, B, d) to (n, B, m)."""
    version = batches._version
    if scripted(model):
        raise UnsupportedError(_NOT_MAPPED)
    try:
        outputs = torch.func.vmap(lambda batch: model_checks.forward(model, batch), randomness="same")(batches)
    except ModelError as error:
        if error.__cause__ is not None:  # raises the error of a model that fails by itself
            model_checks.forward(model, batches[0].clone())
            raise UnsupportedError(_NOT_MAPPED) from error.__cause__
        raise
    model_checks.unchanged(batches, version)  # inside vmap a write is not recorded
    return outputs


class SameRandomNumbers:
    """A network evaluated on blocks of rows, one row per point; every block draws the same random numbers."""

    def __init__(self, model: Model, points: int):
        self.model, self.points = model, points

    def __call__(self, rows: Tensor) -> Tensor:
        if len(rows) % self.points:
            raise UnsupportedError(
                "This network draws random numbers, and differences need the same ones at all rows that belong to a "
                "point, of which some points have more than others here; use dudx.AD(), or model.eval()."
            )
        try:
            return on_each_batch(self.model, rows.view(-1, self.points, rows.shape[1])).flatten(0, 1)
        except UnsupportedError as error:
            raise UnsupportedError(
                "This network draws random numbers, and differences need the same ones at all rows that belong to a "
                "point, which torch.func.vmap cannot give it; use dudx.AD(), or model.eval()."
            ) from error
