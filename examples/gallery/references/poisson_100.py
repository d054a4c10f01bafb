"""Exact solution."""

import numpy as np


def exact(points):
    s = points.sum(axis=1) / 10
    return s**2 + np.sin(s)


def reference():
    return exact
