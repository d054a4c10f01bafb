"""Velocities on the centre lines of the cavity, as tabulated by Ghia, Ghia and Shin (J. Comput. Phys. 48, 1982)."""

import numpy as np

Y = [1, 0.9766, 0.9688, 0.9609, 0.9531, 0.8516, 0.7344, 0.6172, 0.5, 0.4531, 0.2813, 0.1719, 0.1016, 0.0703, 0.0625]
Y += [0.0547, 0]
U = {
    100: [1, 0.84123, 0.78871, 0.73722, 0.68717, 0.23151, 0.00332, -0.13641, -0.20581, -0.21090, -0.15662, -0.10150]
    + [-0.06434, -0.04775, -0.04192, -0.03717, 0],
    400: [1, 0.75837, 0.68439, 0.61756, 0.55892, 0.29093, 0.16256, 0.02135, -0.11477, -0.17119, -0.32726, -0.24299]
    + [-0.14612, -0.10338, -0.09266, -0.08186, 0],
}
X = [1, 0.9688, 0.9609, 0.9531, 0.9453, 0.9063, 0.8594, 0.8047, 0.5, 0.2344, 0.2266, 0.1563, 0.0938, 0.0781, 0.0703]
X += [0.0625, 0]
V = {
    100: [0, -0.05906, -0.07391, -0.08864, -0.10313, -0.16914, -0.22445, -0.24533, 0.05454, 0.17527, 0.17507, 0.16077]
    + [0.12317, 0.10890, 0.10091, 0.09233, 0],
    # The printed value -0.23827 at x = 0.9063 is inconsistent with its neighbours and omitted.
    400: [0, -0.12146, -0.15663, -0.19254, -0.22847, np.nan, -0.44993, -0.38598, 0.05186, 0.30174, 0.30203, 0.28124]
    + [0.22965, 0.20920, 0.19713, 0.18360, 0],
}


def velocities(reynolds):
    """Return points and (u, v, p) there; each line has only the velocity across it, the rest is NaN."""
    nothing = np.full(len(Y), np.nan)
    points = np.concatenate([np.stack([np.full(len(Y), 0.5), Y], 1), np.stack([X, np.full(len(X), 0.5)], 1)])
    along_y, along_x = np.stack([U[reynolds], nothing, nothing], 1), np.stack([nothing, V[reynolds], nothing], 1)
    return points, np.concatenate([along_y, along_x])
