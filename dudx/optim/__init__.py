"""Each sample's gradient of a residual, and an optimizer that uses it."""

from dudx.optim.jacobian import jacobian, linearize
from dudx.optim.rows import Jacobian

__all__ = ["Jacobian", "jacobian", "linearize"]
