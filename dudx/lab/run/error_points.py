"""Points of an error estimate: more of them near the boundary and where residuals are large."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Generator, Tensor, nn

from dudx.engines.interface import Engine
from dudx.lab.problems.geometry import Cylinder, Domain
from dudx.residual.residual_function import Residual

#: Share of the candidate points near the boundary, and their distances to it, relative to the size of the domain.
NEAR = 0.35
_NEAREST, _FARTHEST = 1e-5, 0.3
#: With more inputs than this, all points are near the boundary.
_MANY = 6
#: Points per batch of residuals.
_ROWS = 2**13


def interior_points(domain: Domain, count: int, generator: Generator, dtype: torch.dtype) -> Tensor:
    """Draw points (N, d), a part of them near the boundary, where layers are."""
    near, _ = near_boundary(domain, int(NEAR * count), generator)
    even = domain.sample(count - len(near), generator, generator.device, dtype)
    return torch.cat([even, near.to(dtype)])


def near_boundary(domain: Domain, count: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Draw at most `count` points whose distances to the boundary are of all magnitudes, with the boundary's normals.

    In many dimensions there are none.
    """
    device, size = generator.device, max(b - a for a, b in zip(*_space(domain).bounds, strict=True))
    if domain.dimension > _MANY:
        nothing = torch.zeros(0, domain.dimension, device=device, dtype=torch.float64)
        return nothing, nothing
    drawn = domain.sample_boundary(2 * count + 2, generator, device, torch.float64)
    unit = torch.rand(len(drawn.points), 1, generator=generator, device=device, dtype=torch.float64)
    inward = drawn.points - size * _NEAREST * torch.exp(unit * math.log(_FARTHEST / _NEAREST)) * drawn.normals
    inside = domain.contains(inward).nonzero()[:count, 0]
    return inward[inside], drawn.normals[inside]


def _space(domain: Domain) -> Domain:
    return domain.space if isinstance(domain, Cylinder) else domain


def boundary_factors(domain: Domain, x: Tensor, factors: Tensor) -> Tensor:
    """Multiply the factors of residuals at `interior_points` by one over the density of the points there.

    The density is a + b / d at the distance d to the boundary, with b such that the points stand for the whole volume.
    Factors are squared in the sum, so squares near the boundary count in proportion to d: a source close to a boundary
    with a given value changes the solution as little.
    """
    if domain.dimension > _MANY:
        return factors
    space = _space(domain)
    distance = -space.signed_distance(x[:, : space.dimension]).double()
    size = max(b - a for a, b in zip(*space.bounds, strict=True))
    inverse = size / distance.clamp(min=_NEAREST * size)
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        covered = (factors / (1 - NEAR + NEAR * math.exp(middle) * inverse)).mean()
        low, high = (middle, high) if covered > factors.mean() else (low, middle)
    return factors / (1 - NEAR + NEAR * math.exp(low) * inverse)


def where_it_matters(
    residual: Residual,
    model: nn.Module,
    x: Tensor,
    engine: Engine,
    data: Mapping[str, Tensor],
    count: int,
    generator: Generator,
) -> tuple[Tensor, Tensor]:
    """Choose points, more of them where the residual is large, and the factors of their residuals.

    Residuals far above the mean count by their size rather than by their square. Else those of a corner or of the first
    moment, which are large and matter little to the solution, would hide all others.
    """
    sizes = []
    with torch.no_grad():
        for start in range(0, len(x), _ROWS):
            some = slice(start, start + _ROWS)
            given = {key: value[some] for key, value in data.items()}
            returned = residual(model, x[some], engine, **given)
            equations = returned if isinstance(returned, tuple) else (returned,)
            sizes.append(torch.cat(equations, dim=1).double().norm(dim=1))
    size = torch.cat(sizes)
    density = 0.5 + 0.5 * size / size.mean().clamp(min=1e-300)
    chosen = torch.multinomial(density, count, generator=generator)
    return chosen, 1 / density[chosen]
