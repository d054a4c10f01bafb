"""Taylor propagation: jets that flow through the unchanged network."""

from dudx.engines.taylor.rule_table import taylor_rule
from dudx.engines.taylor.taylor_engine import Taylor

__all__ = ["Taylor", "taylor_rule"]
