"""A network for a problem that says more of its unknown functions than how many there are.

Some may be periodic, some may depend on fewer inputs than others, and some conditions may hold by construction. Any
network can be used in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from dudx.lab.problems import Problem
from dudx.lab.run.networks.rescaling import Bounds, Rescale

#: A network of so many inputs and outputs, with the corners that its inputs are to be rescaled from.
Make = Callable[[int, int, Bounds | None], nn.Module]


def assembled(problem: Problem, make: Make, bounds: Bounds | None) -> nn.Module:
    """The network itself where nothing is to be added."""
    imposed = problem.hard_conditions()
    if not problem.periodic and not problem.functions and imposed is None:
        return make(len(problem.inputs), problem.outputs, bounds)
    shared = [i for i, name in enumerate(problem.names) if name not in problem.functions]
    groups = [(shared, list(range(len(problem.inputs))))] if shared else []
    for name, inputs in problem.functions.items():
        groups.append(([problem.names.index(name)], [problem.inputs.index(i) for i in inputs]))
    parts = [_Some(problem, axes, len(outputs), make, bounds) for outputs, axes in groups]
    return Assembled(parts, [output for outputs, _ in groups for output in outputs], imposed)


class Assembled(nn.Module):
    """Networks of some of the inputs side by side, and then what lets conditions hold."""

    def __init__(self, parts: list[_Some], order: list[int], imposed: nn.Module | None):
        super().__init__()
        self.parts, self.imposed = nn.ModuleList(parts), imposed
        #: The place of each output among the parts' columns.
        self.places = [order.index(number) for number in range(len(order))]

    def forward(self, x: Tensor) -> Tensor:
        return self._outputs(x) if self.imposed is None else self.imposed(x, self._outputs)

    def _outputs(self, x: Tensor) -> Tensor:
        found = self.parts[0](x) if len(self.parts) == 1 else torch.cat([part(x) for part in self.parts], dim=1)
        if self.places != sorted(self.places):
            found = torch.cat([found[:, place : place + 1] for place in self.places], dim=1)
        return found


class _Some(nn.Module):
    """A network of some of the inputs, where those along which it is periodic are seen as cosine and sine."""

    def __init__(self, problem: Problem, axes: list[int], outputs: int, make: Make, bounds: Bounds | None):
        super().__init__()
        self.axes, self.all = axes, len(axes) == len(problem.inputs)
        self.periodic = [place for place, axis in enumerate(axes) if axis in problem.periodic]
        self.open = [place for place in range(len(axes)) if place not in self.periodic]
        low, high = problem.domain.bounds
        own: Bounds = [low[axis] for axis in axes], [high[axis] for axis in axes]
        if self.periodic:
            self.rescale: nn.Module | None = Rescale(own)
            self.network = make(len(axes) + len(self.periodic), outputs, None)
        else:
            self.rescale = None
            self.network = make(len(axes), outputs, None if bounds is None else own)

    def forward(self, x: Tensor) -> Tensor:
        if not self.all:
            x = torch.cat([x[:, axis : axis + 1] for axis in self.axes], dim=1)
        if self.rescale is not None:
            z = self.rescale(x)
            columns = [z[:, place : place + 1] for place in self.open]
            for place in self.periodic:
                angle = math.pi * z[:, place : place + 1]
                columns += [torch.cos(angle), torch.sin(angle)]
            x = torch.cat(columns, dim=1)
        return self.network(x)
