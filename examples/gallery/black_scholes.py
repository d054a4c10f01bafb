"""Black-Scholes equation for an option on 20 correlated assets, in log prices and time to expiry."""

import torch

from dudx.lab import Box, Dirichlet, Initial, Interval, Problem

N, SIGMA, RHO, RATE = 20, 0.3, 0.5, 0.05
NAMES = [f"x{i}" for i in range(N)]
ALL = SIGMA**2 * (1 / N + RHO * (1 - 1 / N))  # variance of the mean of log prices


def price(points):
    """Price of a call on the geometric mean with strike 1."""
    m, t = points[:, :N].mean(dim=1, keepdim=True), points[:, N:]
    drift, spread = m + (RATE - SIGMA**2 / 2) * t, torch.sqrt(ALL * t.clamp(min=1e-12))
    normal = torch.special.ndtr
    forward = torch.exp(drift + ALL * t / 2) * normal((drift + ALL * t) / spread)
    return torch.exp(-RATE * t) * (forward - normal(drift / spread))


def equation(u, points):
    mean = torch.ones_like(points)
    mean[:, N] = 0
    diffusion = (1 - RHO) * u.laplacian(*NAMES) + RHO * u.along(mean, 2)
    return u.t - SIGMA**2 / 2 * diffusion - (RATE - SIGMA**2 / 2) * u.along(mean) + RATE * u


problem = Problem(
    equation,
    inputs=(*NAMES, "t"),
    domain=Box([-0.5] * N, [0.5] * N) * Interval(0, 1),
    conditions=[Initial(u=price), Dirichlet(u=price)],
    title="Black-Scholes, 20 assets",
)
