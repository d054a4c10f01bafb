"""Derivatives of a function along several vectors, by torch: forward mode inside of forward mode, or gradients alone.

Not all of torch's formulas can be differentiated once more. Some say so; others come out wrong without a word, for
instance those that take a factorisation for a constant. So a way is compared with plain gradients when a function is
first met, at random vectors and with its own gradient in point and vectors, and not taken where it differs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence

import torch
from torch import Tensor
from torch.func import vjp, vmap

from dudx.backend.active_modes import transforms_active
from dudx.backend.forward_mode import jvp
from dudx.engines.autograd_graph import refuse_what_is_hidden
from dudx.errors import DudxError, UnsupportedError, first_line

#: A function of tensors alone, whose results are those that have derivatives.
Function = Callable[..., tuple[Tensor, ...]]
#: For each vector, and for each argument, a stack of rows.
Vectors = Sequence[Sequence[Tensor]]
#: The derivative along the vectors in each row, stacked, for each result.
Way = Callable[[Function, Sequence[Tensor], Vectors], list[Tensor]]

_DOUBLE = (torch.float64, torch.complex128)

#: By function and order, the way that was found right.
_known: dict[Hashable, Way] = {}


class Directional:
    """The derivatives of a function at a point along rows of vectors, in the fastest way that is right."""

    def __init__(self, function: Function, point: Sequence[Tensor], name: str, key: Hashable, gradient: bool):
        self.function, self.point, self.name, self.key = function, point, name, key
        #: Whether the function defines its gradient itself, which is then the only derivative it has.
        self.gradient = gradient

    def __call__(self, vectors: Vectors) -> list[Tensor]:
        key = (self.key, len(vectors))
        way = _known.get(key)
        if way is None:
            way = self._in_double()._found(vectors)
            _known[key] = way
        return way(self.function, self.point, vectors)

    def _in_double(self) -> Directional:
        """The same at a point in double precision, where rounding is no difference; itself where that does not go.

        Ways that are right may differ by more than single precision tells from wrong ones, as where torch divides.
        """
        wide = [p.detach().to(torch.promote_types(p.dtype, torch.float64)) for p in self.point]
        try:
            with torch.no_grad():
                results = self.function(*wide)
        except (RuntimeError, TypeError, ValueError):  # other arguments are of the point's own format
            return self
        if self.gradient or transforms_active() or any(r.dtype not in _DOUBLE for r in results):
            return self
        return Directional(self.function, wide, self.name, self.key, self.gradient)

    def _found(self, vectors: Vectors) -> Way:
        if self.gradient:
            return _by_gradients
        probe = self._probe(vectors)
        reference, reason = self._attempted(_pulled_back_twice if transforms_active() else _by_gradients, probe)
        if reference is None and reason == "":
            raise UnsupportedError(
                f"Torch knows no derivative of {self.name}: write it with functions it can differentiate, or add a "
                f"rule with @dudx.taylor_rule({self.name})."
            )
        for way in (_forward_batched, _forward, _pulled_back_batched, _pulled_back_twice):
            found, failed = self._attempted(way, probe)
            reason = reason or failed
            if found is not None and (reference is None or _agree(found, reference)):
                if reference is None and not self._agrees_with_differences(found, probe):
                    continue
                return way
        if reference is not None:
            return _by_gradients
        raise UnsupportedError(
            f"Taylor has no rule for {self.name}, and torch cannot differentiate it as often as was asked ({reason}): "
            f"use dudx.AD() for this network, or add a rule with @dudx.taylor_rule({self.name})."
        )

    def _probe(self, vectors: Vectors) -> Vectors:
        """One row of random vectors: those of jets may be zero, where any way is right."""
        generator = torch.Generator(self.point[0].device).manual_seed(len(vectors))

        def random(like: Tensor) -> Tensor:
            vector = torch.randn((1, *like.shape), dtype=like.dtype, device=like.device, generator=generator)
            return vector if transforms_active() else vector.requires_grad_()

        return [[random(p) for p in self.point] for _ in vectors]

    def _attempted(self, way: Way, probe: Vectors) -> tuple[list[Tensor] | None, str]:
        """The derivative and its own gradient in this way, or why there is none; no reason if there is no graph."""
        try:
            with torch.enable_grad():
                point = [p.detach().requires_grad_() for p in self.point] if not transforms_active() else self.point
                if not transforms_active() and not any(r.requires_grad for r in self.function(*point)):
                    return None, ""
                found = way(self.function, point, probe)
                if transforms_active():
                    return found, ""
                attached = [f for f in found if f.requires_grad]
                weighted = sum(
                    ((f * _weights(f)).sum().abs() for f in attached), torch.zeros((), device=found[0].device)
                )
                of = [*point, *(stack for vector in probe for stack in vector)]
                slopes = torch.autograd.grad(weighted, of, materialize_grads=True) if attached else ()
                return [*(f.detach() for f in found), *slopes], ""
        except (DudxError, torch.cuda.OutOfMemoryError):
            raise
        except (RuntimeError, TypeError, ValueError) as error:
            return None, first_line(error)

    def _agrees_with_differences(self, found: list[Tensor], probe: Vectors) -> bool:
        """Where gradients are missing: the derivative along the last vector as a difference of those along the rest."""
        *rest, last = probe
        eps = torch.finfo(self.point[0].dtype).eps
        step = eps ** (1 / 3)
        sides = []
        for sign in (1, -1):
            moved = [p + sign * step * v[0] for p, v in zip(self.point, last, strict=True)]
            sides.append(_forward(self.function, moved, rest) if rest else [r[None] for r in self.function(*moved)])
        for value, up, down in zip(found, *sides, strict=False):
            error = (value - (up - down) / (2 * step)).abs().max()
            if not float(error) <= 100 * eps ** (2 / 3) * (1 + float(value.abs().max())) * 100:
                return False
        return True


def _weights(like: Tensor) -> Tensor:
    """Different for each number, so that no two errors cancel."""
    return torch.linspace(1, 2, like.numel(), dtype=like.real.dtype, device=like.device).reshape(like.shape)


def _agree(found: list[Tensor], reference: list[Tensor]) -> bool:
    """To half of the digits, which no wrong formula does by chance."""
    for a, b in zip(found, reference, strict=True):
        tolerance = torch.finfo(a.dtype).eps ** 0.5
        if not bool(((a - b).abs() <= tolerance * (1 + b.abs().max())).all()):
            return False
    return len(found) == len(reference)


# -- the ways, from the fastest --------------------------------------------------------------------------------------


def _forward_batched(function: Function, point: Sequence[Tensor], vectors: Vectors) -> list[Tensor]:
    return _batched(_forward_once, function, point, vectors)


def _forward(function: Function, point: Sequence[Tensor], vectors: Vectors) -> list[Tensor]:
    return _one_by_one(_forward_once, function, point, vectors)


def _forward_once(function: Function, vector: Sequence[Tensor]) -> Function:
    return lambda *point: jvp(function, point, tuple(vector))[1]


def _pulled_back_batched(function: Function, point: Sequence[Tensor], vectors: Vectors) -> list[Tensor]:
    return _batched(_pulled_back, function, point, vectors)


def _pulled_back_twice(function: Function, point: Sequence[Tensor], vectors: Vectors) -> list[Tensor]:
    return _one_by_one(_pulled_back, function, point, vectors)


def _pulled_back(function: Function, vector: Sequence[Tensor]) -> Function:
    """The gradient is linear in what it is multiplied with: its own gradient there is the derivative."""

    def derivative(*point: Tensor) -> tuple[Tensor, ...]:
        results, pull = vjp(function, *point)[:2]
        push = vjp(lambda *weights: pull(weights), *(torch.zeros_like(result) for result in results))[1]
        return push(tuple(vector))

    return derivative


def _by_gradients(function: Function, point: Sequence[Tensor], vectors: Vectors) -> list[Tensor]:
    """The same in the graph itself, for functions that torch.func does not take."""
    if transforms_active():
        raise UnsupportedError("Taylor cannot follow this function inside of torch.func's transforms.")
    recording = torch.is_grad_enabled()
    with torch.enable_grad():
        # By another name: the vectors may have been made of the point, and are not to move with it.
        inputs = [p.view_as(p) if p.requires_grad else p.detach().requires_grad_() for p in point]
        found = _one_by_one(lambda f, vector: _in_the_graph(f, vector, len(vectors) + 1), function, inputs, vectors)
    return found if recording else [tensor.detach() for tensor in found]


def _in_the_graph(function: Function, vector: Sequence[Tensor], order: int) -> Function:
    def derivative(*point: Tensor) -> tuple[Tensor, ...]:
        results = function(*point)
        for result in results:
            refuse_what_is_hidden(result, order)
        weights = [torch.zeros_like(result).requires_grad_() for result in results]
        pulled = _gradients(results, point, weights)
        return _gradients(pulled, weights, vector)

    return derivative


def _gradients(values: Sequence[Tensor], of: Sequence[Tensor], weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
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
