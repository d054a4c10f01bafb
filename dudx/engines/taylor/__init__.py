"""Taylor propagation: jets that flow through the unchanged network."""

from dudx.engines.taylor.engine import Taylor
from dudx.engines.taylor.table import taylor_rule

__all__ = ["Taylor", "taylor_rule"]
