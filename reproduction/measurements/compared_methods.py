"""Methods of differentiation that the short trainings compare, and the engine of each for a problem."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator

import dudx
from dudx.lab.problems.geometry import Box, Cylinder
from reproduction.measurements.short_training import Task


def _always_fits(task: Task) -> str:
    return ""


@dataclass(frozen=True)
class ComparedMethod:
    """Method with its label, its engine, and what else it needs.

    Attributes:
        label: name in tables.
        engine: from a task and a generator of random numbers.
        unfit: reason why it does not apply to a task; empty if it does.
        own_points: it has points of its own, at which the equation is evaluated; conditions are then left to AD.
        separable: the network is a separable one.
    """

    label: str
    engine: Callable[[Task, Generator], dudx.Engine]
    unfit: Callable[[Task], str] = _always_fits
    own_points: bool = False
    separable: bool = False


def _no_box(task: Task) -> str:
    space = task.domain.space if isinstance(task.domain, Cylinder) else task.domain
    box = isinstance(space, Box) or space.dimension == 1
    return "" if box else "its points are a grid, and the domain is not a box"


def _nodes(task: Task) -> list[int]:
    """Nodes per axis of an even grid with about as many points as the task has."""
    lengths = [b - a for a, b in zip(*task.domain.bounds, strict=True)]
    distance = (math.prod(lengths) / task.count) ** (1 / len(lengths))
    return [round(length / distance) for length in lengths]


def _separated(task: Task) -> dudx.Engine:
    lines = zip(*task.domain.bounds, _nodes(task), strict=True)
    return dudx.Separated([torch.linspace(low, high, count, dtype=torch.float64) for low, high, count in lines])


def _independent(task: Task) -> str:
    return "samples are independent here, so that it computes what AD does, with the work of a batch for each point"


METHODS: dict[str, ComparedMethod] = {
    "ad": ComparedMethod("AD", lambda task, g: dudx.AD()),
    "per-sample": ComparedMethod("PerSampleAD", lambda task, g: dudx.PerSampleAD(), _independent),
    "taylor": ComparedMethod("Taylor", lambda task, g: dudx.Taylor()),
    "fd": ComparedMethod("FD", lambda task, g: dudx.FD()),
    "efd": ComparedMethod("eFD", lambda task, g: dudx.EFD()),
    "sfd": ComparedMethod("sFD", lambda task, g: dudx.SFD(generator=g)),
    "efd-inside": ComparedMethod("eFD inside", lambda task, g: dudx.EFD(inside=task.domain)),
    "separated": ComparedMethod(
        "Separated", lambda task, g: _separated(task), _no_box, own_points=True, separable=True
    ),
    "separable": ComparedMethod("Taylor, separable network", lambda task, g: dudx.Taylor(), separable=True),
    "stde": ComparedMethod("STDE", lambda task, g: dudx.STDE(samples=1, generator=g)),
}

#: Remarks for readers.
NOTE = (
    "eFD inside never looks outside of the domain; STDE has one sample per point. Separated has points of its own, as "
    "many as the others, that stay, and AD for the conditions. A separable network has other parameters and as many "
    "products as the other one is wide."
)
