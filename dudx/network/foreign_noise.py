"""Detect random numbers from other generators than torch's, which stencils cannot repeat."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

from dudx.backend.active_modes import vmap_active
from dudx.errors import ModelError, UnsupportedError
from dudx.network import model_checks
from dudx.network.batch_bound import Pointwise, samples_of
from dudx.network.model_checks import Model
from dudx.network.probe_rows import difference, probe_batch, rounding_tolerance
from dudx.network.sandbox import sandboxed

_ROWS = 16


def refuse_foreign_noise(model: Model, x: Tensor, engine: str) -> None:
    """Raise UnsupportedError for a network whose output varies although torch's random numbers are the same.

    Args:
        model: the network.
        x: the points, (B, d).
        engine: name of the engine, which needs equal numbers at all rows of a point.
    """
    if x.is_meta or isinstance(model, Pointwise) or vmap_active():
        return
    rows = x.detach() if samples_of(model) > 1 else probe_batch(model, x, _ROWS, _ROWS)[0]
    outputs = []
    # One sandbox for both passes, since it restores generators that the network holds on exit.
    with contextlib.suppress(ModelError), torch.no_grad(), sandboxed(model) as numbers:
        for _ in range(2):
            numbers.restart()
            outputs.append(model_checks.forward(model, rows.clone()))
    if len(outputs) == 2 and bool((difference(*outputs) > rounding_tolerance(outputs[0])).any()):
        raise UnsupportedError(
            "This network gives other values in each pass, and not by torch's random numbers (numpy.random, random, a "
            f"counter), and {engine} needs the same ones at all rows that belong to a point: draw with torch, or use "
            "dudx.AD() or dudx.Taylor(), or model.eval() if that ends it."
        )
