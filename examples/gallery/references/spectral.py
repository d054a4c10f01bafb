"""Periodic equations u_t = L u + N(u) by Fourier modes and exponential time steps (Kassam and Trefethen, 2005)."""

import numpy as np


def exponential_steps(v, rate, nonlinear, h, steps):
    """Yield the modes v after each of the steps of length h of v' = rate v + nonlinear(v), rate an array."""
    whole, half = np.exp(h * rate), np.exp(h * rate / 2)
    q, f1, f2, f3 = _weights(h, np.asarray(rate))
    for _ in range(steps):
        now = nonlinear(v)
        a = half * v + q * now
        at_a = nonlinear(a)
        b = half * v + q * at_a
        at_b = nonlinear(b)
        c = half * a + q * (2 * at_b - now)
        v = whole * v + f1 * now + 2 * f2 * (at_a + at_b) + f3 * nonlinear(c)
        yield v


def _weights(h, rate, nodes=64):
    """Return the weights of the stages; means over a circle in the complex plane avoid the cancellation near zero."""
    found = np.zeros((4, *rate.shape), dtype=complex)
    for angle in np.pi * (2 * np.arange(nodes) + 1) / nodes:
        z = h * rate + np.exp(1j * angle)
        e = np.exp(z)
        found[0] += (np.exp(z / 2) - 1) / z
        found[1] += (-4 - z + e * (4 - 3 * z + z**2)) / z**3
        found[2] += (2 + z + e * (z - 2)) / z**3
        found[3] += (-4 - 3 * z - z**2 + e * (4 - z)) / z**3
    found *= h / nodes
    return found.real if np.isrealobj(rate) else found


def etdrk4(start, length, linear, nonlinear, end, steps, keep):
    """Return snapshots (keep + 1, fields, n) from fields (fields, n); `linear` and `nonlinear` act on modes."""
    n = start.shape[1]
    k = 2 * np.pi / length * np.fft.fftfreq(n, 1 / n)
    modes = exponential_steps(np.fft.fft(start, axis=1), linear(k), lambda v: nonlinear(v, k), end / steps, steps)
    kept = (v for step, v in enumerate(modes, 1) if step % (steps // keep) == 0)
    return np.array([start.astype(complex), *(np.fft.ifft(v, axis=1) for v in kept)])


def points_and_values(snapshots, left, length, end, thin):
    """Return points (N, 2) and values (N, fields) of snapshots (times, fields, n), every `thin`-th column."""
    times, fields, n = snapshots.shape
    x, t = np.meshgrid(left + length * np.arange(0, n, thin) / n, np.linspace(0, end, times))
    values = snapshots[:, :, ::thin].transpose(0, 2, 1).reshape(-1, fields)
    return np.stack([x.ravel(), t.ravel()], axis=1), values
