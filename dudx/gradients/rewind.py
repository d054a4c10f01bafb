"""Replay random numbers, so that results to be compared are computed with equal random steps."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from dudx.engines.interface import Engine


class Rewind:
    """Save the state of random generators, and restore it at each call."""

    def __init__(self, generators: Iterable[torch.Generator]):
        distinct = {id(generator): generator for generator in generators}
        self._states = [(generator, generator.get_state()) for generator in distinct.values()]

    def __call__(self) -> None:
        for generator, state in self._states:
            generator.set_state(state)


def generators_of(engine: Engine | None, device: torch.device) -> list[torch.Generator]:
    """The random generators of an engine and of the network's layers."""
    found = [torch.default_generator]
    if device.type in ("cuda", "xpu"):
        module = torch.get_device_module(device)
        found.append(module.default_generators[module.current_device() if device.index is None else device.index])
    own = getattr(engine, "generator", None)
    return [*found, own] if isinstance(own, torch.Generator) else found
