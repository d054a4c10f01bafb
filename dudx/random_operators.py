"""Operators that are drawn at random, for equations in many dimensions."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from dudx import checks
from dudx.errors import InputError
from dudx.operators import Along, Operator


def random_laplacian(x: Tensor, samples: int = 1, kind: str = "axes", generator: Generator | None = None) -> Operator:
    """An operator whose expected value is the Laplacian: the mean of second derivatives along random vectors.

    Each point has vectors of its own. With E[v vᵀ] = 1 the second derivative along v is the Laplacian on average.

    Args:
        x: the points at which it will be evaluated, (B, d).
        samples: how many vectors a point has.
        kind: "axes" draws different axes, scaled by √d: no variance where all ∂²u/∂x_k² are equal, none at all for
            samples = d. "dense" draws vectors of ±1 (Hutchinson): no variance where the Hessian is diagonal.
        generator: makes the draws repeatable.

    Example:
        >>> x = torch.rand(10, 100)
        >>> estimate = dudx.random_laplacian(x, samples=8)
        >>> value = dudx.evaluate(lambda x: (x**2).sum(1, keepdim=True), x, estimate, dudx.Taylor())
        >>> torch.allclose(value, torch.full_like(value, 200.0))  # exact here: the same along every axis
        True
    """
    x = checks.points(x)
    checks.choice(kind, ("axes", "dense"), "kind")
    count, dimensions = x.shape
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise InputError(f"samples must be a whole number, 1 or more; got {samples!r}.")
    if kind == "axes" and samples > dimensions:
        raise InputError(f"There are only {dimensions} different axes to draw; got samples = {samples}.")
    device = x.device if generator is None else generator.device
    if kind == "dense":
        signs = torch.randint(0, 2, (samples, count, dimensions), generator=generator, device=device)
        vectors = (2 * signs - 1).to(x)
    else:
        # The largest of independent random numbers stand at random places, each without repetition.
        # A seed that the points were drawn with too gives the same numbers: moved, they are those of other coordinates.
        keys = torch.rand(count, dimensions, generator=generator, device=device).roll((1, 1), (0, 1))
        chosen = keys.topk(samples, dim=1).indices.T.to(x.device)
        vectors = torch.nn.functional.one_hot(chosen, dimensions).to(x) * dimensions**0.5
    total = Operator({})
    for vector in vectors:
        total = total + Along(vector, order=2) / samples
    return total
