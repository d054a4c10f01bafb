"""Hirota's two-soliton solution, with the exponentials scaled so that they do not overflow."""

import numpy as np

K, B = (1.0, 1.6), (0.0, 6.0)


def exact(x, t):
    p, q = (k * (x + b) - k**3 * t for k, b in zip(K, B, strict=True))
    a = ((K[0] - K[1]) / (K[0] + K[1])) ** 2
    exponents = np.stack([0 * p, p, q, p + q + np.log(a)])
    rates = np.array([0.0, K[0], K[1], K[0] + K[1]]).reshape(4, *[1] * np.ndim(x))
    weights = np.exp(exponents - exponents.max(axis=0))
    weights /= weights.sum(axis=0)
    # The second derivative of log Σ exp is the variance of the rates.
    return 2 * ((weights * rates**2).sum(axis=0) - (weights * rates).sum(axis=0) ** 2)


def reference():
    return exact
