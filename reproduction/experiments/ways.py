"""The methods that are compared with one another, and how each is made for a problem."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator

import dudx
from dudx.lab.problems.geometry import Box, Cylinder
from reproduction.experiments.small import Task

#: How far from the boundary automatic differentiation takes over, and the distance of CAN's neighbours, by the
#: domain's size.
_NEAR, _NEIGHBOURS = 0.05, 0.02


def _everywhere(task: Task) -> str:
    return ""


@dataclass(frozen=True)
class Way:
    """A method: what it is called, its engine, and what else it needs."""

    label: str
    #: From a task and a generator of random numbers.
    engine: Callable[[Task, Generator], dudx.Engine]
    #: Why it does not apply to a task; empty where it does.
    unfit: Callable[[Task], str] = _everywhere
    #: Whether it has points of its own, at which the equation is asked for; conditions are then left to AD.
    own_points: bool = False
    #: Whether the network is a separable one.
    separable: bool = False


def _size(task: Task) -> float:
    low, high = task.domain.bounds
    return min(b - a for a, b in zip(low, high, strict=True))


def _by_axis(task: Task) -> dudx.Engine:
    last = task.points.shape[1] - 1
    return dudx.ByAxis({tuple(range(last)): dudx.FD(), last: dudx.AD()}, other=dudx.AD())


def _hybrid(task: Task) -> dudx.Engine:
    near = _NEAR * _size(task)
    # Told to ignore coupling, which there is none of, it asks both engines at all points: whose gradient a row belongs
    # to is then known at once, and each sample's gradient need not be computed by itself. But where a network is
    # not defined outside, differences must not be asked for near the boundary.
    coupled = "ignore" if task.defined_outside else "refuse"
    ad, fd = dudx.AD(coupled=coupled), dudx.FD(coupled=coupled)
    return dudx.Where(lambda x: task.domain.signed_distance(x) > -near, ad, fd)


def _no_box(task: Task) -> str:
    space = task.domain.space if isinstance(task.domain, Cylinder) else task.domain
    box = isinstance(space, Box) or space.dimension == 1
    return "" if box else "its points are a grid, and the domain is not a box"


def _nodes(task: Task) -> list[int]:
    """How many lines of a grid of about as many points as are asked for cross each axis, at equal distances."""
    lengths = [b - a for a, b in zip(*task.domain.bounds, strict=True)]
    distance = (math.prod(lengths) / task.count) ** (1 / len(lengths))
    return [round(length / distance) for length in lengths]


def _spectral(task: Task) -> dudx.Engine:
    return dudx.Spectral(task.domain, [count - 1 for count in _nodes(task)])


def _separated(task: Task) -> dudx.Engine:
    lines = zip(*task.domain.bounds, _nodes(task), strict=True)
    return dudx.Separated([torch.linspace(low, high, count, dtype=torch.float64) for low, high, count in lines])


def _cloud(task: Task, generator: Generator) -> dudx.Engine:
    """Even points that stay for the whole training."""
    return dudx.Cloud(task.domain.sobol(task.count, seed=generator.initial_seed(), dtype=torch.float64))


def _independent(task: Task) -> str:
    return "samples are independent here, so that it computes what AD does, with the work of a batch for each point"


WAYS: dict[str, Way] = {
    "ad": Way("AD", lambda task, g: dudx.AD()),
    "per-sample": Way("PerSampleAD", lambda task, g: dudx.PerSampleAD(), _independent),
    "taylor": Way("Taylor", lambda task, g: dudx.Taylor()),
    "fd": Way("FD", lambda task, g: dudx.FD()),
    "efd": Way("eFD", lambda task, g: dudx.EFD()),
    "sfd": Way("sFD", lambda task, g: dudx.SFD(generator=g)),
    "efd-inside": Way("eFD inside", lambda task, g: dudx.EFD(inside=task.domain)),
    "hybrid": Way("Where: AD or FD", lambda task, g: _hybrid(task)),
    "by-axis": Way("ByAxis: AD and FD", lambda task, g: _by_axis(task)),
    "auto": Way("Auto", lambda task, g: dudx.Auto()),
    "can": Way("CAN", lambda task, g: dudx.CAN(_NEIGHBOURS * _size(task))),
    "cloud": Way("Cloud", _cloud, own_points=True),
    "spectral": Way("Spectral", lambda task, g: _spectral(task), _no_box, own_points=True),
    "separated": Way("Separated", lambda task, g: _separated(task), _no_box, own_points=True, separable=True),
    "separable": Way("Taylor, separable network", lambda task, g: dudx.Taylor(), separable=True),
    "stde": Way("STDE", lambda task, g: dudx.STDE(samples=1, generator=g)),
}

#: What a reader has to know of them.
NOTE = (
    f"eFD inside never looks outside of the domain; Where takes AD near the boundary, within {_NEAR:g} of the domain's "
    "size, and FD elsewhere; ByAxis takes AD along the last axis, FD along the others; STDE has one sample a "
    "point. Cloud, Spectral and Separated have points of their own, as many as the others, that stay, and "
    "AD for the conditions. A separable network has other parameters and as many products as the other one is wide."
)
