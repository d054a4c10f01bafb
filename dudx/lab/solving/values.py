"""Points and reference values in the forms that people have them in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from dudx.errors import InputError
from dudx.lab.problems import Problem
from dudx.lab.problems.conditions.variables import argument_names

_POINTS = 10_000


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


def reference_values(
    reference: Callable[..., Any] | tuple[ArrayLike, ArrayLike], points: ArrayLike | None, problem: Problem
) -> tuple[np.ndarray, np.ndarray]:
    """Points and what a reference says there, (N, d) and (N, m)."""
    if isinstance(reference, tuple):
        x, values = as_points(reference[0], problem), reference[1]
    else:
        own = getattr(reference, "points", None) if points is None else points
        x = problem.domain.sobol(_POINTS, dtype=torch.float64).numpy() if own is None else as_points(own, problem)
        values = _called(reference, x, problem)
    true = values if isinstance(values, tuple | list) else (values,)
    if not isinstance(values, tuple):
        array = np.asarray(values, dtype=np.float64)
        true = tuple(array.reshape(len(x), -1).T) if array.size else ()
    if len(true) != problem.outputs:
        raise InputError(
            f"The reference gives {len(true)} values a point; there are {problem.outputs} unknown functions, "
            f"{', '.join(problem.names)} (None for one that is not compared)."
        )
    columns = [np.full(len(x), np.nan) if v is None else np.asarray(v, np.float64).reshape(-1) for v in true]
    return x, np.stack([np.broadcast_to(column, len(x)) for column in columns], axis=1)


def _called(reference: Callable[..., Any], x: np.ndarray, problem: Problem) -> Any:
    """A function of inputs by name, or of all points at once."""
    try:
        names = argument_names(reference)
    except InputError:
        names = []
    if names and all(name in problem.inputs for name in names):
        return reference(**{name: x[:, problem.inputs.index(name)] for name in names})
    return reference(x)
