"""Reference by Fourier modes."""

import numpy as np
from spectral import etdrk4, points_and_values


def solved(n=512, steps=4000):
    x = -1 + 2 * np.arange(n) / n
    start = np.stack([1 - np.exp(-80 * (x + 0.05) ** 2), np.exp(-80 * (x - 0.05) ** 2)])

    def linear(k):
        return np.stack([-1e-5 * k**2 - 0.04, -5e-6 * k**2 - 0.1])

    def reacted(w, k):
        u, v = np.fft.ifft(w, axis=1).real
        return np.fft.fft(np.stack([0.04 - u * v**2, u * v**2]), axis=1)

    return etdrk4(start, 2.0, linear, reacted, 100.0, steps, 100).real


def reference():
    return points_and_values(solved(), -1.0, 2.0, 100.0, 2)
