"""Ensembles: networks of the same layers as one model, with stacked parameters and one pass for all members."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from dudx.backend.active_modes import transforms_active
from dudx.errors import InputError
from dudx.network.same_structure import first_difference


class Ensemble(nn.Module):
    """Networks of the same layers as one model, whose outputs have a leading axis of members; see `ensemble`.

    Example:
        >>> several = dudx.ensemble([torch.nn.Linear(2, 1) for _ in range(3)])
        >>> several(torch.rand(5, 2)).shape, len(several.members())
        (torch.Size([3, 5, 1]), 3)
    """

    def __init__(self, networks: Sequence[nn.Module]):
        super().__init__()
        self.count = len(networks)
        parameters = [dict(network.named_parameters()) for network in networks]
        self._names = list(parameters[0])
        #: Parameters of shape (members, …), which an optimizer trains.
        self.stacked = nn.ParameterList(torch.stack([own[name].detach() for own in parameters]) for name in self._names)
        for stacked, parameter in zip(self.stacked, parameters[0].values(), strict=True):
            stacked.requires_grad_(parameter.requires_grad)
        buffers, kept = [dict(network.named_buffers()) for network in networks], networks[0].state_dict()
        self._buffer_names = list(buffers[0])
        for number, name in enumerate(self._buffer_names):
            together = torch.stack([own[name].detach() for own in buffers])
            self.register_buffer(f"buffer{number}", together, persistent=name in kept)
        # In a tuple, so that it is not registered as a submodule: its own parameters are never used.
        self._kind = (copy.deepcopy(networks[0]),)

    @property
    def kind(self) -> nn.Module:
        """A network with the members' layers and mode, whose parameters are not used."""
        return self._kind[0]

    @property
    def _buffers_of(self) -> dict[str, Tensor]:
        return {name: getattr(self, f"buffer{number}") for number, name in enumerate(self._buffer_names)}

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Ensemble:
        self.kind._apply(fn, recurse)  # format and device of the members are read from it
        return super()._apply(fn, recurse)

    def train(self, mode: bool = True) -> Ensemble:
        super().train(mode)
        self.kind.train(mode)
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.map(lambda member: member(x))

    def map(self, function: Callable[[Any], Any]) -> Any:
        """Apply a function of a network to all members at once; results have a leading axis of members."""
        kind = self.kind

        def of(parameters: tuple[Tensor, ...], buffers: dict[str, Tensor]) -> Any:
            return function(_Member(kind, {**dict(zip(self._names, parameters, strict=True)), **buffers}))

        # Each member draws its own random numbers, as networks trained one by one do.
        return vmap(of, (0, 0), randomness="different")(tuple(self.stacked), self._buffers_of)

    def members(self) -> list[nn.Module]:
        """The networks, as copies."""
        found = []
        for number in range(self.count):
            member = copy.deepcopy(self.kind)
            state = {name: stacked[number].detach() for name, stacked in zip(self._names, self.stacked, strict=True)}
            member.load_state_dict({**state, **{name: b[number] for name, b in self._buffers_of.items()}}, strict=False)
            found.append(member)
        return found


class _Member:
    """A network evaluated with given parameters and buffers."""

    def __init__(self, kind: nn.Module, state: dict[str, Tensor]):
        self.kind, self.state = kind, state
        self.__self__ = kind  # so that it is known by its owner, as a method is

    def __call__(self, x: Tensor, **data: Tensor) -> Tensor:
        return functional_call(self.kind, self.state, (x,), data)


def ensemble(networks: Sequence[nn.Module]) -> Ensemble:
    """Combine networks of the same layers into one model, with one batched matrix product per layer.

    Outputs, derivatives and residuals have a leading axis of members. The parameters are stacked copies; `members()`
    returns the networks. All members share the points (B, d).

    Example:
        >>> nets = [torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Tanh()) for _ in range(3)]
        >>> several, x = dudx.ensemble(nets), torch.rand(10, 2)
        >>> burgers = dudx.Residual(lambda u: u.t + u * u.x - 0.01 * u.xx, inputs=("x", "t"))
        >>> burgers(several, x, dudx.Taylor()).shape, burgers.loss(several, x, dudx.Taylor()).shape
        (torch.Size([3, 10, 1]), torch.Size([3]))
    """
    networks = list(networks)
    if not networks or not all(isinstance(network, nn.Module) for network in networks):
        raise InputError("An ensemble is made of a list of networks, torch modules of the same layers.")
    if any(isinstance(part, torch.jit.ScriptModule) for network in networks for part in network.modules()):
        raise InputError("An ensemble cannot be made of scripted or traced modules; use those they were made of.")
    for number, network in enumerate(networks[1:], 1):
        where = first_difference(networks[0], network)
        if where is not None:
            raise InputError(
                "The networks of an ensemble must have the same layers, of the same sizes, settings and formats, and "
                f"differ in numbers alone; number {number} differs from the first in {where}. Tensors that each has "
                "for itself are parameters, or buffers by register_buffer."
            )
    if transforms_active():
        raise InputError("Make the ensemble outside of torch.func's transforms.")
    with torch.no_grad():
        return Ensemble(networks)
