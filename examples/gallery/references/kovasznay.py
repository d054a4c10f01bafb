"""Exact solution (Kovasznay, 1948)."""

import numpy as np

LAMBDA = 20 - np.sqrt(400 + 4 * np.pi**2)


def exact(x, y):
    e = np.exp(LAMBDA * x)
    u = 1 - e * np.cos(2 * np.pi * y)
    v = LAMBDA / (2 * np.pi) * e * np.sin(2 * np.pi * y)
    return u, v, (1 - e * e) / 2


def reference():
    return exact
