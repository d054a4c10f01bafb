"""Points with named columns for PINA's networks: tensors, or the values that an engine passes instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from dudx.backend.containers import mapped
from dudx.network.sandbox import output_of


class LabelledPoints:
    """A tensor-like value with named columns: `extract` selects columns, everything else acts on the value."""

    def __init__(self, value: Any, labels: Sequence[str]):
        self.value, self.labels = value, list(labels)

    def extract(self, wanted: str | Sequence[str]) -> Any:
        """Select columns by name, in this order, as a plain value."""
        names = [wanted] if isinstance(wanted, str) else list(wanted)
        columns = [self.labels.index(name) for name in names]
        if len(columns) == 1:
            return self.value[:, columns[0] : columns[0] + 1]
        return self.value[:, columns]

    @classmethod
    def __torch_function__(cls, function: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        return function(*_values(args), **_values(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.value, name)

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str) or (isinstance(key, list) and all(isinstance(name, str) for name in key)):
            return self.extract(key)
        return self.value[key]

    def __add__(self, other: Any) -> Any:
        return self.value + _values(other)

    def __radd__(self, other: Any) -> Any:
        return other + self.value

    def __sub__(self, other: Any) -> Any:
        return self.value - _values(other)

    def __rsub__(self, other: Any) -> Any:
        return other - self.value

    def __mul__(self, other: Any) -> Any:
        return self.value * _values(other)

    def __rmul__(self, other: Any) -> Any:
        return other * self.value

    def __truediv__(self, other: Any) -> Any:
        return self.value / _values(other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.value

    def __pow__(self, other: Any) -> Any:
        return self.value ** _values(other)

    def __neg__(self) -> Any:
        return -self.value


def _values(given: Any) -> Any:
    return mapped(given, lambda leaf: leaf.value if isinstance(leaf, LabelledPoints) else leaf)


class LabelledNetwork(nn.Module):
    """Wrap a network of labelled points as one of plain points, so that any engine can differentiate it."""

    def __init__(self, network: nn.Module, labels: Sequence[str]):
        super().__init__()
        self.network, self.labels = network, list(labels)

    def forward(self, x: Any) -> Any:
        return _values(self.network(LabelledPoints(x, self.labels)))


def network_of_plain_points(network: nn.Module, labels: Sequence[str], points: Tensor) -> nn.Module:
    """Return the network itself if it uses no names, else a wrapped one."""
    try:
        output_of(network, points)
    except Exception:  # if it is a mistake of its own, it fails on labelled points too
        return LabelledNetwork(network, labels)
    return network
