"""Operators with their closed forms, for functions that know their own derivatives."""

import pytest
import torch

from dudx import Along, D, Laplacian


def cases(dimensions):
    """Each operator, made for the points x and vectors v, with its closed form for a function f."""
    last = dimensions - 1
    table = {
        "value": (lambda v: D(), lambda f, x, v: f.partial(x)),
        "zero": (lambda v: 0 * D(0), lambda f, x, v: 0 * f(x)),
        "laplacian": (lambda v: Laplacian(), lambda f, x, v: f.laplacian(x)),
        "biharmonic": (lambda v: Laplacian() @ Laplacian(), lambda f, x, v: f.biharmonic(x)),
        "combination": (
            lambda v: 2 * D() - 0.5 * D(last) + 3 * D(0, 0),
            lambda f, x, v: 2 * f(x) - 0.5 * f.partial(x, last) + 3 * f.partial(x, 0, 0),
        ),
        "robin": (lambda v: Along(v) + 1.5 * D(), lambda f, x, v: f.along(x, v, 1) + 1.5 * f(x)),
    }
    for order in range(1, 5):
        for axis in {0, last} if order < 3 else {last}:
            name = f"order {order} on axis {axis}"
            table[name] = (
                lambda v, axes=(axis,) * order: D(*axes),
                lambda f, x, v, axes=(axis,) * order: f.partial(x, *axes),
            )
    for order in range(1, 4):
        table[f"along, order {order}"] = (
            lambda v, order=order: Along(v, order),
            lambda f, x, v, order=order: f.along(x, v, order),
        )
    if dimensions > 1:
        table["mixed 01"] = (lambda v: D(0, 1), lambda f, x, v: f.partial(x, 0, 1))
        table["mixed 001"] = (lambda v: D(0, 1, 0), lambda f, x, v: f.partial(x, 0, 0, 1))
        table["mixed 0011"] = (lambda v: D(0, 0, 1, 1), lambda f, x, v: f.partial(x, 0, 0, 1, 1))
    if dimensions > 2:
        table["mixed 012"] = (lambda v: D(2, 0, 1), lambda f, x, v: f.partial(x, 0, 1, 2))
        table["part of a laplacian"] = (
            lambda v: Laplacian([0, 2]),
            lambda f, x, v: f.partial(x, 0, 0) + f.partial(x, 2, 2),
        )
    return table


def grid(functions):
    return [
        pytest.param(f, *case, id=f"{name}: {label}")
        for name, f in functions.items()
        for label, case in cases(f.dimensions).items()
    ]


def vectors(x):
    """Vectors of lengths between 0.1 and 2, so that an engine that takes them for unit vectors is found out."""
    generator = torch.Generator().manual_seed(1)
    v = torch.randn(x.shape, generator=generator, dtype=x.dtype)
    return v / v.norm(dim=1, keepdim=True) * torch.linspace(0.1, 2, len(x), dtype=x.dtype).unsqueeze(1)
