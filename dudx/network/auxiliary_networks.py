"""A model and auxiliary networks of the same inputs, with their outputs side by side."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dudx.errors import InputError
from dudx.network.batch_bound import BatchBound, samples_of, unbound


class WithNetworks(nn.Module):
    """A model and auxiliary networks as one module, with their outputs concatenated."""

    def __init__(self, model: Any, networks: Iterable[Any]):
        super().__init__()
        # Callables that are not modules are kept as they are. The model is held weakly: it is the key of the cache.
        try:
            self._model: Callable[[], Any] = weakref.ref(model)
        except TypeError:  # such a callable cannot be a key either
            self._model = lambda: model
        self._networks = tuple(networks)
        self.inside = nn.ModuleList(part for part in (model, *self._networks) if isinstance(part, nn.Module))

    @property
    def model(self) -> Any:
        """The model without the auxiliary networks."""
        return self._model()

    def forward(self, x: Tensor, **data: Tensor) -> Tensor:
        """Evaluate the model, with its data, and the auxiliary networks at x."""
        return self.beside(self.model(x, **data), x)

    def beside(self, u: Any, x: Any) -> Any:
        """Append the outputs of the auxiliary networks at x to the model's output u."""
        found = [part(x) for part in self._networks]
        for output in found:
            if output.ndim != 2 or output.shape[1] != 1:
                raise InputError(f"A network beside the model must return (B, 1); got {tuple(output.shape)}.")
        return torch.cat([u, *found], dim=1)


@dataclass(frozen=True)
class _Bound:
    """Rebuild a model that holds tensors, together with its auxiliary networks."""

    model: Callable[..., Any]

    def __call__(self, joined: WithNetworks, *tensors: Tensor) -> BoundWithNetworks:
        return BoundWithNetworks(self.model(joined.model, *tensors), joined)


class BoundWithNetworks(BatchBound):
    """A model that holds tensors of the batch (isolated, or with data) together with auxiliary networks.

    Args:
        model: the model that holds the tensors; its rows belong to samples.
        joined: the network inside that model together with the auxiliary networks.
    """

    def __init__(self, model: Any, joined: WithNetworks):
        self.model, self.joined = model, joined
        self.__self__ = joined  # owner_of() finds the network by this, as for a method

    @property
    def not_compiled(self) -> str | None:  # type: ignore[override]
        return self.model.not_compiled

    @property
    def samples(self) -> int:
        return samples_of(self.model)

    def unbound(self) -> tuple[Any, tuple[Tensor, ...], _Bound]:
        _, held, bind = unbound(self.model)
        return self.joined, held, _Bound(bind)

    def __call__(self, x: Any) -> Any:
        return self.joined.beside(self.model(x), x)


def with_networks(model: Any, networks: Mapping[str, Any], known: MutableMapping[Any, WithNetworks]) -> Any:
    """Combine a model with auxiliary networks; `known` caches the combinations of earlier calls."""
    if isinstance(model, WithNetworks | BoundWithNetworks):
        return model
    if isinstance(model, BatchBound):
        return BoundWithNetworks(model, with_networks(unbound(model)[0], networks, known))
    try:
        if model not in known:
            known[model] = WithNetworks(model, networks.values())
        return known[model]
    except TypeError:  # such a callable cannot be a key
        return WithNetworks(model, networks.values())
