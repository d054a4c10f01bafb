"""Run a network without side effects: state is restored, and random numbers are private."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from dudx.backend.torch_classes import BatchNorm
from dudx.errors import ModelError
from dudx.network import model_checks
from dudx.network.model_checks import Model
from dudx.network.modules import modules_of
from dudx.network.random_numbers import KernelMonitor, PrivateRandomNumbers
from dudx.network.restored_state import unchanged_state


def output_of(model: Model, rows: Tensor, seed: int = 0) -> Tensor:
    """Return the output without a graph or side effects, also of a network that differentiates in its forward."""
    try:
        with torch.no_grad(), sandboxed(model, seed):
            return model_checks.forward(model, rows.clone())
    except ModelError as failed:
        if failed.__cause__ is None:  # the result is invalid, with a graph as well
            raise
        try:  # a network that differentiates in its own forward needs a graph for it
            with torch.inference_mode(False), torch.enable_grad(), sandboxed(model, seed):
                return model_checks.forward(model, rows.clone().requires_grad_().clone()).detach()
        except Exception:
            raise failed from failed.__cause__


@contextlib.contextmanager
def without_graph(model: Model, x: Tensor) -> Iterator[KernelMonitor]:
    """Disable gradients in the block, unless the network differentiates in its own forward.

    Yields a monitor of the kernels that the network runs.
    """
    kernels = PrivateRandomNumbers()
    with torch.no_grad():
        try:
            with kernels, unchanged_state(model):
                model_checks.forward(model, x.clone())
            needed = False
        except ModelError as failed:  # if it fails with a graph too, the error is raised at its use
            needed = failed.__cause__ is not None
    with torch.set_grad_enabled(needed):
        yield kernels


@contextlib.contextmanager
def sandboxed(model: Model, seed: int = 0) -> Iterator[PrivateRandomNumbers]:
    """Run a model with fixed private random numbers, and restore its state on exit.

    Yields the random numbers, which can be restarted.
    """
    with PrivateRandomNumbers(seed) as numbers, unchanged_state(model):
        yield numbers


@contextlib.contextmanager
def sandboxed_if_random(model: Model, rows: Tensor) -> Iterator[PrivateRandomNumbers]:
    """Sandbox a network only if it draws random numbers in a pass, so that others run at full speed."""
    with torch.no_grad(), sandboxed(model) as tried, contextlib.suppress(ModelError):
        model_checks.forward(model, rows.clone())  # if it fails, the error is raised at its use
    with (
        PrivateRandomNumbers() if tried.drawn else contextlib.nullcontext(PrivateRandomNumbers()) as numbers,
        unchanged_state(model),
    ):
        yield numbers


@contextlib.contextmanager
def untracked_statistics(model: Model) -> Iterator[None]:
    """Keep batch norm layers in training mode from updating their running statistics."""
    tracking = [m for m in modules_of(model) if isinstance(m, BatchNorm) and m.training and m.track_running_stats]
    for module in tracking:
        module.track_running_stats = False
    try:
        yield
    finally:
        for module in tracking:
            module.track_running_stats = True
