"""The functions among which the error of a network is sought: changes of the network, and random features.

Derivatives of the network in its parameters resolve the fronts that it has learned. Random features of many scales
resolve what it has not learned, such as a boundary layer that it missed.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Generator, Tensor, nn

from dudx.engines.interface import Engine
from dudx.lab.problems import Problem
from dudx.lab.run.error_points import near_boundary, where_it_matters
from dudx.lab.run.networks.assembled import assembled
from dudx.lab.run.networks.rescaling import Bounds
from dudx.optim import linearize
from dudx.residual.residual_function import Residual

#: Perturbation of the copy's weights, relative to the standard deviation of each tensor.
_DIFFERENCE = 0.1
#: Share of the directions that are random features.
_FEATURES = 0.5
#: Steepness of a feature relative to half of the domain's size, from the least up to this multiple of what the number
#: of features resolves.
_LEAST, _STEEP = 0.5, 3.0
#: Share of the features whose direction is an axis.
_ALONG_AXES = 1 / 3
#: A feature's direction is seen as a difference of points so close, relative to the domain.
_CLOSE = 1e-4
#: Entries per block of a Jacobian.
_AT_ONCE = 2**24


class Directions:
    """Linear space of changes of a network's functions, as columns of Jacobians.

    Args:
        problem: the problem.
        model: the network, which is not changed.
        engine: computes derivatives.
        count: the largest number of directions.
        generator: draws features and chooses derivatives of the network.

    Attributes:
        count: the number of directions.
        features: the columns that are random features.
    """

    def __init__(self, problem: Problem, model: nn.Module, engine: Engine, count: int, generator: Generator):
        parameter = next(model.parameters())
        number = max(1, int(_FEATURES * count / problem.outputs))
        features = _features(problem, model, engine, number, generator).to(parameter)
        tangents = [copy.deepcopy(model), _varied(model, generator)]
        self.engine, self.model = engine, _Moved(model, [*tangents, features])
        self.leaves = [leaf for part in (*tangents, features) for leaf in part.parameters()]
        of_network = sum(leaf.numel() for part in tangents for leaf in part.parameters())
        of_features = sum(leaf.numel() for leaf in features.parameters())
        some = torch.randperm(of_network, generator=generator, device=parameter.device)[: max(1, count - of_features)]
        self.chosen = torch.cat([some.sort().values, torch.arange(of_features, device=some.device) + of_network])
        self.features, self.count = slice(len(some), len(self.chosen)), len(self.chosen)
        self._rows = max(1, _AT_ONCE // sum(leaf.numel() for leaf in self.leaves))

    def of(self, residual: Residual, x: Tensor, data: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return residuals (equations, N) and their derivatives (equations, N, directions), in float64."""
        found = []
        for start in range(0, len(x), self._rows):
            some = slice(start, start + self._rows)
            given = {key: value[some] for key, value in data.items()}
            r, j = linearize(residual, self.model, x[some], self.engine, self.leaves, data=given)
            rows = j.dense()[:, self.chosen].double()
            found.append((r.double().unflatten(0, (-1, len(x[some]))), rows.unflatten(0, (-1, len(x[some])))))
        values, rows = zip(*found, strict=True)
        return torch.cat(values, dim=1), torch.cat(rows, dim=1)

    def values(self, residual: Residual, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the unknown functions (outputs, N) of a problem's residual, and the directions as functions."""
        return self.of(_values(residual), x, {})


class _Moved(nn.Module):
    """u(x) plus the changes of other networks, whose parameters may vary."""

    def __init__(self, model: nn.Module, parts: list[nn.Module]):
        super().__init__()
        self.model = copy.deepcopy(model).requires_grad_(False)
        self.moving = nn.ModuleList(parts).requires_grad_(True)
        self.still = copy.deepcopy(self.moving).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        u = self.model(x)
        for moving, still in zip(self.moving, self.still, strict=True):
            u = u + (moving(x) - still(x))
        return u


@torch.no_grad()
def _varied(model: nn.Module, generator: Generator) -> nn.Module:
    varied = copy.deepcopy(model)
    for leaf in varied.parameters():
        noise = torch.randn(leaf.shape, generator=generator, device=leaf.device, dtype=leaf.dtype)
        leaf.add_(_DIFFERENCE * leaf.std(correction=0) * noise)
    return varied


def _values(residual: Residual) -> Residual:
    """Return a residual whose values are the unknown functions themselves."""

    def outputs(**fields: Any) -> tuple[Any, ...]:
        return tuple(fields.values())

    keyword = inspect.Parameter.KEYWORD_ONLY
    outputs.__signature__ = inspect.Signature([inspect.Parameter(n, keyword) for n in residual.outputs])  # type: ignore[attr-defined]
    return Residual(outputs, residual.inputs)


class RandomFeatures(nn.Module):
    """Sums of tanh functions with given centres and random steepness; only the factors of the sum are parameters."""

    weight: Tensor
    bias: Tensor

    def __init__(self, inputs: int, outputs: int, centres: int, generator: Generator):
        super().__init__()
        self.generator = generator
        self.register_buffer("weight", torch.zeros(centres, inputs, dtype=torch.float64, device=generator.device))
        self.register_buffer("bias", torch.zeros(centres, dtype=torch.float64, device=generator.device))
        self.last = nn.Linear(centres, outputs, dtype=torch.float64, device=generator.device)
        self.drawn = False

    def forward(self, x: Tensor) -> Tensor:
        if not self.drawn:
            self._draw(x)
            self.drawn = True
        return self.last(torch.tanh(nn.functional.linear(x, self.weight, self.bias)))

    @torch.no_grad()
    def _draw(self, x: Tensor) -> None:
        """Take the first half of the points as centres, and the way from there to the second half as directions."""
        centres, others = x.chunk(2)
        count, inputs = centres.shape
        half = (centres.amax(0) - centres.amin(0)).clamp(min=1e-300) / 2
        way = (others - centres) / half
        unit = way / way.norm(dim=1, keepdim=True).clamp(min=1e-300)
        drawn = {"generator": self.generator, "device": x.device, "dtype": x.dtype}
        most = max(1.0, _STEEP * count ** (1 / inputs))
        steepness = _LEAST * torch.exp(torch.rand(count, 1, **drawn) * math.log(most / _LEAST))
        self.weight.copy_(steepness * unit / half)
        self.bias.copy_(-(self.weight * centres).sum(1))
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)


