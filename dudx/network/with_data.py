"""Networks of points and data, such as DeepONets, as networks of the points alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dudx.errors import InputError, ModelError
from dudx.network.batch_bound import BatchBound
from dudx.network.modules import owner_of, type_name


@dataclass(frozen=True)
class _Bound:
    """Bind data to a network by name; equal for equal names."""

    rows: tuple[str, ...]
    functions: tuple[str, ...]

    def __call__(self, network: Any, *tensors: Tensor) -> Given:
        named = dict(zip((*self.rows, *self.functions), tensors, strict=True))
        return Given(network, {n: named[n] for n in self.rows}, {n: named[n] for n in self.functions})


class Given(BatchBound):
    """A network with data, as a callable from (k·B, d) to (k·B, m); row j belongs to point j mod B. See `given`.

    Args:
        network: called as `network(x, **data)`.
        rows: data with one row per point, which follow the points wherever an engine moves them.
        functions: data with one row per function, for N functions that the network evaluates at every point. It returns
            (N, B) or (N, B, m); the columns here are the N functions of the first output, of the second, …

    Example:
        >>> network = lambda x, a: a * torch.sin(x)
        >>> seen = dudx.given(network, a=torch.rand(10, 1))
        >>> seen(torch.rand(30, 1)).shape  # blocks of rows, as stencils have them
        torch.Size([30, 1])
    """

    def __init__(self, network: Any, rows: Mapping[str, Tensor], functions: Mapping[str, Tensor] | None = None):
        self.network, self.rows, self.functions = network, dict(rows), dict(functions or {})
        self.__self__ = owner_of(network)  # owner_of() finds the network by this, as for a method
        for name, tensor in {**self.rows, **self.functions}.items():
            if not isinstance(tensor, Tensor) or tensor.ndim == 0:
                shown = type(tensor).__name__ if not isinstance(tensor, Tensor) else "a single number"
                raise InputError(f"The data {name} of a network must be a tensor with rows; got {shown}.")
        for what, group in (("points", self.rows), ("functions", self.functions)):
            if len({len(tensor) for tensor in group.values()}) > 1:
                sizes = ", ".join(f"{name} {len(tensor)}" for name, tensor in group.items())
                raise InputError(f"The data of a network must have a row for each of the same {what}; got {sizes}.")

    @property
    def samples(self) -> int:
        return len(next(iter(self.rows.values()))) if self.rows else 1

    @property
    def columns(self) -> int:
        """Number of columns per output of the network: one per function."""
        return len(next(iter(self.functions.values()))) if self.functions else 1

    def unbound(self) -> tuple[Any, tuple[Tensor, ...], _Bound]:
        bound = _Bound(tuple(self.rows), tuple(self.functions))
        return self.network, (*self.rows.values(), *self.functions.values()), bound

    def at(self, points: Tensor | Sequence[int] | slice) -> Given:
        """Return the network for some of the points only, with their rows of the data."""
        chosen = points if isinstance(points, slice | Tensor) else torch.tensor(points, dtype=torch.long, device="cpu")
        return Given(self.network, {name: tensor[chosen] for name, tensor in self.rows.items()}, self.functions)

    def __call__(self, x: Any) -> Any:
        blocks, rest = divmod(x.shape[0], self.samples)
        if rest:
            raise InputError(
                f"The network was given data of {self.samples} points, so it takes {self.samples} rows or a multiple; "
                f"got {x.shape[0]}. Give data with a row for each point: dudx.given(model, …), or a slice of them with "
                "a slice of the points."
            )
        rows = {n: t if blocks == 1 else t.repeat(blocks, *[1] * (t.ndim - 1)) for n, t in self.rows.items()}
        u = self.network(x, **rows, **self.functions)
        return self._side_by_side(u, x.shape[0]) if self.functions else u

    def _side_by_side(self, u: Any, points: int) -> Any:
        shape = getattr(u, "shape", None)
        if shape is None or len(shape) not in (2, 3) or tuple(shape[:2]) != (self.columns, points):
            got = type(u).__name__ if shape is None else tuple(shape)
            raise ModelError(
                f"A network of {self.columns} functions at {points} points must return (N, B) or (N, B, m), here "
                f"({self.columns}, {points}, …); got {got}."
            )
        # Per point: all functions of the first output, then all of the second.
        return u.T if len(shape) == 2 else u.permute(1, 2, 0).flatten(1)

    def __repr__(self) -> str:
        of = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in {**self.rows, **self.functions}.items())
        return f"<{type_name(self.network)} given {of}>"


def given(model: Any, /, functions: Mapping[str, Tensor] | None = None, **data: Tensor) -> Given:
    """Bind data to a network of points and data, so that every engine can differentiate it in the points.

    Args:
        model: called as `model(x, **data)`.
        functions: data by name with one row per function, for N functions that are evaluated at all points; the model
            then returns (N, B) or (N, B, m), and each output has N columns here.
        data: tensors with one row per point, which are repeated for all rows of the point's stencil and split with the
            points.

    A `Residual` does this itself for `Residual(..., network_data=("a",))`.

    Example:
        >>> x, a = torch.rand(2, 10, 1, dtype=torch.float64)
        >>> wave = dudx.given(lambda x, a: torch.sin(a * x), a=a)
        >>> slope = dudx.evaluate(wave, x, dudx.D(0), dudx.FD(1e-4))
        >>> torch.allclose(slope, a * torch.cos(a * x))
        True
    """
    if not callable(model):
        raise InputError(f"The model must be callable, model(x, **data); got {type(model).__name__}.")
    if not data and not functions:
        raise InputError("There are no data; give them by name: dudx.given(model, a=a).")
    return Given(model, data, functions)


def with_data(model: Any, rows: Mapping[str, Tensor], functions: Mapping[str, Tensor], points: int) -> Any:
    """Bind data to a network; a network that has data already must have the same."""
    for name, tensor in rows.items():
        if isinstance(tensor, Tensor) and tensor.ndim and len(tensor) != points:
            raise InputError(
                f"The network takes a row of {name} for each point, and there are {len(tensor)} for {points} points; "
                "data of functions that are taken at all points are named by functions=."
            )
    already = _given_in(model)
    if already is None:
        return Given(model, rows, functions)
    held, now = {**already.rows, **already.functions}, {**rows, **functions}
    if held.keys() != now.keys() or any(now[n] is not t and not torch.equal(now[n], t) for n, t in held.items()):
        raise InputError(
            "The network was given other data already than those of this call; give the network itself, or the same "
            "data with the call."
        )
    return model


def _given_in(model: Any) -> Given | None:
    """Return the network with data that a model is or wraps, at the samples that it currently takes."""
    if isinstance(model, Given) or not isinstance(model, BatchBound):
        return model if isinstance(model, Given) else None
    inner, places = _given_in(getattr(model, "model", None)), getattr(model, "places", None)
    return inner if inner is None or places is None else inner.at(places)
