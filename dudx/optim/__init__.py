"""Second-order optimizers for sums of squares of residuals, and the Jacobians they use.

Example:
    >>> model, x = torch.nn.Linear(1, 1).double(), torch.rand(20, 1, dtype=torch.float64)
    >>> line = dudx.Residual(lambda u, x: u.x - 2 + u - 2 * x, inputs=("x",))
    >>> optimizer = dudx.optim.LevenbergMarquardt(model.parameters())
    >>> losses = [optimizer.step([dudx.optim.Term(line, model, x, dudx.Taylor())]) for _ in range(5)]
    >>> losses[-1] < 1e-12
    True
"""

from dudx.gradients.jacobian_rows import Jacobian
from dudx.optim.balancing import Balance
from dudx.optim.damping_search import Step
from dudx.optim.levenberg_marquardt import LevenbergMarquardt
from dudx.optim.self_scaled_broyden import SelfScaledBroyden
from dudx.optim.terms import FunctionTerm, LeastSquares, Term
from dudx.residual.jacobian import jacobian, linearize

__all__ = [
    "Balance",
    "FunctionTerm",
    "Jacobian",
    "LeastSquares",
    "LevenbergMarquardt",
    "SelfScaledBroyden",
    "Step",
    "Term",
    "jacobian",
    "linearize",
]
