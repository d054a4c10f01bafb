"""Kinds of conditions as users write them.

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
from dudx.lab.problems.conditions.variables import (
    ProblemVariables,
    Value,
    argument_names,
    checked_value,
    with_arguments,
)
from dudx.lab.problems.geometry import Shape
from dudx.residual.residual_function import Residual


class ConditionSpec(ABC):
    """A condition as it is written down, before it is bound to the inputs and the domain of a problem."""

    #: The name of its term in the loss; `default_name` where it is None.
    name: str | None = None
    default_name: str

    @abstractmethod
    def residual(self, variables: ProblemVariables) -> Residual:
        """Make the residual; its data are those of `values`, and n for the normals."""

    def values(self, variables: ProblemVariables) -> Mapping[str, Value]:
        """Values that the residual takes as data, by name."""
        return {}


class BoundarySpec(ConditionSpec):
    """A condition on a part of the boundary."""

    on: On = None
    #: The condition holds by construction.
    hard: bool = False

    @abstractmethod
    def form(self, variables: ProblemVariables) -> Hashable:
        """A key that is equal for conditions that differ only in where they hold and in their values."""


class _GivenValues(ConditionSpec):
    """Values of unknown functions, or of their derivatives."""

    #: Give values to the derivative along the normal.
    along_normals = False

    def __init__(self, name: str | None, given: Mapping[str, object]):
        if not given:
            raise InputError(f"{type(self).__name__} gives a value to an unknown function by name, as in u=0.0.")
        self.name = name
        self.given = {key: checked_value(value, key) for key, value in given.items()}

    def form(self, variables: ProblemVariables) -> Hashable:
        return type(self), tuple(variables.parse_derivative(key) for key in self.given)

    def values(self, variables: ProblemVariables) -> Mapping[str, Value]:
        one = len(self.given) == 1
        return {variables.data_name("g" if one else f"g_{key}"): value for key, value in self.given.items()}

    def residual(self, variables: ProblemVariables) -> Residual:
        names = dict(zip(self.given, self.values(variables), strict=True))
        normals = (variables.data_name("n"),) if self.along_normals else ()

        def equations(named: Mapping[str, Any]) -> Any:
            found = []
            for key, data in names.items():
                field = _derivative(named, key, variables)
                found.append((field.along(named[normals[0]]) if normals else field) - named[data])
            return found[0] if len(found) == 1 else tuple(found)

        return _residual(variables, equations, (*normals, *names.values()))


class Dirichlet(_GivenValues, BoundarySpec):
    """Values on a part of the boundary: `Dirichlet(u=1.0, v=lambda y: y**2, on="left")`.

    Args:
        on: where; see `On`. Everywhere on the boundary unless given.
        hard: let the values hold by construction, u = g + φ N with φ from the distance to the boundary.
        name: the name of its term in the loss.
        given: values by the name of the unknown function; `u_x` names a derivative.
    """

    default_name = "dirichlet"

    def __init__(self, on: On = None, hard: bool = False, name: str | None = None, **given: Value):
        super().__init__(name, given)
        self.on, self.hard = on, hard


class Neumann(_GivenValues, BoundarySpec):
    """Values of the derivative along the outward normal on a part of the boundary: `Neumann(u=0.0, on="top")`.

    Args:
        on: where; everywhere on the boundary unless given.
        hard: let the condition hold by construction, on outer faces of a box.
        name: the name of its term in the loss.
        given: values by the name of the unknown function.
    """

    default_name = "neumann"
    along_normals = True

    def __init__(self, on: On = None, hard: bool = False, name: str | None = None, **given: Value):
        super().__init__(name, given)
        self.on, self.hard = on, hard


class Robin(BoundarySpec):
    """The condition ∂u/∂n + a u = g on a part of the boundary, n the outward normal.

    Args:
        a, g: numbers or functions of the inputs by name.
        on: where; everywhere on the boundary unless given.
        of: the unknown function, where there are several.
        name: the name of its term in the loss.
        hard: let the condition hold by construction, on outer faces of a box.
    """

    default_name = "robin"

    def __init__(
        self,
        a: Value,
        g: Value,
        on: On = None,
        of: str | None = None,
        name: str | None = None,
        hard: bool = False,
    ):
        self.a, self.g = checked_value(a, "a"), checked_value(g, "g")
        self.on, self.of, self.name, self.hard = on, of, name, hard

    def output(self, variables: ProblemVariables) -> str:
        """The unknown function that it is a condition on."""
        if self.of is not None:
            return variables.parse_derivative(self.of)[0]
        if len(variables.outputs) != 1:
            raise InputError(f"Robin(of=...) says which of {', '.join(variables.outputs)} it is a condition on.")
        (output,) = variables.outputs
        return output

    def form(self, variables: ProblemVariables) -> Hashable:
        return Robin, self.output(variables), None if callable(self.a) else self.a

    def values(self, variables: ProblemVariables) -> Mapping[str, Value]:
        given = {"a": self.a, "g": self.g} if callable(self.a) else {"g": self.g}
        return {variables.data_name(name): value for name, value in given.items()}

    def residual(self, variables: ProblemVariables) -> Residual:
        output, constant = self.output(variables), None if callable(self.a) else float(self.a)
        a, g, n = (variables.data_name(name) for name in "agn")

        def equation(named: Mapping[str, Any]) -> Any:
            u = named[output]
            return u.along(named[n]) + (named[a] * u if constant is None else constant * u) - named[g]

        return _residual(variables, equation, (n, *self.values(variables)))


class Equation(BoundarySpec):
    """Any equation on a part of the boundary, a function that may take n, the outward normals (N, d)."""

    default_name = "equation"

    def __init__(self, function: Callable[..., Any], on: On = None, name: str | None = None):
        self.function, self.on, self.name = _checked_function(function), on, name

    def form(self, variables: ProblemVariables) -> Hashable:
        return id(self.function)

    def residual(self, variables: ProblemVariables) -> Residual:
        return _own_residual(variables, self.function)


class Interface(ConditionSpec):
    """An equation on a surface inside the domain, such as where two materials meet.

    Args:
        function: the equation, or a tuple of them, with n for the normals of the surface if it takes them.
        at: a shape, whose boundary it is, or a plane such as "x=0.5".
        name: the name of its term in the loss.
    """

    default_name = "interface"

    def __init__(self, function: Callable[..., Any], at: Shape | str, name: str | None = None):
        if not isinstance(at, Shape | str):
            raise InputError(f"An interface is at a shape or a plane such as 'x=0.5'; got {type(at).__name__}.")
        self.function, self.at, self.name = _checked_function(function), at, name

    def residual(self, variables: ProblemVariables) -> Residual:
        return _own_residual(variables, self.function)


class Initial(_GivenValues):
    """Values at the initial time: `Initial(u=lambda x: torch.sin(x), u_t=0.0)`."""

    default_name = "initial"

    def __init__(self, hard: bool = False, name: str | None = None, **given: Value):
        super().__init__(name, given)
        self.hard = hard


class Data(ConditionSpec):
    """Values at points: measurements, or values known at single points.

    Args:
        points: (N, d), one column per input in their order; (N,) where there is one input.
        name: the name of its term in the loss.
        given: for each unknown function N values, or one for all points; `u_x` names a derivative.
    """

    default_name = "data"

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

    def data_names(self, variables: ProblemVariables) -> dict[str, str]:
        """The names under which the residual takes the values, by the key they were given with."""
        return {key: variables.data_name(f"g_{key}") for key in self.given}

    def residual(self, variables: ProblemVariables) -> Residual:
        if self.points.ndim != 2 or self.points.shape[1] != len(variables.inputs):
            raise InputError(
                f"The points of data have shape (N, {len(variables.inputs)}), columns {', '.join(variables.inputs)}; "
                f"got {tuple(self.points.shape)}."
            )
        names = self.data_names(variables)

        def equations(named: Mapping[str, Any]) -> Any:
            found = [_derivative(named, key, variables) - named[data] for key, data in names.items()]
            return found[0] if len(found) == 1 else tuple(found)

        return _residual(variables, equations, tuple(names.values()))


class Periodic(ConditionSpec):
    """Periodicity along these inputs from one face of the domain to the opposite one, by construction."""

    default_name = "periodic"

    def __init__(self, *axes: str):
        if not axes or not all(isinstance(axis, str) for axis in axes):
            raise InputError(f'Periodic names inputs, as in Periodic("x"); got {axes!r}.')
        self.axes = axes

    def residual(self, variables: ProblemVariables) -> Residual:
        raise InputError("Periodic conditions hold by construction and have no residual.")


def _derivative(named: Mapping[str, Any], key: str, variables: ProblemVariables) -> Any:
    """The field that a key such as `u` or `u_x` names."""
    output, along = variables.parse_derivative(key)
    return named[output].d(*along) if along else named[output]


def _residual(
    variables: ProblemVariables, equations: Callable[[Mapping[str, Any]], Any], data: Sequence[str]
) -> Residual:
    """Make a residual of a function that takes all outputs and data as a mapping."""
    return Residual(with_arguments(equations, (*variables.outputs, *data)), variables.inputs, tuple(data))


def _own_residual(variables: ProblemVariables, function: Callable[..., Any]) -> Residual:
    """Make a residual of a user's function; an argument n that nothing else is named receives the normals."""
    taken = (*variables.inputs, *variables.outputs, *variables.unknowns)
    takes_normals = "n" in argument_names(function) and "n" not in taken
    return variables.residual(function, ("n",) if takes_normals else ())


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
