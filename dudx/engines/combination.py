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
from dudx.engines.interface import Engine, RowsPerPoint
from dudx.errors import InputError
from dudx.network.batch_bound import samples_of
from dudx.network.model_checks import Model
from dudx.operators import Directional, Operator, Partial, Term, at_rows, fitting


@dataclass(frozen=True)
class Combination(Engine):
    """An engine made of others, which it asks for parts of a request."""

    #: What the strictest of the parts does with samples that influence each other.
    coupled: str | None = field(default=None, init=False, repr=False, compare=False)

    @property
    @abstractmethod
    def parts(self) -> tuple[Engine, ...]:
        """The engines it is made of."""

    @abstractmethod
    def with_parts(self, parts: Sequence[Engine]) -> Self:
        """The same combination of other engines."""

    @abstractmethod
    def shares(self, operators: Sequence[Operator]) -> list[list[Operator]]:
        """What each part is asked for."""

    def _check(self) -> None:
        for part in self.parts:
            if not isinstance(part, Engine):
                name = type(self).__name__
                raise InputError(f"{name} is made of engines such as dudx.AD() and dudx.FD(); got {part!r}.")
        found = {part.coupled for part in self.parts}
        object.__setattr__(self, "coupled", "refuse" if "refuse" in found else "ignore" if "ignore" in found else None)

    def rows(self, x: Tensor, operators: Sequence[Operator]) -> RowsPerPoint:
        asked = zip(self.parts, self.shares(fitting(operators, x)), strict=True)
        each = [part.rows(x, share) for part, share in asked if share]
        return RowsPerPoint(max(rows.at_once for rows in each), sum(rows.kept for rows in each))

    def calibrated(self, model: Model, x: Tensor, operators: Sequence[Operator], **search: Any) -> Self:
        """The same with the steps of its parts set, each for what it is asked for."""
        asked = zip(self.parts, self.shares(fitting(operators, x)), strict=True)
        return self._changed([p.calibrated(model, x, share, **search) if share else p for p, share in asked])

    def _changed(self, parts: Sequence[Engine]) -> Self:
        """The same with other parts; itself if they are no others."""
        same = all(now is before for now, before in zip(parts, self.parts, strict=True))
        return self if same else self.with_parts(parts)

    def looking(self, side: str) -> Self:
        parts = [part.looking(side) for part in self.parts]
        changed = any(now is not before for now, before in zip(parts, self.parts, strict=True))
        return self.with_parts(parts) if changed else self

    @property
    def state(self) -> dict[str, Any]:
        return {str(number): part.state for number, part in enumerate(self.parts) if part.state}

    def with_state(self, state: Mapping[str, Any]) -> Self:
        known = {str(number) for number in range(len(self.parts))}
        if not known >= state.keys():
            raise InputError(f"{type(self).__name__} keeps the states of its parts, and was given another: {state!r}.")
        return self.with_parts(
            [p.with_state(state[str(i)]) if str(i) in state else p for i, p in enumerate(self.parts)]
        )

    @property
    def shown(self) -> str:
        return " ".join(filter(None, (part.shown for part in self.parts)))


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
    def approximate(self) -> bool:  # type: ignore[override]
        return self.a.approximate or self.b.approximate

    @property
    def parts(self) -> tuple[Engine, ...]:
        return self.a, self.b

    def with_parts(self, parts: Sequence[Engine]) -> Self:
        return replace(self, a=parts[0], b=parts[1])

    def shares(self, operators: Sequence[Operator]) -> list[list[Operator]]:
        return [list(operators), list(operators)]

    def derivatives(self, model: Model, x: Tensor, operators: Sequence[Operator]) -> list[Tensor]:
        holds = self._holds(x)
        together = samples_of(model) > 1
        # A part of the batch would be another batch, or one of a size that is not known.
        if together or self.coupled != "refuse" or not tensor_checks.readable(x):
            both = [sound_derivatives(part, model, x, operators) for part in self.parts]
            return [torch.where(holds.unsqueeze(1), a, b) for a, b in zip(*both, strict=True)]
        places = [holds.nonzero().flatten(), (~holds).nonzero().flatten()]
        for part, others in zip(self.parts, reversed(places), strict=True):
            if not len(others):
                return list(sound_derivatives(part, model, x, operators))
        found = [
            sound_derivatives(part, model, x[rows], at_rows(operators, rows))
            for part, rows in zip(self.parts, places, strict=True)
        ]
        back = torch.cat(places).argsort()
        return [torch.cat(values)[back] for values in zip(*found, strict=True)]

    def calibrated(self, model: Model, x: Tensor, operators: Sequence[Operator], **search: Any) -> Self:
        """The same with the steps of its parts set, each at the points where it is used."""
        holds, operators = self._holds(x), fitting(operators, x)
        together = x.is_meta or samples_of(model) > 1 or self.coupled != "refuse"
        if together or bool(holds.all()) or not bool(holds.any()):
            return super().calibrated(model, x, operators, **search)
        parts = [
            part.calibrated(model, x[rows], at_rows(operators, rows), **search)
            for part, rows in zip(self.parts, (holds, ~holds), strict=True)
        ]
        return self._changed(parts)

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
    def approximate(self) -> bool:  # type: ignore[override]
        return any(part.approximate for part in self.parts)

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

    def shares(self, operators: Sequence[Operator]) -> list[list[Operator]]:
        return [[share for share in part if share.terms] for part in self._split(operators)]

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

    def derivatives(self, model: Model, x: Tensor, operators: Sequence[Operator]) -> list[Tensor]:
        totals: list[Tensor | None] = [None] * len(operators)
        for part, split in zip(self.parts, self._split(operators), strict=True):
            asked = [number for number, share in enumerate(split) if share.terms]
            if not asked:
                continue
            for number, value in zip(asked, sound_derivatives(part, model, x, [split[i] for i in asked]), strict=True):
                already = totals[number]
                totals[number] = value if already is None else already + value
        if None in totals:  # 0 * D(0), whose shape only the network knows
            zero = 0 * sound_derivatives(self.parts[0], model, x, [Operator({Partial(): 1.0})])[0]
            return [zero if total is None else total for total in totals]
        return [total for total in totals if total is not None]
