"""Derivatives from values at fixed points: a cloud of them, or the nodes of a box."""

from dudx.engines.nodal.cloud import Cloud
from dudx.engines.nodal.spectral import Spectral

__all__ = ["Cloud", "Spectral"]
