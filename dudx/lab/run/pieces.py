"""Average a boundary condition over each closed piece of the boundary, rather than over the boundary as a whole.

One mean over the whole boundary gives a small hole the small share that it has of the length. A sum of one mean per
piece, the outer edge and each hole, gives all of them the same weight. Each point's residual is multiplied by
√(points in all / points on its piece): the mean square over all points is then the sum of the pieces' mean squares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dudx.lab.problems.conditions.variables import argument_names, with_arguments
from dudx.lab.problems.geometry import Cutout, Cylinder, Domain, Shape
from dudx.residual.residual_function import Residual

#: The name of the data that hold each point's factor.
FACTOR = "piece_factor"


class Pieces:
    """The closed pieces of a domain's boundary: the outer edge and the edge of each hole."""

    def __init__(self, domain: Domain):
        space = domain.space if isinstance(domain, Cylinder) else domain
        self.dimension = space.dimension
        self.shapes: tuple[Shape, ...] = (space.outside, *space.holes) if isinstance(space, Cutout) else ()
        self.space = space

    @property
    def several(self) -> bool:
        """True if there is more than one piece, so that the sum differs from the mean."""
        return len(self.shapes) > 1

    def numbers(self, points: Tensor) -> Tensor:
        """Return the number of each point's piece, (N,); points on no piece share the last number."""
        space = points[:, : self.dimension]
        distances = torch.stack([shape.signed_distance(space).abs() for shape in self.shapes])
        least, nearest = distances.min(dim=0)
        return nearest.masked_fill(least > self.space.tolerance(points.dtype, 1e-5), len(self.shapes))

    def factors(self, points: Tensor) -> Tensor:
        """Return the factor of each point's residual, (N, 1)."""
        numbers = self.numbers(points)
        counts = torch.bincount(numbers, minlength=len(self.shapes) + 1)
        return (len(points) / counts[numbers].to(points.dtype)).sqrt().unsqueeze(1)


def multiplied(residual: Residual) -> Residual:
    """Multiply a residual by the data named `FACTOR`."""
    asked = argument_names(residual.function)

    def function(given: Mapping[str, Any]) -> Any:
        factor = given[FACTOR]
        found = residual.function(**{name: given[name] for name in asked})
        return tuple(factor * one for one in found) if isinstance(found, tuple | list) else factor * found

    return Residual(
        with_arguments(function, (*asked, FACTOR)),
        residual.inputs,
        (*residual.data, FACTOR),
        networks=residual.networks,
        network_data=residual.network_data,
        functions=residual.functions,
    )
