"""Engines made of engines: one near a boundary and another inside, one along space and another along time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from dudx.backend import tensor_checks
from dudx.engines.first_use import sound_derivatives
from dudx.engines.interface import (
    Adjustable,
    Counted,
    Engine,
    RowsPerPoint,
    Sided,
    Stepped,
    calibrated,
    one_sided,
    refuse_unset,
    rows_per_point,
    state_of,
    with_state,
)
from dudx.engines.request import Request
from dudx.errors import InputError
from dudx.network.batch_bound import samples_of
from dudx.network.model_checks import Model
from dudx.operators import D, Directional, Operator, Partial, Term


@dataclass(frozen=True)
class Combination(Adjustable, Counted, Sided, Stepped):
    """An engine made of others, which it asks for parts of a request."""

    #: How the strictest of the parts handles samples that influence each other.
    coupled: str | None = field(default=None, init=False, repr=False, compare=False)
    #: True where a part is approximate.
    approximate: bool = field(default=False, init=False, repr=False, compare=False)

    @property
    @abstractmethod
    def parts(self) -> tuple[Engine, ...]:
        """The engines it is made of."""

    @abstractmethod
    def with_parts(self, parts: Sequence[Engine]) -> Self:
        """The combination of other engines instead of its parts."""

    @abstractmethod
    def shares(self, request: Request) -> list[Request | None]:
        """Requests to the parts, in their order; None to a part that is not needed."""

    @abstractmethod
    def places(self, model: Model, x: Tensor) -> list[Any]:
        """Rows of the points at which each part is used; None stands for all of them."""

    def rows_for(self, x: Tensor, request: Request) -> RowsPerPoint:
        asked = zip(self.parts, self.shares(request), strict=True)
        each = [rows_per_point(part, x, share) for part, share in asked if share is not None]
        return RowsPerPoint(max(rows.at_once for rows in each), sum(rows.kept for rows in each))

    def refuse_unset(self, request: Request) -> None:
        for part, share in zip(self.parts, self.shares(request), strict=True):
            if share is not None:
                refuse_unset(part, share)

    def calibrated_for(self, model: Model, x: Tensor, request: Request, search: Mapping[str, Any]) -> Self:
        """The combination with the steps of its parts set, each for its share of the request at its own points."""
        parts = []
        for part, share, rows in zip(self.parts, self.shares(request), self.places(model, x), strict=True):
            if share is not None:
                at, share = (x, share) if rows is None else (x[rows], share.at_rows(rows))
                part = calibrated(part, model, at, share, search)
            parts.append(part)
        return self._changed(parts)

    def one_sided(self, side: str) -> Self:
        return self._changed([one_sided(part, side) for part in self.parts])

    @property
    def state(self) -> dict[str, Any]:
        states = {str(number): state_of(part) for number, part in enumerate(self.parts)}
        return {number: state for number, state in states.items() if state}

    def with_state(self, state: Mapping[str, Any]) -> Self:
        known = {str(number) for number in range(len(self.parts))}
        if not known >= state.keys():
            raise InputError(f"{type(self).__name__} keeps the states of its parts, and was given another: {state!r}.")
        parts = [with_state(p, state[str(i)]) if str(i) in state else p for i, p in enumerate(self.parts)]
        return self.with_parts(parts)

    def _check(self) -> None:
        for part in self.parts:
            if not isinstance(part, Engine):
                name = type(self).__name__
                raise InputError(f"{name} is made of engines such as dudx.AD() and dudx.FD(); got {part!r}.")
        found = {part.coupled for part in self.parts}
        object.__setattr__(self, "coupled", "refuse" if "refuse" in found else "ignore" if "ignore" in found else None)
        object.__setattr__(self, "approximate", any(part.approximate for part in self.parts))

    def _changed(self, parts: Sequence[Engine]) -> Self:
        """The combination of these parts; itself if they are its own."""
        same = all(now is before for now, before in zip(parts, self.parts, strict=True))
        return self if same else self.with_parts(parts)


@dataclass(frozen=True)
class Where(Combination):
    """One engine at the points where a condition holds, and another at the rest.

    Args:
        condition: a function of the points (B, d) that returns booleans (B,).
        a: the engine where it holds.
        b: the engine where it does not.

    Example:
        >>> x = torch.rand(100, 1, dtype=torch.float64)
        >>> engine = dudx.Where(lambda x: x[:, 0] < 0.1, dudx.AD(), dudx.FD(1e-4))  # exact near a wall
        >>> torch.allclose(dudx.evaluate(torch.sin, x, dudx.D(0), engine), torch.cos(x), atol=1e-8)
        True
    """

    condition: Callable[[Tensor], Tensor]
    a: Engine
    b: Engine

    def __post_init__(self) -> None:
        if not callable(self.condition):
            raise InputError(f"The condition of Where is a function of the points; got {self.condition!r}.")
        self._check()

    @property
    def parts(self) -> tuple[Engine, ...]:
        return self.a, self.b

    def with_parts(self, parts: Sequence[Engine]) -> Self:
        return replace(self, a=parts[0], b=parts[1])

    def shares(self, request: Request) -> list[Request | None]:
        return [request, request]

    def places(self, model: Model, x: Tensor) -> list[Any]:
        holds = self._holds(x)
        together = x.is_meta or samples_of(model) > 1 or self.coupled != "refuse"
        if together or bool(holds.all()) or not bool(holds.any()):
            return [None, None]
        return [holds, ~holds]

    def derivatives(self, model: Model, x: Tensor, request: Request) -> list[Tensor]:
        holds = self._holds(x)
        together = samples_of(model) > 1
        # A part of the batch would be another batch, or one of a size that is not known.
        if together or self.coupled != "refuse" or not tensor_checks.readable(x):
            both = [sound_derivatives(part, model, x, request) for part in self.parts]
            return [torch.where(holds.unsqueeze(1), a, b) for a, b in zip(*both, strict=True)]
        places = [holds.nonzero().flatten(), (~holds).nonzero().flatten()]
        for part, others in zip(self.parts, reversed(places), strict=True):
            if not len(others):
                return list(sound_derivatives(part, model, x, request))
        found = [
            sound_derivatives(part, model, x[rows], request.at_rows(rows))
            for part, rows in zip(self.parts, places, strict=True)
        ]
        back = torch.cat(places).argsort()
        return [torch.cat(values)[back] for values in zip(*found, strict=True)]

    def _holds(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            holds = self.condition(x.detach())
        if not isinstance(holds, Tensor) or holds.dtype != torch.bool or holds.shape not in ((len(x),), (len(x), 1)):
            got = f"{tuple(holds.shape)}, {holds.dtype}" if isinstance(holds, Tensor) else type(holds).__name__
            raise InputError(f"The condition of Where must return a boolean for each point, ({len(x)},); got {got}.")
        return holds.flatten()


@dataclass(frozen=True)
class ByAxis(Combination):
    """An engine for each group of axes, such as differences in space and automatic differentiation in time.

    Each engine is asked once, for all derivatives along its axes. A derivative along axes of several groups goes to
    `other`, and so does one along a vector.

    Args:
        engines: engines by axes: `{(0, 1): dudx.FD(1e-2), 2: dudx.AD()}`, or by the names of `inputs`,
            `{"x y": dudx.FD(1e-2), "t": dudx.AD()}`.
        inputs: the names of the columns, where engines are given by name.
        other: the engine for everything else; without one it is refused.

    Example:
        >>> engine = dudx.ByAxis({"x": dudx.FD(1e-4), "t": dudx.AD()}, inputs=("x", "t"))
        >>> x = torch.rand(10, 2, dtype=torch.float64)
        >>> heat = dudx.evaluate(lambda x: x[:, :1] ** 2 * x[:, 1:], x, dudx.D(1) - dudx.D(0, 0), engine)
        >>> torch.allclose(heat, x[:, :1] ** 2 - 2 * x[:, 1:], atol=1e-6)
        True
    """

    engines: Mapping[Any, Engine] | tuple[tuple[tuple[int, ...], Engine], ...]
    inputs: tuple[str, ...] | None = None
    other: Engine | None = None

    def __post_init__(self) -> None:
        if isinstance(self.engines, Mapping):
            listed = tuple((self._axes(key), engine) for key, engine in self.engines.items())
            object.__setattr__(self, "engines", listed)
        axes = [axis for found, _ in self._listed for axis in found]
        if not axes or len(set(axes)) < len(axes):
            raise InputError(f"ByAxis takes an engine for each group of axes, with each axis in one; got {axes}.")
        self._check()

    @property
    def _listed(self) -> tuple[tuple[tuple[int, ...], Engine], ...]:
        assert isinstance(self.engines, tuple)
        return self.engines

    def _axes(self, key: object) -> tuple[int, ...]:
        if isinstance(key, str):
            names = key.split()
            if self.inputs is None or not names or not set(names) <= set(self.inputs):
                raise InputError(f'ByAxis knows names by inputs=("x", "t"), which has {self.inputs}; got {key!r}.')
            return tuple(self.inputs.index(name) for name in names)
        axes: tuple[Any, ...] = tuple(key) if isinstance(key, Iterable) else (key,)
        if not axes or not all(isinstance(axis, int) and not isinstance(axis, bool) and axis >= 0 for axis in axes):
            raise InputError(f"The keys of ByAxis are numbers of columns, or tuples of them; got {key!r}.")
        return axes

    @property
    def parts(self) -> tuple[Engine, ...]:
        return (*(engine for _, engine in self._listed), *(() if self.other is None else (self.other,)))

    def with_parts(self, parts: Sequence[Engine]) -> Self:
        engines = tuple((axes, part) for (axes, _), part in zip(self._listed, parts, strict=False))
        return replace(self, engines=engines, other=None if self.other is None else parts[-1])

    def shares(self, request: Request) -> list[Request | None]:
        listed = [[share for share in split if share.terms] for split in self._split(request.operators)]
        return [request.of(share) if share else None for share in listed]

    def places(self, model: Model, x: Tensor) -> list[Any]:
        return [None] * len(self.parts)

    def _split(self, operators: Sequence[Operator]) -> list[list[Operator]]:
        """By part and operator, the terms that are the part's."""
        homes = {term: self._home(term) for operator in operators for term in operator.terms if term.order}
        # Values come with any pass: they go where there is one anyway.
        anywhere = min(homes.values(), default=0)
        return [
            [
                Operator({term: c for term, c in operator.terms.items() if homes.get(term, anywhere) == number})
                for operator in operators
            ]
            for number in range(len(self.parts))
        ]

    def _home(self, term: Term) -> int:
        if isinstance(term, Partial):
            for number, (axes, _) in enumerate(self._listed):
                if set(term.axes) <= set(axes):
                    return number
        if self.other is None:
            what = "along a vector" if isinstance(term, Directional) else f"along the axes {sorted(set(term.axes))}"
            raise InputError(
                f"ByAxis has no engine for a derivative {what}: put these axes into one group, or give an engine for "
                "everything else, other=dudx.AD()."
            )
        return len(self._listed)

    def derivatives(self, model: Model, x: Tensor, request: Request) -> list[Tensor]:
        totals: list[Tensor | None] = [None] * len(request.operators)
        for part, split in zip(self.parts, self._split(request.operators), strict=True):
            asked = [number for number, share in enumerate(split) if share.terms]
            if not asked:
                continue
            values = sound_derivatives(part, model, x, request.of([split[i] for i in asked]))
            for number, value in zip(asked, values, strict=True):
                already = totals[number]
                totals[number] = value if already is None else already + value
        if None in totals:  # 0 * D(0), whose shape only the network knows
            zero = 0 * sound_derivatives(self.parts[0], model, x, Request((D(),)))[0]
            return [zero if total is None else total for total in totals]
        return [total for total in totals if total is not None]
