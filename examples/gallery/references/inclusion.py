"""The exact solution: a uniform gradient inside, that of a dipole added outside; each where it is meant."""

import numpy as np


def exact(x, y):
    r2 = x**2 + y**2
    outside = r2 > 0.25
    u = x * (1 - 9 / 11 * 0.25 / np.maximum(r2, 1e-9))
    return np.where(outside, u, np.nan), np.where(outside, np.nan, 2 / 11 * x)


def reference():
    return exact
