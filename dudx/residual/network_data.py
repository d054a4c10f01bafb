"""Data that the network takes: a row per point, `network_data=`, or a row per function, `functions=`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from dudx.network.with_data import with_data


class NetworkData:
    """Bind the data of a call to the model, which then is a network of the points alone.

    Args:
        per_point: the names of data with a row for each point.
        per_function: the names of data with a row for each function.
    """

    def __init__(self, per_point: tuple[str, ...], per_function: tuple[str, ...]):
        self._per_point, self._per_function = per_point, per_function

    def __call__(self, model: Any, x: Tensor, data: Mapping[str, Tensor]) -> Any:
        rows, functions = ({name: data[name] for name in names} for names in (self._per_point, self._per_function))
        return with_data(model, rows, functions, len(x))

    def columns(self, data: Mapping[str, Tensor]) -> int:
        """The number of columns of a field: one per function."""
        return len(data[self._per_function[0]])
