"""Exact isolation without rules: one batch per query row."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from dudx.backend.differentiable_kernels import WrittenOut
from dudx.backend.torch_classes import BatchNorm
from dudx.coupling.isolated import Isolated
from dudx.engines.taylor.jet import Jet, constant
from dudx.engines.taylor.stream_layout import Layout
from dudx.network import model_checks
from dudx.network.model_checks import Model
from dudx.network.modules import modules_of, scripted
from dudx.network.random_numbers import KernelMonitor, PrivateRandomNumbers, process_generator_states
from dudx.network.sandbox import untracked_statistics
from dudx.network.vmapped_batches import batches_per_pass, with_one_replaced


class ExactlyIsolated(Isolated):
    """Evaluate row j in the context with sample j mod B replaced; many such batches pass at once.

    If gradients are needed in the parameters only, each chunk of batches is recomputed in the backward pass, so that
    memory is bounded. If queries themselves are differentiated, as by AD, the graph of their gradients holds all
    activations anyway; `at` bounds memory then.
    """

    method = "each alone, in a batch of its own"
    not_compiled = "an exactly isolated network passes in chunks that are computed again"

    def __call__(self, x: Any) -> Any:
        self.whole(x.shape[0])
        if isinstance(x, Jet):
            return Jet(x.layout, *self._passed(_Batches(self.model, x.layout), x.value, x.full()))
        return self._passed(_Batches(self.model, None), x)[0]

    def _passed(self, network: _Batches, x: Tensor, *streams: Tensor) -> tuple[Tensor, ...]:
        size = len(self.context)
        numbers = torch.arange(size, device=x.device) if self.places is None else self.places
        places = numbers.repeat(len(x) // len(numbers))
        # One row shows whether the network can be vectorised; inside a checkpoint this cannot be tried.
        first = (places[:1], self.context, x[:1], *(s[:, :1] for s in streams))
        ways = [network.looped] if scripted(self.model) else [network.vectorised, network.looped]
        run, states = ways[0], process_generator_states(x.device)
        with KernelMonitor() as tried:
            try:
                run(*first)
            except Exception:  # the loop works, or raises the error of the model
                run, states = ways[-1], process_generator_states(x.device)
                run(*first)
        if tried.drawn:  # all chunks, also recomputed ones, draw the numbers of this batch
            run = _Repeated(run, states)
        chunk = batches_per_pass(size * (1 + sum(map(len, streams))))
        remember = not torch.is_grad_enabled() or x.requires_grad or len(x) <= chunk
        pieces = []
        for at in (slice(start, start + chunk) for start in range(0, len(x), chunk)):
            arguments = (places[at], self.context, x[at], *(s[:, at] for s in streams))
            pieces.append(run(*arguments) if remember else _computed_again(run, *arguments))
        if self.update_statistics and network.tracks():
            with torch.enable_grad():  # for networks that differentiate in their forward
                self.model(self.context.detach())
        return tuple(torch.cat(parts, dim) for dim, parts in enumerate(zip(*pieces, strict=True)))


class _Repeated:
    """A pass with the same random numbers each time."""

    def __init__(self, run: Callable[..., tuple[Tensor, ...]], states: Mapping[str, Tensor]):
        self.run, self.states = run, states

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        with PrivateRandomNumbers(states=self.states):
            return self.run(*arguments)


def _computed_again(run: Callable[..., tuple[Tensor, ...]], *arguments: Tensor) -> tuple[Tensor, ...]:
    """Run a pass with checkpointing, without saving the process's random numbers."""
    return checkpoint(run, *arguments, use_reentrant=False, preserve_rng_state=False)


class _Batches:
    """The network on batches in which one sample moved, as tensors or as jets with zero streams for the others.

    Both methods take the indices of the moved samples, the context, the new positions and, for jets, their streams, and
    return the output at the moved samples.
    """

    def __init__(self, model: Model, layout: Layout | None):
        self.model, self.layout, self.mode = model, layout, WrittenOut(tracking=False)

    def vectorised(self, places: Tensor, context: Tensor, own: Tensor, *streams: Tensor) -> tuple[Tensor, ...]:
        """Evaluate all batches at once with vmap."""
        batches = with_one_replaced(context, own, places)
        version = batches._version
        moved = [_moved_streams(context, s, places) for s in streams]
        dims = (0, *[1] * len(streams))
        with self._left_alone():
            outputs = torch.func.vmap(self._one, in_dims=dims, out_dims=dims, randomness="same")(batches, *moved)
        model_checks.unchanged(batches, version)  # inside vmap a write is not recorded
        numbers = torch.arange(len(places), device=places.device)
        return (outputs[0][numbers, places], *(stream[:, numbers, places] for stream in outputs[1:]))

    def looped(self, places: Tensor, context: Tensor, own: Tensor, *streams: Tensor) -> tuple[Tensor, ...]:
        """Evaluate one batch after the other."""
        batches = with_one_replaced(context, own, places).unbind()
        moved = [_moved_streams(context, s, places).unbind(1) for s in streams]
        with self._left_alone():
            outputs = [self._one(*batch) for batch in zip(batches, *moved, strict=True)]
        return tuple(
            torch.stack([part.select(dim, place) for part, place in zip(parts, places.tolist(), strict=True)], dim)
            for dim, parts in enumerate(zip(*outputs, strict=True))
        )

    def _one(self, batch: Tensor, *streams: Tensor) -> tuple[Tensor, ...]:
        """Return the output of one batch and, for a jet, its streams."""
        if self.layout is None:
            return (model_checks.forward(self.model, batch),)
        jet = Jet(self.layout, batch, *streams)
        u = model_checks.forward(self.model, jet, kinds=(Jet, Tensor))
        u = constant(jet, u) if isinstance(u, Tensor) else u
        return u.value, u.full()

    @contextlib.contextmanager
    def _left_alone(self) -> Iterator[None]:
        """Use differentiable kernels and leave running statistics unchanged."""
        with untracked_statistics(self.model), self.mode:
            yield

    def tracks(self) -> bool:
        """Return True if the network updates running statistics."""
        layers = (m for m in modules_of(self.model) if isinstance(m, BatchNorm))
        return self.mode.tracked or any(layer.training and layer.track_running_stats for layer in layers)


def _moved_streams(context: Tensor, streams: Tensor, places: Tensor) -> Tensor:
    """Expand streams (S, n, d) of the moved samples to streams (S, n, B, d) of their batches."""
    return torch.func.vmap(with_one_replaced, in_dims=(None, 0, None))(torch.zeros_like(context), streams, places)
