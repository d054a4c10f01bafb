"""The interface of a feature, and several features side by side as the inputs of a network."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dudx.errors import InputError, is_whole, positive_step


class Feature(nn.Module):
    """Smooth functions of the coordinates: points (B, d) in, (B, columns) out.

    The forward pass is made of functions that every engine differentiates, and stays finite, with its derivatives, on
    the boundary of the domain and a little beyond: there are points, and finite differences step over it.
    """

    columns: int


class Features(nn.Module):
    """Features side by side, (B, columns), each standardised to mean 0 and deviation 1 at some points.

    Args:
        parts: the features, in the order of their columns.
        at: points (N, d) spread over the domain, such as `domain.sobol(4096)`; None leaves the columns as they are.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, *parts: Feature, at: Tensor | None = None):
        super().__init__()
        if not parts:
            raise InputError("Give at least one feature, such as Coordinates().")
        self.parts = nn.ModuleList(parts)
        self.columns = sum(part.columns for part in parts)
        mean, deviation = torch.zeros(self.columns), torch.ones(self.columns)
        if at is not None:
            with torch.no_grad():
                found = self._joined(at).double()
            deviation, mean = torch.std_mean(found, dim=0, correction=0)
            if not bool((deviation > 0).all() and found.isfinite().all()):
                raise InputError("A feature is constant, or not finite, at the points that it is to be scaled at.")
        self.register_buffer("mean", mean.to(torch.get_default_dtype()))
        self.register_buffer("deviation", deviation.to(torch.get_default_dtype()))

    def forward(self, x: Tensor) -> Tensor:
        return (self._joined(x) - self.mean) / self.deviation

    def _joined(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], dim=1)


def axes_given(axes: int | Sequence[int]) -> list[int]:
    """One or several axes as a list."""
    found = [axes] if isinstance(axes, int) else list(axes)
    if not found or not all(is_whole(axis, 0) for axis in found):
        raise InputError(f"Axes are numbers of columns, 0 or more, at least one of them; got {axes!r}.")
    return found


def column(x: Tensor, axis: int) -> Tensor:
    """The coordinate along an axis, (B, 1)."""
    return x[:, axis : axis + 1]


def positive(number: float, name: str) -> float:
    """Return a positive number such as a length; raise `InputError` for anything else."""
    return positive_step(number, f"{name} of a feature")
