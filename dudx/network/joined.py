"""Several networks of the same inputs as one."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from dudx.errors import InputError


class Joined(nn.Module):
    """A model and further networks as one, whose outputs stand side by side."""

    def __init__(self, model: Any, networks: Iterable[Any]):
        super().__init__()
        # Callables that are no modules are kept as they are. The model is held weakly: it is the key to this.
        self._model = weakref.ref(model)
        self._networks = tuple(networks)
        self.inside = nn.ModuleList(part for part in (model, *self._networks) if isinstance(part, nn.Module))

    def forward(self, x: Tensor, **data: Tensor) -> Tensor:
        """The data are the model's."""
        model: Any = self._model()
        found = [part(x) for part in self._networks]
        for output in found:
            if output.ndim != 2 or output.shape[1] != 1:
                raise InputError(f"A network beside the model must return (B, 1); got {tuple(output.shape)}.")
        return torch.cat([model(x, **data), *found], dim=1)
