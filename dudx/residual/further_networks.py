"""Networks beside the model, such as an unknown coefficient: `Residual(..., networks={"k": net})`."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from dudx.errors import InputError
from dudx.network.auxiliary_networks import WithNetworks, with_networks
from dudx.network.model_checks import Model


class FurtherNetworks:
    """Join a model with further networks of the same inputs, so that one engine differentiates all of them."""

    def __init__(self, networks: Mapping[str, Model]):
        for name, network in networks.items():
            if not callable(network):
                raise InputError(f"The network {name} must be callable; got {type(network).__name__}.")
        self._networks = networks
        self._joined: weakref.WeakKeyDictionary[Any, WithNetworks] = weakref.WeakKeyDictionary()

    def __call__(self, model: Any, x: Tensor, data: Mapping[str, Tensor]) -> Any:
        return with_networks(model, self._networks, self._joined)
