"""Each sample's gradient of a residual, and an optimizer that uses it."""

from dudx.optim.balancing import Balance
from dudx.optim.jacobian import jacobian, linearize
from dudx.optim.levenberg_marquardt import LevenbergMarquardt
from dudx.optim.rows import Jacobian
from dudx.optim.search import Step
from dudx.optim.terms import FunctionTerm, LeastSquares, Term

__all__ = [
    "Balance",
    "FunctionTerm",
    "Jacobian",
    "LeastSquares",
    "LevenbergMarquardt",
    "Step",
    "Term",
    "jacobian",
    "linearize",
]
