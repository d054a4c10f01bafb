"""Ways to compute directional derivatives of a function with torch: nested forward mode, or gradients.

Each method returns, for each result of the function, a stack with the derivative along each row of vectors. The order
of the derivative is the number of vectors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.func import vjp, vmap

from dudx.backend.active_modes import transforms_active
from dudx.backend.forward_mode import jvp
from dudx.engines.autograd_graph import refuse_what_is_hidden
from dudx.errors import UnsupportedError

#: A function of tensors that returns the results that have derivatives.
Function = Callable[..., tuple[Tensor, ...]]
#: For each vector and each argument of the function, a stack of rows.
Vectors = Sequence[Sequence[Tensor]]
#: method(function, point, vectors)
Method = Callable[[Function, Sequence[Tensor], Vectors], list[Tensor]]


def forward_batched(function: Function, point: Sequence[Tensor], vectors: Vectors) -> list[Tensor]:
    """Forward mode inside forward mode, all rows at once."""
    return _batched(_forward_once, function, point, vectors)


def forward(function: Function, point: Sequence[Tensor], vectors: Vectors) -> list[Tensor]:
    """Forward mode inside forward mode, row by row."""
    return _one_by_one(_forward_once, function, point, vectors)


def double_backward_batched(function: Function, point: Sequence[Tensor], vectors: Vectors) -> list[Tensor]:
    """Two nested pullbacks per order, all rows at once."""
    return _batched(_double_backward, function, point, vectors)


def double_backward(function: Function, point: Sequence[Tensor], vectors: Vectors) -> list[Tensor]:
    """Two nested pullbacks per order, row by row."""
    return _one_by_one(_double_backward, function, point, vectors)


def gradients(function: Function, point: Sequence[Tensor], vectors: Vectors) -> list[Tensor]:
    """Two calls of `torch.autograd.grad` per order, for functions that `torch.func` rejects."""
    if transforms_active():
        raise UnsupportedError("Taylor cannot follow this function inside a transform of torch.func.")
    recording = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views, because the vectors may depend on the point and must stay fixed when it is differentiated.
        inputs = [p.view_as(p) if p.requires_grad else p.detach().requires_grad_() for p in point]
        found = _one_by_one(lambda f, vector: _in_the_graph(f, vector, len(vectors) + 1), function, inputs, vectors)
    return found if recording else [tensor.detach() for tensor in found]


def _forward_once(function: Function, vector: Sequence[Tensor]) -> Function:
    return lambda *point: jvp(function, point, tuple(vector))[1]


def _double_backward(function: Function, vector: Sequence[Tensor]) -> Function:
    """Return the derivative along a vector: a pullback is linear in its weights, and its own pullback is the answer."""

    def derivative(*point: Tensor) -> tuple[Tensor, ...]:
        results, pull = vjp(function, *point)[:2]
        push = vjp(lambda *weights: pull(weights), *(torch.zeros_like(result) for result in results))[1]
        return push(tuple(vector))

    return derivative


def _in_the_graph(function: Function, vector: Sequence[Tensor], order: int) -> Function:
    def derivative(*point: Tensor) -> tuple[Tensor, ...]:
        results = function(*point)
        for result in results:
            refuse_what_is_hidden(result, order)
        weights = [torch.zeros_like(result).requires_grad_() for result in results]
        pulled = _pull_back(results, point, weights)
        return _pull_back(pulled, weights, vector)

    return derivative


def _pull_back(values: Sequence[Tensor], of: Sequence[Tensor], weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    attached = [(value, weight) for value, weight in zip(values, weights, strict=True) if value.requires_grad]
    if not attached:
        return tuple(torch.zeros_like(tensor) for tensor in of)
    values, weights = zip(*attached, strict=True)
    return torch.autograd.grad(values, of, weights, create_graph=True, materialize_grads=True)


def _nested(once: Callable[..., Function], function: Function, point: Sequence[Tensor], row: Vectors) -> tuple:
    for vector in row:
        function = once(function, vector)
    return function(*point)


def _batched(once: Callable[..., Function], function: Function, point: Sequence[Tensor], vectors: Vectors) -> list:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop", category=UserWarning)
        nested: Callable[..., tuple] = lambda *row: _nested(once, function, point, row)  # noqa: E731
        return list(vmap(nested, randomness="same")(*vectors))


def _one_by_one(once: Callable[..., Function], function: Function, point: Sequence[Tensor], vectors: Vectors) -> list:
    rows = [_nested(once, function, point, row) for row in _rows(vectors)]
    return [torch.stack(results) for results in zip(*rows, strict=True)]


def _rows(vectors: Vectors) -> Iterator[list[list[Tensor]]]:
    for number in range(len(vectors[0][0])):
        yield [[stack[number] for stack in vector] for vector in vectors]
