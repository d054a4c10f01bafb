"""Several processes that train one network together: each takes its share of every batch, all take the same step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Generator, Tensor, distributed, nn

from dudx.errors import DudxError, InputError
from dudx.lab.run.objective import Part
from dudx.network.coupling_check import coupled

Anything = TypeVar("Anything")
#: Adds the gradient of some parts to the parameters; returns the loss and, by name, its unweighted parts.
Gradient = Callable[[list[Part]], tuple[Tensor, Mapping[str, Tensor]]]


class PeerError(DudxError, RuntimeError):
    """Another process of the same run has died or hangs."""


class Ranks(Protocol):
    """What the trainer asks of the processes it shares its work with; alone, it is answered by itself."""

    def same_start(self, model: nn.Module, unknowns: nn.Module, x: Tensor) -> None: ...

    def same(self, value: Anything) -> Anything: ...

    def any(self, flag: bool) -> bool: ...

    def sum(self, tensor: Tensor) -> Tensor: ...

    def rows(self, part: Part) -> tuple[Part, float]: ...

    def gradient(
        self, compute: Gradient, parts: list[Part], parameters: Sequence[nn.Parameter], generator: Generator
    ) -> tuple[Tensor, Mapping[str, Tensor]]: ...


class OneProcess:
    """One process, which does everything."""

    def same_start(self, model: nn.Module, unknowns: nn.Module, x: Tensor) -> None:
        pass

    def same(self, value: Anything) -> Anything:
        return value

    def any(self, flag: bool) -> bool:
        return flag

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def rows(self, part: Part) -> tuple[Part, float]:
        return part, 1.0

    def gradient(
        self, compute: Gradient, parts: list[Part], parameters: Sequence[nn.Parameter], generator: Generator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        return compute(parts)


class ManyProcesses:
    """The processes of torch's default group.

    All of them draw the same batch; each computes the gradient of its rows, and the sum over the processes is the
    gradient of the whole batch.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()

    def same_start(self, model: nn.Module, unknowns: nn.Module, x: Tensor) -> None:
        """The first process' parameters for all; a network for which a batch has no shares is refused."""
        if coupled(model, x):
            raise InputError(
                "The samples of this network's batch influence each other, so a batch cannot be shared out between "
                "processes; train it in one."
            )
        with _peers():
            for tensor in (*model.state_dict().values(), *unknowns.state_dict().values()):
                distributed.broadcast(tensor, src=0)

    def same(self, value: Anything) -> Anything:
        """The first process' value."""
        box: list[Any] = [value]
        with _peers():
            distributed.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def any(self, flag: bool) -> bool:
        """Whether it is true in any process, so that all of them stop after the same epoch."""
        count = torch.tensor(float(flag), device=self.device)
        with _peers():
            distributed.all_reduce(count)
        return bool(count > 0)

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        with _peers():
            distributed.all_reduce(tensor)
        return tensor

    def rows(self, part: Part) -> tuple[Part, float]:
        """The part at this process' share of its points, and that share."""
        begin, end = self._slice(part)
        data = {name: values[begin:end] for name, values in part.data.items()}
        return replace(part, points=part.points[begin:end], data=data), (end - begin) / len(part.points)

    def _slice(self, part: Part) -> tuple[int, int]:
        rows = len(part.points)
        if rows < self.size:
            raise InputError(f"The {rows} points of {part.name!r} are too few for {self.size} processes.")
        return rows * self.rank // self.size, rows * (self.rank + 1) // self.size

    def gradient(
        self, compute: Gradient, parts: list[Part], parameters: Sequence[nn.Parameter], generator: Generator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """What `compute(parts)` gives in one process, in all of them."""
        losses = torch.stack([self._of_own_rows(compute, part, generator) for part in parts])
        tensors = [*(p.grad for p in parameters if p.grad is not None), losses]
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with _peers():
            distributed.all_reduce(flat)
        for tensor, total in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(total.view_as(tensor))
        weights = losses.new_tensor([part.weight for part in parts])
        return (weights * losses).sum(), {part.name: loss for part, loss in zip(parts, losses, strict=True)}

    def _of_own_rows(self, compute: Gradient, part: Part, generator: Generator) -> Tensor:
        """Add this process' share of the part's gradient to the parameters; returns its share of the loss.

        Random steps are those one process would draw: the rows before are skipped, and afterwards the generator
        stands behind the whole batch in every process. (One process on a GPU deals them to other rows.)
        """
        rows, (begin, _) = len(part.points), self._slice(part)
        own, share = self.rows(part)
        own = replace(own, weight=share * part.weight)
        before = generator.get_state()
        torch.rand(begin, 1, generator=generator, device=generator.device)
        skipped = generator.get_state()
        _, losses = compute([own])
        drew = not torch.equal(generator.get_state(), skipped)
        generator.set_state(before)
        if drew:
            torch.rand(rows, 1, generator=generator, device=generator.device)
        return share * losses[part.name]


@contextmanager
def _peers() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise PeerError("Another process of this run has died or hangs; go on with --resume.") from error
