"""One evaluation of a residual: the engine computes the request, the function computes its values from the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dudx.evaluate import derivatives, derivatives_elsewhere
from dudx.residual.field_function import FieldFunction
from dudx.residual.recorded_request import RecordedRequest


class ResidualCall(NamedTuple):
    """The arguments of one evaluation."""

    model: Any
    x: Tensor
    engine: Any
    data: Mapping[str, Tensor]
    #: Computes the result from the function's values: `separate` or `mean_square`.
    finish: Callable[[Any], Any]


#: Computes the result of a call, given the function and its request.
Evaluation = Callable[[FieldFunction, ResidualCall, RecordedRequest], Any]


def evaluate_eagerly(function: FieldFunction, call: ResidualCall, request: RecordedRequest) -> Any:
    """Compute a call without compilation."""
    model, x, engine, data, finish = call
    computed = derivatives(model, x, request.for_engine, engine)
    return finish(function.replayed(computed, request, x, data, partial(derivatives_elsewhere, model, engine, len(x))))


def separate(values: Any) -> Any:
    """The values in tensors of their own: a compiled graph must not return views of a shared buffer."""
    return tuple(value.clone() for value in values) if isinstance(values, tuple) else values.clone()


def mean_square(values: Any) -> Tensor:
    """The mean square of the values, summed over the equations."""
    if not isinstance(values, tuple):
        return values.square().mean()
    return torch.stack([value.square().mean() for value in values]).sum()


#: The results that can be computed from a function's values; a compiled graph returns all of them.
RESULTS = (separate, mean_square)
