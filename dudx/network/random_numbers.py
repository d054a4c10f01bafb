"""Private random numbers: networks draw from separate generators, and those of the process stay untouched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from dudx.backend.active_modes import checkpoint_active
from dudx.backend.torch_classes import ControlFlow, DispatchMode


class KernelMonitor(DispatchMode):
    """Dispatch mode that records random draws and the formats of results, also inside scripts."""

    #: Lets torch.cond and the like run; their branches are not seen.
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        #: True if random numbers were drawn; and if so in a checkpoint, which the backward pass runs again.
        self.drawn = self.drawn_in_checkpoint = False
        #: The coarsest floating-point format of any result.
        self.coarsest_dtype: torch.dtype | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, ControlFlow):
            return func(*args, **(kwargs or {}))
        made = self.run(func, args, kwargs or {})
        if isinstance(made, Tensor) and made.is_floating_point() and _eps(made.dtype) > _eps(self.coarsest_dtype):
            self.coarsest_dtype = made.dtype
        return made

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run the kernel."""
        if _draws(func, args, kwargs):
            self.note_draw()
        return func(*args, **kwargs)

    def note_draw(self) -> None:
        """Record that random numbers are drawn."""
        self.drawn, self.drawn_in_checkpoint = True, self.drawn_in_checkpoint or checkpoint_active()

    def coarser_than(self, dtype: torch.dtype) -> torch.dtype | None:
        """Return the coarsest format of any result if it is coarser than `dtype`."""
        return self.coarsest_dtype if _eps(self.coarsest_dtype) > _eps(dtype) else None


class PrivateRandomNumbers(KernelMonitor):
    """Dispatch mode in which random numbers come from private generators with a fixed seed.

    The generators of the process are neither read nor set, so other threads are not affected. Numbers that a kernel
    draws internally, as fused attention with dropout does, still come from the process.

    Args:
        seed: seed of the generators.
        states: initial states instead of the seed, by type of device.
    """

    def __init__(self, seed: int = 0, states: Mapping[str, Tensor] | None = None):
        super().__init__()
        self.seed, self.states = seed, states or {}
        self.generators: dict[torch.device, torch.Generator] = {}

    def restart(self, seed: int | None = None) -> None:
        """Reset the generators to their seed, or to another one."""
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
        """Return the generator of the device on which the numbers are created."""
        tensor = next((value for value in args if isinstance(value, Tensor)), None)
        device = torch.device(kwargs.get("device") or (torch.device("cpu") if tensor is None else tensor.device))
        known = self.generators.get(device)
        if known is None:
            known = self.generators[device] = torch.Generator(device).manual_seed(self.seed)
            if device.type in self.states:
                known.set_state(self.states[device.type])
        return known

    def _dropped(self, x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
        """Replace the dropout kernel, which takes no generator."""
        if train is False or p == 0:
            return x.clone(), torch.ones_like(x, dtype=torch.bool)
        kept = torch.empty_like(x).bernoulli_(1 - p, generator=self._generator((x,), {}))
        return x * kept / (1 - p if p < 1 else 1), kept.bool()


def _draws(func: Any, args: Any, kwargs: Any) -> bool:
    """Return True if a kernel draws random numbers with these arguments; attention does with dropout only."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    names = [argument.name for argument in func._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return "dropout_p" not in names or bool(given.get("dropout_p"))


def _eps(dtype: torch.dtype | None) -> float:
    return 0.0 if dtype is None else torch.finfo(dtype).eps


@lru_cache(maxsize=256)
def _taking_a_generator(func: Any) -> tuple[int, Any]:
    """Return the position of the generator among the arguments, and the overload that takes one (or None)."""
    names = [argument.name for argument in func._schema.arguments]
    if "generator" in names:
        return names.index("generator"), func
    packet = func.overloadpacket
    for overload in (getattr(packet, name) for name in packet.overloads()):
        arguments = overload._schema.arguments
        others = [argument for argument in arguments if argument.name != "generator"]
        if len(others) + 1 == len(arguments) and _same(others, func._schema.arguments):
            # Arguments after this position are keywords: the size comes first, all else is an option.
            return len(arguments), overload
    return len(names), None


def _same(these: Any, those: Any) -> bool:
    return [(a.name, str(a.type)) for a in these] == [(a.name, str(a.type)) for a in those]


def process_generator_states(device: torch.device) -> dict[str, Tensor]:
    """Return the states of the process's generators for a device, by type of device."""
    states = {"cpu": torch.get_rng_state()}
    if device.type in ("cuda", "xpu", "mps"):
        states[device.type] = torch.get_device_module(device).get_rng_state()
    return states


@contextlib.contextmanager
def unchanged_generator(generator: Any) -> Iterator[None]:
    """Restore the state of an engine's own generator, if it has one, so that a check draws nothing from it."""
    state = generator.get_state() if isinstance(generator, torch.Generator) else None
    try:
        yield
    finally:
        if state is not None:
            generator.set_state(state)
