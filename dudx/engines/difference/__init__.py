"""Finite differences: stencils, steps, a plan of shifted batches, and the search for a step."""

from dudx.engines.difference.calibration import Calibration, find_eps
from dudx.engines.difference.finite_difference import EFD, FD, SFD

__all__ = ["EFD", "FD", "SFD", "Calibration", "find_eps"]
