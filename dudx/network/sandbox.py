"""Running a network without leaving a trace: its buffers and the random state are as they were."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from dudx import checks
from dudx.checks import Model
from dudx.errors import ModelError
from dudx.network.modules import modules_of
from dudx.private_torch import BatchNorm, mps_generator


def output_of(model: Model, rows: Tensor, seed: int = 0) -> Tensor:
    """The output without a graph and without a trace, also of a network that differentiates in its own forward."""
    try:
        with torch.no_grad(), unobserved(model, rows.device, seed):
            return checks.forward(model, rows.clone())
    except ModelError as failed:
        if failed.__cause__ is None:  # what it returned is wrong, and will be again
            raise
        try:  # a network that differentiates in its own forward needs a graph for it
            with torch.inference_mode(False), torch.enable_grad(), unobserved(model, rows.device, seed):
                return checks.forward(model, rows.clone().requires_grad_().clone()).detach()
        except Exception:
            raise failed from failed.__cause__


@contextlib.contextmanager
def without_graph(model: Model, x: Tensor) -> Iterator[None]:
    """For forward passes alone: nothing is recorded, unless the network differentiates in its own forward."""
    with torch.no_grad():
        try:
            with unobserved(model, x.device):
                checks.forward(model, x.clone())
            needed = False
        except ModelError as failed:  # if it fails with a graph too, it says so where it is used
            needed = failed.__cause__ is not None
    with torch.set_grad_enabled(needed):
        yield


@contextlib.contextmanager
def unobserved(model: Model, device: torch.device, seed: int = 0) -> Iterator[None]:
    """The same random numbers every time inside; the model's buffers and the random state put back afterwards."""
    random = RandomState(device)
    try:
        seed_generators(device, seed)
        with unchanged_buffers(model):
            yield
    finally:
        random.again()


class RandomState:
    """The state of what a network on a device draws its random numbers from, at one moment, to go back to."""

    def __init__(self, device: torch.device):
        self.states = [(generator, generator.get_state()) for generator in _generators(device)]

    def again(self) -> None:
        """Draw from here on what was drawn from that moment on."""
        for generator, state in self.states:
            generator.set_state(state)


def seed_generators(device: torch.device, seed: int) -> None:
    """Seed what a network on this device draws its random numbers from; torch.manual_seed would reach every device."""
    for generator in _generators(device):
        generator.manual_seed(seed)


def _generators(device: torch.device) -> list[torch.Generator]:
    if device.type == "mps":
        return [torch.default_generator, mps_generator()]
    if device.type in ("cuda", "xpu"):
        module = torch.get_device_module(device)
        number = module.current_device() if device.index is None else device.index
        return [torch.default_generator, module.default_generators[number]]
    return [torch.default_generator]


@contextlib.contextmanager
def unchanged_buffers(model: Model) -> Iterator[None]:
    """Put the buffers (running statistics, power iterations) of a module back afterwards."""
    owners = [module._buffers for module in modules_of(model)]
    saved = [(owner, name, b, b.clone()) for owner in owners for name, b in owner.items() if b is not None]
    try:
        yield
    finally:
        with torch.no_grad():
            for owner, name, buffer, value in saved:
                owner[name] = buffer  # a forward may have put another tensor in its place
                if not torch.equal(buffer, value):  # else a graph that holds the buffer would notice the write
                    buffer.copy_(value)


@contextlib.contextmanager
def untracked_statistics(model: Model) -> Iterator[None]:
    """Keep batch norm layers in training mode from updating their running statistics once for each sample."""
    tracking = [m for m in modules_of(model) if isinstance(m, BatchNorm) and m.training and m.track_running_stats]
    for module in tracking:
        module.track_running_stats = False
    try:
        yield
    finally:
        for module in tracking:
            module.track_running_stats = True
