"""Residuals against what a person would write without this library, and what they ask for."""

import torch
from helpers import points

from dudx import Residual


def gradient(value, x):
    """The plain idiom, column by column: what a person would write without this library."""
    (result,) = torch.autograd.grad(value, x, torch.ones_like(value), create_graph=True)
    return result.split(1, dim=1)


def asked(function, inputs=("x", "t"), **data):
    x = points(6, len(inputs))
    return Residual(function, inputs, data=tuple(data)).operators(x, **data)


def close(a, b):
    # Two orders of the same sums in double precision.
    torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
