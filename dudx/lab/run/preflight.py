"""What cannot work on this machine is said before anything is made: batches, networks, threads beyond its memory."""

from __future__ import annotations

import os

from dudx.errors import InputError
from dudx.lab.problems import Problem
from dudx.lab.problems.default_device import check_default_device
from dudx.lab.run.networks import networks
from dudx.lab.run.settings import Settings

_MOST_THREADS = 256


def check_machine(problem: Problem, settings: Settings) -> None:
    """Refuse what needs more memory than the machine has, by estimates that are less than what is needed."""
    check_default_device()
    if settings.threads is not None and settings.threads > max(_MOST_THREADS, os.cpu_count() or 1):
        raise InputError(f"threads = {settings.threads} are too many for {os.cpu_count()} cores.")
    if settings.device != "cpu":
        return
    size = 8 if settings.dtype == "float64" else 4
    inputs, width, depth = len(problem.inputs), settings.width, settings.depth
    # Points are drawn, tried and kept, so that there are three copies at least.
    for name in ("batch", "boundary_batch", "initial_batch"):
        refuse_beyond_memory(f"{name} = {getattr(settings, name)}", 3 * size * inputs * getattr(settings, name))
    # A user's own network may do with a width what it likes.
    if settings.network in networks():
        hidden = depth - 1 if settings.network == "mlp" else 1
        # Each parameter has a gradient and what the optimizer keeps of it.
        refuse_beyond_memory(f"width = {width} and depth = {depth}", 3 * size * (width**2 * hidden + 2000 * depth))
        refuse_beyond_memory(
            f"calibration_points = {settings.calibration_points} and width = {width}",
            2 * size * settings.calibration_points * width,
        )


def refuse_beyond_memory(what: str, needed: float) -> None:
    """Refuse what needs more bytes than the machine has."""
    there = _memory()
    if there is not None and needed > there:
        raise InputError(
            f"{what} would need {needed / 2**30:.3g} GiB of memory or more, and this machine has "
            f"{there / 2**30:.3g} GiB; choose less."
        )


def _memory() -> int | None:
    """The bytes of this machine; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
