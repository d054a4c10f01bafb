"""Points and reference values in the forms that people have them in."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from dudx.errors import InputError
from dudx.lab.named_objects import said
from dudx.lab.problems import Problem
from dudx.lab.problems.conditions.variables import POINTS_ARGUMENT, argument_names

_POINTS = 10_000


class OutsideDomainWarning(UserWarning):
    """A solution is evaluated outside of its domain, where it was not trained."""


def as_points(points: ArrayLike | torch.Tensor, problem: Problem) -> np.ndarray:
    """Points (N, d) as numbers of double precision."""
    given = points.detach().cpu().numpy() if isinstance(points, torch.Tensor) else points
    x = np.ascontiguousarray(given, dtype=np.float64)
    if x.ndim == 1 and len(problem.inputs) == 1:
        x = x[:, None]
    if x.ndim != 2 or x.shape[1] != len(problem.inputs):
        raise InputError(
            f"Points have shape (N, {len(problem.inputs)}), columns {', '.join(problem.inputs)}; got {x.shape}."
        )
    return x


def warn_outside(x: np.ndarray, problem: Problem) -> None:
    """Warn of points (N, d) outside of the domain, where nothing was trained."""
    beyond = problem.domain.lies_outside(torch.from_numpy(x)).numpy()
    if beyond.any():
        at = ", ".join(f"{name} = {value:.6g}" for name, value in zip(problem.inputs, x[beyond][0], strict=True))
        warnings.warn(
            f"{int(beyond.sum())} of {len(x)} points lie outside of the domain, such as {at}: the values there are "
            "extrapolated.",
            OutsideDomainWarning,
            stacklevel=3,
        )


def reference_values(
    reference: Callable[..., Any] | tuple[ArrayLike, ArrayLike], points: ArrayLike | None, problem: Problem
) -> tuple[np.ndarray, np.ndarray]:
    """Return points (N, d) and the values of a reference there (N, m), NaN where there is none."""
    if isinstance(reference, tuple):
        x, values = as_points(reference[0], problem), reference[1]
    else:
        own = getattr(reference, "points", None) if points is None else points
        x = problem.domain.sobol(_POINTS, dtype=torch.float64).numpy() if own is None else as_points(own, problem)
        values = _evaluated(reference, x, problem)
    if not isinstance(values, tuple):
        array = _array(values)
        many = array.ndim == 2 and len(array) == len(x)
        values = tuple(array.T) if many else (array,)
    if len(values) != problem.outputs:
        raise InputError(
            f"The reference gives {len(values)} values per point; there are {problem.outputs} unknown functions, "
            f"{', '.join(problem.names)} (None for one that is not compared)."
        )
    columns = [_column(value, len(x), name) for value, name in zip(values, problem.names, strict=True)]
    return x, np.stack(columns, axis=1)


def _array(value: Any) -> np.ndarray:
    try:
        return np.asarray(value.detach().cpu() if isinstance(value, torch.Tensor) else value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"The values of the reference are not numbers: {said(error)}.") from error


def _column(value: Any, n: int, name: str) -> np.ndarray:
    """One number per point (N,), from a number, (N,), (N, 1) or None."""
    if value is None:
        return np.full(n, np.nan)
    array = _array(value)
    if array.size != 1 and array.shape not in ((n,), (n, 1)):
        raise InputError(
            f"The reference gives shape {array.shape} for {name} at {n} points; it must give one number per point."
        )
    return np.broadcast_to(array.reshape(-1), n)


def _evaluated(reference: Callable[..., Any], x: np.ndarray, problem: Problem) -> Any:
    """Call a function of inputs by name or of the points with tensors, as conditions do; an object with arrays."""
    points = torch.from_numpy(x)
    try:
        names = argument_names(reference)
    except (InputError, TypeError):
        names = []
    by_name = bool(names) and all(name in (*problem.inputs, POINTS_ARGUMENT) for name in names)
    tensors: dict[str, torch.Tensor] = {
        name: points[:, [problem.inputs.index(name)]] if name in problem.inputs else points for name in names if by_name
    }
    try:
        if by_name:
            return _in_either_form(lambda given: reference(**given), tensors)
        if inspect.isfunction(reference):
            return _in_either_form(lambda given: reference(given["points"]), {"points": points})
        return reference(x)
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError) as error:
        raise InputError(f"The reference fails: {said(error)}.") from error


def _in_either_form(call: Callable[[Mapping[str, Any]], Any], tensors: Mapping[str, torch.Tensor]) -> Any:
    """Call a function with tensors, or with arrays where it is written for numpy."""
    try:
        with torch.no_grad():
            return call(tensors)
    except (TypeError, AttributeError):
        return call({name: tensor.numpy() for name, tensor in tensors.items()})
