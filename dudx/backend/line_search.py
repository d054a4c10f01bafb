"""Line search of torch's L-BFGS."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from torch import Tensor

#: Search along a direction by cubic interpolation until the strong Wolfe conditions hold. Torch has no public line
#: search, and the self-scaled Broyden method needs one.
strong_wolfe: Callable[..., tuple[float, Tensor, float, int]]
strong_wolfe = importlib.import_module("torch.optim.lbfgs")._strong_wolfe
