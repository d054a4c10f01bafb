"""Tabulated velocities."""

from ghia import velocities


def reference():
    return velocities(100)
