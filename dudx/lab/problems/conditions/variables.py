"""Names that conditions and equations use: inputs, unknown functions, unknown constants, and values given by name."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dudx.errors import InputError
from dudx.lab.named_objects import said
from dudx.lab.problems.geometry import Cylinder, Domain, Interval
from dudx.residual.derivative_names import axes_named
from dudx.residual.residual_function import Residual

#: A number, or a function of some of the inputs by name: `lambda x, t: torch.sin(x) * t`.
Value = float | Callable[..., Any]
#: The argument that receives all coordinates, (N, d), for functions of many inputs.
POINTS_ARGUMENT = "points"


@dataclass(frozen=True)
class ProblemVariables:
    """Inputs, unknown functions and unknown constants of a problem by name, and its domain."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    domain: Domain
    #: Unknown constants, which equations take by name.
    unknowns: Mapping[str, nn.Parameter] = field(default_factory=dict)

    @property
    def time(self) -> int | None:
        """Column of time: the last input of a shape times an interval, or the only input where it is named t."""
        if isinstance(self.domain, Cylinder):
            return len(self.inputs) - 1
        return 0 if isinstance(self.domain, Interval) and self.inputs == ("t",) else None

    @property
    def space(self) -> Domain:
        """The domain without the interval of time."""
        return self.domain.space if isinstance(self.domain, Cylinder) else self.domain

    def parse_derivative(self, key: str) -> tuple[str, tuple[str, ...]]:
        """Split a key such as `u` or `u_xt` into the unknown function and the inputs it is differentiated along."""
        for output in sorted(self.outputs, key=len, reverse=True):
            if key == output:
                return output, ()
            axes = axes_named(key.removeprefix(f"{output}_"), self.inputs) if key.startswith(f"{output}_") else None
            if axes:
                return output, tuple(self.inputs[axis] for axis in axes)
        raise InputError(
            f"A condition gives a value to {key!r}, which is none of {', '.join(self.outputs)} nor a derivative such "
            f"as {self.outputs[0]}_{self.inputs[0]}; the equation names the unknown functions."
        )

    def data_name(self, name: str) -> str:
        """A name for data of a condition that no input, unknown function or unknown constant has."""
        while name in (*self.inputs, *self.outputs, *self.unknowns):
            name += "_"
        return name

    def residual(self, function: Callable[..., Any], data: Sequence[str] = ()) -> Residual:
        """Make a residual of a function that takes outputs, inputs, data and unknown constants in any order."""
        asked = argument_names(function)
        known = {*self.outputs, *self.inputs, *data, *self.unknowns, POINTS_ARGUMENT}
        if strangers := [name for name in asked if name not in known]:
            raise InputError(
                f"An equation takes {strangers[0]!r}, which is none of the inputs {', '.join(self.inputs)}, the "
                f"unknown functions {', '.join(self.outputs)}"
                + (f", {', '.join(data)}" if data else "")
                + (f" or the unknown constants {', '.join(self.unknowns)}." if self.unknowns else ".")
            )
        names = (*self.outputs, *self.inputs, *data)
        if list(asked) == list(names):
            return Residual(function, self.inputs, data)

        def call_by_name(given: Mapping[str, Any]) -> Any:
            named = {**given, **self.unknowns}
            if POINTS_ARGUMENT in asked:
                named[POINTS_ARGUMENT] = torch.cat([given[name] for name in self.inputs], dim=1)
            return function(**{name: named[name] for name in asked})

        return Residual(with_arguments(call_by_name, names), self.inputs, data)

    def evaluate(self, value: Value, points: Tensor, of: str) -> Tensor:
        """Evaluate a number or a function at points, (N, 1); `of` says in errors what the value is for."""
        if not callable(value):
            return points.new_full((len(points), 1), float(value))
        with torch.no_grad():
            found = self.call(value, points, of)
        if isinstance(found, np.ndarray | numbers.Real):
            found = torch.as_tensor(found)
        if not isinstance(found, Tensor) or found.shape not in ((len(points), 1), ()):
            got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
            raise InputError(
                f"The function for {of} gives {got} for {len(points)} points; it must give one number per point, shape "
                f"({len(points)}, 1), as its arguments have."
            )
        return found.to(points).expand(len(points), 1)

    def call(self, function: Callable[..., Any], points: Tensor, of: str) -> Any:
        """Call a function of some of the inputs by name."""
        asked = argument_names(function)
        if strangers := [name for name in asked if name not in (*self.inputs, POINTS_ARGUMENT)]:
            raise InputError(
                f"The function for {of} takes {strangers[0]!r}, which is none of the inputs {', '.join(self.inputs)}."
            )
        columns = {name: points[:, i : i + 1] for i, name in enumerate(self.inputs) if name in asked}
        if POINTS_ARGUMENT in asked:
            columns[POINTS_ARGUMENT] = points
        try:
            return function(**columns)
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"The function for {of} fails: {said(error)}.") from error


def checked_value(value: object, of: str) -> Value:
    """Return a finite number or a function; raise `InputError` for anything else."""
    if isinstance(value, Tensor | np.ndarray) and value.ndim == 0:
        value = float(value)
    if callable(value) or (isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)):
        return value  # type: ignore[return-value]
    raise InputError(
        f"The value of {of} is a finite number or a function of the inputs by name, lambda x: ...; got "
        f"{type(value).__name__}. Values at points that you have are given by Data(points, ...)."
    )


def argument_names(function: Callable[..., Any]) -> list[str]:
    """Names of the arguments without a default."""
    kinds = inspect.Parameter
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as error:
        raise InputError("The arguments of this built-in function are unknown; wrap it in a lambda.") from error
    if any(p.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD, kinds.POSITIONAL_ONLY) for p in parameters):
        raise InputError("Arguments are matched by name: write them out, without *, ** or /.")
    return [parameter.name for parameter in parameters if parameter.default is kinds.empty]


def with_arguments(function: Callable[[Mapping[str, Any]], Any], names: Sequence[str]) -> Callable[..., Any]:
    """Turn a function of a mapping into one with keyword arguments of these names."""

    def call_with_mapping(**given: Any) -> Any:
        return function(given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, keyword) for name in names]
    call_with_mapping.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call_with_mapping
