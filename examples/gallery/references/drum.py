"""Exact solution, a Bessel function; the eigenvalue is the square of its first zero, 2.404826."""

import numpy as np
from scipy.special import j0, jn_zeros

UNKNOWNS = {"tone": float(jn_zeros(0, 1)[0] ** 2)}


def reference():
    return lambda x, y: j0(jn_zeros(0, 1)[0] * np.hypot(x, y))
