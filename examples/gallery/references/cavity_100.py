"""Tabulated velocities by Ghia, Ghia and Shin."""

from ghia import velocities


def reference():
    return velocities(100)
