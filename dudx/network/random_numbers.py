"""Random numbers of our own: networks draw from a generator that nobody else has, and the process's stay untouched."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from dudx.backend.active_modes import checkpoint_active
from dudx.backend.torch_classes import DispatchMode


class KernelMonitor(DispatchMode):
    """Notes whether kernels draw random numbers and in which formats they compute, also inside of scripts."""

    def __init__(self) -> None:
        super().__init__()
        #: Whether anything was drawn, and whether in a part that the backward pass runs again.
        self.drawn = self.drawn_in_checkpoint = False
        #: The coarsest format that anything was computed in.
        self.coarsest_dtype: torch.dtype | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = self.run(func, args, kwargs or {})
        if isinstance(made, Tensor) and made.is_floating_point() and _eps(made.dtype) > _eps(self.coarsest_dtype):
            self.coarsest_dtype = made.dtype
        return made

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The kernel itself."""
        if _draws(func, args, kwargs):
            self.note_draw()
        return func(*args, **kwargs)

    def note_draw(self) -> None:
        """Remember that numbers are drawn, and where."""
        self.drawn, self.drawn_in_checkpoint = True, self.drawn_in_checkpoint or checkpoint_active()

    def coarser_than(self, dtype: torch.dtype) -> torch.dtype | None:
        """The coarsest format that anything was computed in, if it is coarser than this one."""
        return self.coarsest_dtype if _eps(self.coarsest_dtype) > _eps(dtype) else None


class PrivateRandomNumbers(KernelMonitor):
    """While it is entered, what this thread draws comes from generators of its own, seeded alike every time.

    The process's generators are neither read nor set: other threads, which draw from these, notice nothing. Numbers
    that a kernel draws inside itself, as fused attention with dropout does, are the process's as always.

    Args:
        seed: of the generators.
        states: where to begin instead, by the kind of device.
    """

    def __init__(self, seed: int = 0, states: Mapping[str, Tensor] | None = None):
        super().__init__()
        self.seed, self.states = seed, states or {}
        self.generators: dict[torch.device, torch.Generator] = {}

    def restart(self, seed: int | None = None) -> None:
        """Draw from here on what was drawn from the beginning on, or what another seed gives."""
        self.seed = self.seed if seed is None else seed
        for generator in self.generators.values():
            generator.manual_seed(self.seed)

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        if not _draws(func, args, kwargs):
            return func(*args, **kwargs)
        self.note_draw()
        if func is torch.ops.aten.native_dropout.default:
            return self._dropped(*args, **kwargs)
        place, taking = _taking_a_generator(func)
        if taking is None or kwargs.get("generator") is not None or (len(args) > place and args[place] is not None):
            return func(*args, **kwargs)
        if len(args) > place:
            return taking(*args[:place], self._generator(args, kwargs), *args[place + 1 :], **kwargs)
        return taking(*args, **{**kwargs, "generator": self._generator(args, kwargs)})

    def _generator(self, args: Any, kwargs: Any) -> torch.Generator:
        """The one of the device on which the numbers are made."""
        tensor = next((value for value in args if isinstance(value, Tensor)), None)
        device = torch.device(kwargs.get("device") or (torch.device("cpu") if tensor is None else tensor.device))
        known = self.generators.get(device)
        if known is None:
            known = self.generators[device] = torch.Generator(device).manual_seed(self.seed)
            if device.type in self.states:
                known.set_state(self.states[device.type])
        return known

    def _dropped(self, x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
        """Dropout in one kernel, which takes no generator."""
        if train is False or p == 0:
            return x.clone(), torch.ones_like(x, dtype=torch.bool)
        kept = torch.empty_like(x).bernoulli_(1 - p, generator=self._generator((x,), {}))
        return x * kept / (1 - p if p < 1 else 1), kept.bool()


def _draws(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a kernel draws random numbers with these arguments; attention may, if it drops anything."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    names = [argument.name for argument in func._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return "dropout_p" not in names or bool(given.get("dropout_p"))


def _eps(dtype: torch.dtype | None) -> float:
    return 0.0 if dtype is None else torch.finfo(dtype).eps


@lru_cache(maxsize=256)
def _taking_a_generator(func: Any) -> tuple[int, Any]:
    """Where the arguments of a function that draws numbers have the generator, and the function that takes one."""
    names = [argument.name for argument in func._schema.arguments]
    if "generator" in names:
        return names.index("generator"), func
    packet = func.overloadpacket
    for overload in (getattr(packet, name) for name in packet.overloads()):
        arguments = overload._schema.arguments
        others = [argument for argument in arguments if argument.name != "generator"]
        if len(others) + 1 == len(arguments) and _same(others, func._schema.arguments):
            # Beyond this place arguments are given by name: numbers are made of a size, and all else is an option.
            return len(arguments), overload
    return len(names), None


def _same(these: Any, those: Any) -> bool:
    return [(a.name, str(a.type)) for a in these] == [(a.name, str(a.type)) for a in those]


def process_generator_states(device: torch.device) -> dict[str, Tensor]:
    """Where the process's generators are that a network on this device draws from, by the kind of device."""
    states = {"cpu": torch.get_rng_state()}
    if device.type in ("cuda", "xpu", "mps"):
        states[device.type] = torch.get_device_module(device).get_rng_state()
    return states
