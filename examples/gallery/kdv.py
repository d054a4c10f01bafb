"""The Korteweg-de Vries equation: a tall soliton overtakes a flat one."""

import torch

from dudx.lab import Dirichlet, Initial, Interval, Problem

K, B = (1.0, 1.6), (0.0, 6.0)


def two_solitons(x, t):
    """Two-soliton solution by Hirota's formula, 2 (log f)_xx."""
    e, g = (torch.exp(k * (x + b) - k**3 * t) for k, b in zip(K, B, strict=True))
    a, s = ((K[0] - K[1]) / (K[0] + K[1])) ** 2, K[0] + K[1]
    f, fx, fxx = (e * K[0] ** n + g * K[1] ** n + a * e * g * s**n + (n == 0) for n in range(3))
    return 2 * (f * fxx - fx**2) / f**2


problem = Problem(
    lambda u: u.t + 6 * u * u.x + u.xxx,
    inputs=("x", "t"),
    domain=Interval(-14, 20) * Interval(0, 6),
    conditions=[
        Initial(u=lambda x: two_solitons(x, 0 * x)),
        Dirichlet(u=two_solitons),
        Dirichlet(u_x=0.0, on="right"),
    ],
    title="Korteweg-de Vries, two solitons",
)
