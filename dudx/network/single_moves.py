"""A batch for each sample, in which that sample alone moves: what it means to be right for coupled networks."""

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


def batches_at_once(size: int) -> int:
    """How many batches of a size pass at once: about 2¹⁵ rows, enough to keep a processor busy."""
    return max(1, 2**15 // size)


def one_moved(context: Tensor, own: Tensor, places: Tensor) -> Tensor:
    """The batches (n, B, …) that are the context (B, …) with entry places[j] replaced by own[j]."""
    is_own = places.unsqueeze(1) == torch.arange(len(context), device=context.device)
    return torch.where(is_own.unsqueeze(-1), own.unsqueeze(1), context)


def on_each(model: Model, batches: Tensor) -> Tensor:
    """The model on each of many batches, (n, B, d) to (n, B, m)."""
    version = batches._version
    if scripted(model):
        raise UnsupportedError(_NOT_MAPPED)
    try:
        outputs = torch.func.vmap(lambda batch: model_checks.forward(model, batch), randomness="same")(batches)
    except ModelError as error:
        if error.__cause__ is not None:  # a model that fails by itself says so here
            model_checks.forward(model, batches[0].clone())
            raise UnsupportedError(_NOT_MAPPED) from error.__cause__
        raise
    model_checks.unchanged(batches, version)  # inside vmap a write leaves no trace
    return outputs
