"""Reference by a Runge-Kutta method of order 8 with tight tolerances."""

import numpy as np
from scipy.integrate import solve_ivp


def derivative(t, s):
    a, b, c = s
    return [10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c]


def reference():
    t = np.linspace(0, 3, 1201)
    found = solve_ivp(derivative, (0, 3), [-8.0, 7.0, 27.0], "DOP853", t, rtol=1e-12, atol=1e-12)
    return t[:, None], found.y.T
