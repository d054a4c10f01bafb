"""Conditions as a person states them.

    Dirichlet(u=0.0, on=plate.outside)                       # a value on a part of the boundary
    Neumann(u=lambda y: y, on="left")                        # the derivative along the outward normal
    Robin(a=1.0, g=5.0, on=plate.holes)                      # ∂u/∂n + a u = g
    Initial(u=lambda x: torch.sin(x), u_t=0.0)               # at the first moment
    Equation(lambda u, n: u.along(n) + u**4, on="right")     # any equation on a part of the boundary
    Interface(lambda u, v: (u - v, u.x - 2 * v.x), at="x=0.5")  # any equation on a surface inside
    Periodic("x")                                            # by construction, with all derivatives
    Data(points, u=values)                                   # what was measured, or is known at points

Values are numbers, or functions of some of the inputs by name. `u_t` is a derivative of `u`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from dudx.errors import InputError
from dudx.lab.problems.conditions.boundary_selection import On
from dudx.lab.problems.conditions.frame import Frame, Value, by_name, checked_value, names_of
from dudx.lab.problems.geometry import Shape
from dudx.residual.residual_function import Residual


class Stated(ABC):
    """A condition in words, before it is known which problem it belongs to."""

    #: What it is called in the loss; else by its kind.
    name: str | None = None
    word: str

    @abstractmethod
    def residual(self, frame: Frame) -> Residual:
        """The equation; its data are named by `values`, and by n for normals."""

    def values(self, frame: Frame) -> Mapping[str, Value]:
        """Values that the residual takes as data, by name."""
        return {}


class OnBoundary(Stated):
    """A condition on a part of the boundary."""

    on: On = None

    @abstractmethod
    def shape(self, frame: Frame) -> Hashable:
        """What is the same for conditions that differ only in where they hold and in their values."""


class _Given(Stated):
    """Values of unknown functions, or of their derivatives."""

    def __init__(self, name: str | None, given: Mapping[str, object]):
        if not given:
            raise InputError(f"{type(self).__name__} gives a value to an unknown function by name, as in u=0.0.")
        self.name = name
        self.given = {key: checked_value(value, key) for key, value in given.items()}

    def shape(self, frame: Frame) -> Hashable:
        return type(self), tuple(frame.operand(key) for key in self.given)

    def values(self, frame: Frame) -> Mapping[str, Value]:
        one = len(self.given) == 1
        return {"g" if one else f"g_{key}": value for key, value in self.given.items()}

    def _left(self, field: Any, n: Any) -> Any:
        return field

    def _normals(self) -> tuple[str, ...]:
        return ()

    def residual(self, frame: Frame) -> Residual:
        names = list(zip(self.given, self.values(frame), strict=True))

        def equations(named: Mapping[str, Any]) -> Any:
            found = []
            for key, data in names:
                output, along = frame.operand(key)
                field = named[output].d(*along) if along else named[output]
                found.append(self._left(field, named.get("n")) - named[data])
            return found[0] if len(found) == 1 else tuple(found)

        return _residual(frame, equations, (*self._normals(), *(data for _, data in names)))


class Dirichlet(_Given, OnBoundary):
    """Values on a part of the boundary: `Dirichlet(u=1.0, v=lambda y: y**2, on="left")`.

    Args:
        on: where; see `On`. Everywhere on the boundary unless given.
        hard: let the values hold by construction, u = g + φ N with φ from the distance to the boundary.
        name: what it is called in the loss.
        given: values by the name of the unknown function; `u_x` names a derivative.
    """

    word = "dirichlet"

    def __init__(self, on: On = None, hard: bool = False, name: str | None = None, **given: Value):
        super().__init__(name, given)
        self.on, self.hard = on, hard


class Neumann(_Given, OnBoundary):
    """The derivative along the outward normal on a part of the boundary: `Neumann(u=0.0, on="top")`."""

    word = "neumann"

    def __init__(self, on: On = None, name: str | None = None, **given: Value):
        super().__init__(name, given)
        self.on = on

    def _left(self, field: Any, n: Any) -> Any:
        return field.along(n)

    def _normals(self) -> tuple[str, ...]:
        return ("n",)


class Robin(OnBoundary):
    """∂u/∂n + a u = g on a part of the boundary, n the normal out of the domain.

    Args:
        a, g: numbers or functions of the inputs by name.
        on: where; everywhere on the boundary unless given.
        of: the unknown function, where there are several.
        name: what it is called in the loss.
    """

    word = "robin"

    def __init__(self, a: Value, g: Value, on: On = None, of: str | None = None, name: str | None = None):
        self.a, self.g = checked_value(a, "a"), checked_value(g, "g")
        self.on, self.of, self.name = on, of, name

    def _output(self, frame: Frame) -> str:
        if self.of is not None:
            return frame.operand(self.of)[0]
        if len(frame.outputs) != 1:
            raise InputError(f"Robin(of=...) says which of {', '.join(frame.outputs)} it is a condition of.")
        (output,) = frame.outputs
        return output

    def shape(self, frame: Frame) -> Hashable:
        return Robin, self._output(frame), None if callable(self.a) else self.a

    def values(self, frame: Frame) -> Mapping[str, Value]:
        return {"a": self.a, "g": self.g} if callable(self.a) else {"g": self.g}

    def residual(self, frame: Frame) -> Residual:
        output, constant = self._output(frame), None if callable(self.a) else float(self.a)

        def equation(named: Mapping[str, Any]) -> Any:
            u = named[output]
            return u.along(named["n"]) + (named["a"] * u if constant is None else constant * u) - named["g"]

        return _residual(frame, equation, ("n", *self.values(frame)))


class Equation(OnBoundary):
    """An equation of one's own on a part of the boundary, with n for the normals if it takes them."""

    word = "equation"

    def __init__(self, function: Callable[..., Any], on: On = None, name: str | None = None):
        self.function, self.on, self.name = _checked_function(function), on, name

    def shape(self, frame: Frame) -> Hashable:
        return id(self.function)

    def residual(self, frame: Frame) -> Residual:
        return _own(frame, self.function)


