"""Periodic equations u_t = L u + N(u) by Fourier modes and exponential time steps (Kassam and Trefethen, 2005)."""

import numpy as np


def etdrk4(start, length, linear, nonlinear, end, steps, keep):
    """Return snapshots (keep + 1, fields, n) from fields (fields, n); `linear` and `nonlinear` act on modes."""
    n = start.shape[1]
    k = 2 * np.pi / length * np.fft.fftfreq(n, 1 / n)
    h, rate = end / steps, np.asarray(linear(k))
    whole, half = np.exp(h * rate), np.exp(h * rate / 2)
    # Means over a circle in the complex plane avoid the cancellation near zero.
    z = h * rate[..., None] + np.exp(2j * np.pi * (np.arange(1, 65) - 0.5) / 64)

    def mean(values):
        found = h * values.mean(axis=-1)
        return found.real if np.isrealobj(rate) else found

    q = mean((np.exp(z / 2) - 1) / z)
    f1 = mean((-4 - z + np.exp(z) * (4 - 3 * z + z**2)) / z**3)
    f2 = mean((2 + z + np.exp(z) * (z - 2)) / z**3)
    f3 = mean((-4 - 3 * z - z**2 + np.exp(z) * (4 - z)) / z**3)
    v = np.fft.fft(start, axis=1)
    found = [start.astype(complex)]
    for step in range(1, steps + 1):
        now = nonlinear(v, k)
        a = half * v + q * now
        at_a = nonlinear(a, k)
        b = half * v + q * at_a
        at_b = nonlinear(b, k)
        c = half * a + q * (2 * at_b - now)
        v = whole * v + f1 * now + 2 * f2 * (at_a + at_b) + f3 * nonlinear(c, k)
        if step % (steps // keep) == 0:
            found.append(np.fft.ifft(v, axis=1))
    return np.array(found)


def points_and_values(snapshots, left, length, end, thin):
    """Return points (N, 2) and values (N, fields) of snapshots (times, fields, n), every `thin`-th column."""
    times, fields, n = snapshots.shape
    x, t = np.meshgrid(left + length * np.arange(0, n, thin) / n, np.linspace(0, end, times))
    values = snapshots[:, :, ::thin].transpose(0, 2, 1).reshape(-1, fields)
    return np.stack([x.ravel(), t.ravel()], axis=1), values
