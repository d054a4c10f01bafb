"""Derivatives of a function along vectors, by the fastest method of torch that is right for this function.

Not all of torch's derivative formulas can be differentiated again. Some raise an error; others are silently wrong, such
as those that treat a factorisation as constant. So when a function is first used, each method is compared with plain
gradients at random vectors, including its own gradient with respect to point and vectors.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from dudx.backend.active_modes import transforms_active
from dudx.engines.taylor import derivative_methods as methods
from dudx.engines.taylor.derivative_methods import Function, Method, Vectors
from dudx.errors import DudxError, UnsupportedError, first_line

#: Methods that may be right, from the fastest.
_METHODS = (methods.forward_batched, methods.forward, methods.double_backward_batched, methods.double_backward)

_DOUBLE = (torch.float64, torch.complex128)

#: The method that was found right, by function and order.
_known: dict[Hashable, Method] = {}


class DirectionalDerivatives:
    """Derivatives of a function at a point along rows of vectors.

    Args:
        function: takes tensors and returns a tuple of tensors.
        point: the arguments of the function.
        name: name of the function for error messages.
        key: functions with equal keys share a method.
        gradient: the function defines its gradient itself, which is then its only derivative.
    """

    def __init__(self, function: Function, point: Sequence[Tensor], name: str, key: Hashable, gradient: bool):
        self.function, self.point, self.name, self.key, self.gradient = function, point, name, key, gradient

    def __call__(self, vectors: Vectors) -> list[Tensor]:
        key = (self.key, len(vectors))
        method = _known.get(key)
        if method is None:
            method = self._in_double()._right_method(vectors)
            _known[key] = method
        return method(self.function, self.point, vectors)

    def _in_double(self) -> DirectionalDerivatives:
        """Return the same object at a point in double precision; itself if that is not possible.

        In single precision, right methods may differ by as much as wrong ones do, for instance near a division.
        """
        wide = [p.detach().to(torch.promote_types(p.dtype, torch.float64)) for p in self.point]
        try:
            with torch.no_grad():
                results = self.function(*wide)
        except (RuntimeError, TypeError, ValueError):  # other arguments have the dtype of the point
            return self
        if self.gradient or transforms_active() or any(r.dtype not in _DOUBLE for r in results):
            return self
        return DirectionalDerivatives(self.function, wide, self.name, self.key, self.gradient)

    def _right_method(self, vectors: Vectors) -> Method:
        if self.gradient:
            return methods.gradients
        probe = self._probe(vectors)
        reference, reason = self._attempted(
            methods.double_backward if transforms_active() else methods.gradients, probe
        )
        if reference is None and reason == "":
            raise UnsupportedError(
                f"Torch knows no derivative of {self.name}: write it with functions it can differentiate, or add a "
                f"rule with @dudx.taylor_rule({self.name})."
            )
        for method in _METHODS:
            found, failed = self._attempted(method, probe)
            reason = reason or failed
            if found is not None and (reference is None or _agree(found, reference)):
                if reference is None and not self._agrees_with_differences(found, probe):
                    continue
                return method
        if reference is not None:
            return methods.gradients
        raise UnsupportedError(
            f"Taylor has no rule for {self.name}, and torch cannot differentiate it to the requested order ({reason}): "
            f"use dudx.AD() for this network, or add a rule with @dudx.taylor_rule({self.name})."
        )

    def _probe(self, vectors: Vectors) -> Vectors:
        """Return one row of random vectors. Streams of jets may be zero, for which every method is right."""
        generator = torch.Generator(self.point[0].device).manual_seed(len(vectors))

        def random(like: Tensor) -> Tensor:
            vector = torch.randn((1, *like.shape), dtype=like.dtype, device=like.device, generator=generator)
            return vector if transforms_active() else vector.requires_grad_()

        return [[random(p) for p in self.point] for _ in vectors]

    def _attempted(self, method: Method, probe: Vectors) -> tuple[list[Tensor] | None, str]:
        """Return the derivative and its gradient by a method; or None and the error, which is "" without a graph."""
        try:
            with torch.enable_grad():
                point = [p.detach().requires_grad_() for p in self.point] if not transforms_active() else self.point
                if not transforms_active() and not any(r.requires_grad for r in self.function(*point)):
                    return None, ""
                found = method(self.function, point, probe)
                if transforms_active():
                    return found, ""
                attached = [f for f in found if f.requires_grad]
                weighted = sum(
                    ((f * _weights(f)).sum().abs() for f in attached), torch.zeros((), device=found[0].device)
                )
                of = [*point, *(stack for vector in probe for stack in vector)]
                slopes = (
                    torch.autograd.grad(weighted, of, materialize_grads=True)
                    if attached
                    else [torch.zeros_like(tensor) for tensor in of]
                )
                return [*(f.detach() for f in found), *slopes], ""
        except (DudxError, torch.cuda.OutOfMemoryError):
            raise
        except (RuntimeError, TypeError, ValueError) as error:
            return None, first_line(error)

    def _agrees_with_differences(self, found: list[Tensor], probe: Vectors) -> bool:
        """Compare with a central difference along the last vector, where no gradients exist to compare with."""
        *rest, last = probe
        eps = torch.finfo(self.point[0].dtype).eps
        step = eps ** (1 / 3)
        sides = []
        for sign in (1, -1):
            moved = [p + sign * step * v[0] for p, v in zip(self.point, last, strict=True)]
            lower = methods.forward(self.function, moved, rest) if rest else [r[None] for r in self.function(*moved)]
            sides.append(lower)
        for value, up, down in zip(found, *sides, strict=False):
            error = (value - (up - down) / (2 * step)).abs().max()
            if not float(error) <= 100 * eps ** (2 / 3) * (1 + float(value.abs().max())) * 100:
                return False
        return True


def _weights(like: Tensor) -> Tensor:
    """Return different weights for all entries, so that errors do not cancel."""
    return torch.linspace(1, 2, like.numel(), dtype=like.real.dtype, device=like.device).reshape(like.shape)


def _agree(found: list[Tensor], reference: list[Tensor]) -> bool:
    """Return True if all tensors agree to half of their digits, which wrong formulas do not."""
    for a, b in zip(found, reference, strict=True):
        tolerance = torch.finfo(a.dtype).eps ** 0.5
        if not bool(((a - b).abs() <= tolerance * (1 + b.abs().max())).all()):
            return False
    return len(found) == len(reference)
