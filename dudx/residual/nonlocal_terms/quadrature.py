"""Nodes and weights of integrals and fractional derivatives on the unit interval."""

from __future__ import annotations

from functools import lru_cache
from math import gamma

import numpy as np

Rule = tuple[np.ndarray, np.ndarray]


@lru_cache(maxsize=64)
def gauss(count: int) -> Rule:
    """Gauss-Legendre nodes and weights on [0, 1]: exact for polynomials up to the degree 2·count - 1."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2


@lru_cache(maxsize=64)
def grunwald(alpha: float, count: int) -> np.ndarray:
    """The Grünwald-Letnikov weights (-1)^k (α over k), k = 0 … count."""
    ratios = 1 - (alpha + 1) / np.arange(1, count + 1)
    return np.concatenate([[1.0], np.cumprod(ratios)])


@lru_cache(maxsize=64)
def caputo_l1(alpha: float, count: int, grading: float) -> Rule:
    """Weights of the Caputo derivative at 1, 0 < α < 1, of piecewise linear functions on the mesh (k / count)^grading.

    The error is of the order 2 - α in 1 / count for a smooth function, and for one that begins like t^α on a mesh
    graded by (2 - α) / α (Stynes et al. 2017).
    """
    mesh = (np.arange(count + 1) / count) ** grading
    share = -np.diff((1 - mesh) ** (1 - alpha)) / gamma(2 - alpha) / np.diff(mesh)
    weights = np.zeros(count + 1)
    weights[1:] += share
    weights[:-1] -= share
    return mesh, weights


@lru_cache(maxsize=64)
def caputo_grunwald(alpha: float, count: int) -> Rule:
    """Weights of the Caputo derivative at 1, 0 < α < 1, by Grünwald-Letnikov of u - u(0): of first order."""
    mesh = np.arange(count, -1, -1) / count  # from 1 down to 0
    weights = count**alpha * grunwald(alpha, count).copy()
    weights[-1] -= weights.sum()
    return mesh, weights


@lru_cache(maxsize=64)
def one_way(alpha: float, count: int) -> Rule:
    """Offsets and weights of the Riemann-Liouville derivative from a wall `count` steps away, for a step of one.

    The mean of the Grünwald-Letnikov formulas that are shifted by one node and not at all, in which the first order
    cancels (Tian, Zhou & Deng 2015): offsets go from one step beyond the point to the wall.
    """
    weights = alpha / 2 * grunwald(alpha, count + 1)
    weights[1:] += (2 - alpha) / 2 * grunwald(alpha, count)
    return np.arange(1, -count - 1, -1.0), weights
