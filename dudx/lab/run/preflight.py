"""Refuse settings beyond this machine's memory or cores before training starts."""

from __future__ import annotations

import os

from dudx.errors import InputError
from dudx.lab.problems import Problem
from dudx.lab.problems.default_device import check_default_device
from dudx.lab.run.networks import networks
from dudx.lab.run.settings import Settings

_MOST_THREADS = 256


def check_machine(problem: Problem, settings: Settings) -> None:
    """Refuse settings that need more memory than the machine has, by lower bounds of the memory needed."""
    check_default_device()
    if settings.threads is not None and settings.threads > max(_MOST_THREADS, os.cpu_count() or 1):
        raise InputError(f"threads = {settings.threads} are too many for {os.cpu_count()} cores.")
    if settings.device != "cpu":
        return
    size = 8 if settings.dtype == "float64" else 4
    inputs, width, depth = len(problem.inputs), settings.width, settings.depth
    # Points are drawn, tested and kept: at least three copies.
    for name in ("batch", "boundary_batch", "initial_batch"):
        refuse_beyond_memory(f"{name} = {getattr(settings, name)}", 3 * size * inputs * getattr(settings, name))
    # A user's network may use the width in any way.
    if settings.network in networks():
        hidden = depth - 1 if settings.network == "mlp" else 1
        # Each parameter has a gradient and an optimizer state.
        refuse_beyond_memory(f"width = {width} and depth = {depth}", 3 * size * (width**2 * hidden + 2000 * depth))
        refuse_beyond_memory(
            f"calibration_points = {settings.calibration_points} and width = {width}",
            2 * size * settings.calibration_points * width,
        )


def refuse_beyond_memory(what: str, needed: float) -> None:
    """Raise `InputError` if more bytes are needed than the machine has."""
    there = _memory()
    if there is not None and needed > there:
        raise InputError(
            f"{what} would need {needed / 2**30:.3g} GiB of memory or more, and this machine has "
            f"{there / 2**30:.3g} GiB; choose less."
        )


def _memory() -> int | None:
    """Return the bytes of memory of this machine; None if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