class Interface(Stated):
    """An equation on a surface inside the domain, such as where two materials meet.

    Args:
        function: the equation, or a tuple of them, with n for the normals of the surface if it takes them.
        at: a shape, whose boundary it is, or a plane such as "x=0.5".
        name: what it is called in the loss.
    """

    word = "interface"

    def __init__(self, function: Callable[..., Any], at: Shape | str, name: str | None = None):
        if not isinstance(at, Shape | str):
            raise InputError(f"An interface is at a shape or a plane such as 'x=0.5'; got {type(at).__name__}.")
        self.function, self.at, self.name = _checked_function(function), at, name

    def residual(self, frame: Frame) -> Residual:
        return _own(frame, self.function)


class Initial(_Given):
    """Values at the first moment: `Initial(u=lambda x: torch.sin(x), u_t=0.0)`."""

    word = "initial"

    def __init__(self, hard: bool = False, name: str | None = None, **given: Value):
        super().__init__(name, given)
        self.hard = hard


class Data(Stated):
    """Values at points: measurements, or what is known at single places.

    Args:
        points: (N, d), one column an input in their order; (N,) where there is one input.
        name: what it is called in the loss.
        given: for each unknown function N values, or one for all points; `u_x` names a derivative.
    """

    word = "data"

    def __init__(self, points: ArrayLike | Tensor, name: str | None = None, **given: Any):
        self.points, self.name = _array(points, "The points"), name
        if self.points.ndim == 1:
            self.points = self.points[:, None]
        if not given:
            raise InputError("Data gives values to an unknown function by name, as in u=values.")
        self.given = {key: self._column(key, value) for key, value in given.items()}

    def _column(self, key: str, value: Any) -> Tensor:
        found, n = _array(value, f"The values of {key}"), len(self.points)
        if found.numel() == 1:
            return found.reshape(1, 1).expand(n, 1)
        if found.shape not in ((n,), (n, 1)):
            raise InputError(f"The values of {key} have shape {tuple(found.shape)}; there are {n} points.")
        return found.reshape(n, 1)

    def residual(self, frame: Frame) -> Residual:
        if self.points.ndim != 2 or self.points.shape[1] != len(frame.inputs):
            raise InputError(
                f"The points of data have shape (N, {len(frame.inputs)}), columns {', '.join(frame.inputs)}; got "
                f"{tuple(self.points.shape)}."
            )
        names = {key: f"g_{key}" for key in self.given}

        def equations(named: Mapping[str, Any]) -> Any:
            found = []
            for key, data in names.items():
                output, along = frame.operand(key)
                found.append((named[output].d(*along) if along else named[output]) - named[data])
            return found[0] if len(found) == 1 else tuple(found)

        return _residual(frame, equations, tuple(names.values()))


class Periodic(Stated):
    """The solution repeats itself across the domain along these inputs, by construction."""

    word = "periodic"

    def __init__(self, *axes: str):
        if not axes or not all(isinstance(axis, str) for axis in axes):
            raise InputError(f'Periodic names inputs, as in Periodic("x"); got {axes!r}.')
        self.axes = axes

    def residual(self, frame: Frame) -> Residual:
        raise InputError("Periodic conditions hold by construction and have no residual.")


def _residual(frame: Frame, equations: Callable[[Mapping[str, Any]], Any], data: Sequence[str]) -> Residual:
    """A residual of a function of everything by name."""
    return Residual(by_name(equations, (*frame.outputs, *data)), frame.inputs, tuple(data))


def _own(frame: Frame, function: Callable[..., Any]) -> Residual:
    takes_normals = "n" in names_of(function) and "n" not in (*frame.inputs, *frame.outputs, *frame.unknowns)
    return frame.residual(function, ("n",) if takes_normals else ())


def _checked_function(function: object) -> Callable[..., Any]:
    if not callable(function):
        raise InputError(f"An equation is a function, lambda u: ...; got {type(function).__name__}.")
    return function


def _array(values: Any, what: str) -> Tensor:
    try:
        found = torch.as_tensor(np.asarray(values.detach() if isinstance(values, Tensor) else values, dtype=np.float64))
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{what} are not numbers: {str(error).splitlines()[0]}.") from error
    if found.numel() == 0 or not bool(found.isfinite().all()):
        raise InputError(f"{what} are to be finite numbers, at least one.")
    return found