@torch.no_grad()
def _features(problem: Problem, model: nn.Module, engine: Engine, count: int, generator: Generator) -> nn.Module:
    """Return features in the form that the problem gives to a network: periodic, with conditions by construction.

    A third of the centres is spread evenly, a third is where the residual is large, and a third near the boundary with
    the directions of its normals.
    """
    made: list[RandomFeatures] = []

    def make(inputs: int, outputs: int, bounds: Bounds | None) -> nn.Module:
        made.append(RandomFeatures(inputs, outputs, count, generator))
        return made[-1]

    whole = assembled(problem, make, None)
    device = generator.device
    third = count // 3
    pool = problem.domain.sample(4 * count, generator, device, torch.float64)
    like = next(model.parameters()).dtype
    large = where_it_matters(problem.residual, model, pool.to(like), engine, {}, third, generator)[0]
    low, high = (pool.new_tensor(corner) for corner in problem.domain.bounds)
    edge, normals = near_boundary(problem.domain, third, generator)
    inside = torch.cat(
        [pool[large], problem.domain.sample(count - third - len(edge), generator, device, torch.float64)]
    )
    ways = torch.randn(inside.shape, generator=generator, device=device, dtype=torch.float64)
    along = torch.rand(len(inside), generator=generator, device=device) < _ALONG_AXES
    axes = torch.randint(inside.shape[1], (len(inside),), generator=generator, device=device)
    ways[along] = nn.functional.one_hot(axes[along], inside.shape[1]).double()
    centres = torch.cat([inside, edge])
    whole(torch.cat([centres, centres + _CLOSE * torch.cat([ways * (high - low), normals * (high - low).amax()])]))
    return whole
