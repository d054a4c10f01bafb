"""Batch norm with running statistics during training, so that samples are independent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from dudx.backend import tensor_checks
from dudx.backend.torch_classes import BatchNorm
from dudx.errors import InputError
from dudx.network import model_checks
from dudx.network.model_checks import Model
from dudx.network.modules import modules_of


@contextlib.contextmanager
def running_statistics(model: Model, x: Tensor | None = None) -> Iterator[Model]:
    """Normalise by running statistics in the block, after updating them from a batch.

    Inside the block samples are independent, so every engine is right. No gradient flows through the statistics: they
    are constants of a step, as at inference.

        with dudx.running_statistics(model, x):
            loss = residual.loss(model, x, engine)

    Args:
        model: the network; its batch norm layers in training mode are in evaluation mode inside the block.
        x: the batch, (B, d), that updates the running statistics once, on entering the block, from the inputs of the
            layers while they normalise by running statistics; None leaves the statistics unchanged.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
        >>> x = torch.rand(16, 2)
        >>> with dudx.running_statistics(model, x):
        ...     inside = dudx.coupled(model, x)
        >>> inside, dudx.coupled(model, x)
        (False, True)
    """
    layers = [module for module in modules_of(model) if isinstance(module, BatchNorm) and module.training]
    for layer in layers:
        if layer.running_mean is None or layer.running_var is None:
            raise InputError(f"{layer} keeps no running statistics; make it with track_running_stats=True.")
    if not layers:
        raise InputError("The network has no batch norm layer in training mode; there is nothing to be changed.")
    for layer in layers:
        layer.eval()
    try:
        if x is not None:
            tensor_checks.finite_on_schedule(tensor_checks.batch(x), "points")
            _update(model, x, layers)
        yield model
    finally:
        for layer in layers:
            layer.train()


def _update(model: Model, x: Tensor, layers: list[BatchNorm]) -> None:
    hooks = [layer.register_forward_pre_hook(_follow) for layer in layers]
    try:
        with torch.enable_grad():  # for networks that differentiate in their forward
            model_checks.forward(model, x.detach())
    finally:
        for hook in hooks:
            hook.remove()


def _follow(layer: Any, inputs: tuple[Tensor, ...]) -> None:
    """Update the running statistics from the input, as the layer in training mode would."""
    if inputs[0].numel() < 2 * inputs[0].shape[1]:
        raise InputError("One value a channel has no variance to follow; give a batch of two samples or more.")
    axes = [axis for axis in range(inputs[0].ndim) if axis != 1]
    variance, mean = torch.var_mean(inputs[0].detach(), axes)
    layer.num_batches_tracked.add_(1)
    weight = 1 / int(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    # New tensors, since the graph of an earlier loss may hold the old ones.
    layer.running_mean = torch.lerp(layer.running_mean, mean.to(layer.running_mean), weight)
    layer.running_var = torch.lerp(layer.running_var, variance.to(layer.running_var), weight)
