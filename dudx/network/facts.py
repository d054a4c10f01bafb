"""What a network is like, found out by running it a few times: random, coarse, with kinks."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dudx.checks import Model
from dudx.kernels import called
from dudx.network.modules import modules_of, owner_of
from dudx.network.probes import difference, rounding
from dudx.network.sandbox import output_of

#: Layers that are straight lines with kinks between.
KINKED = (
    nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.ReLU6, nn.Hardtanh, nn.Hardsigmoid, nn.Hardshrink, nn.Softshrink,
    nn.Threshold,
)  # fmt: skip
_KINKED_FUNCTIONS = {
    F.relu, torch.relu, Tensor.relu, F.leaky_relu, F.prelu, torch.prelu, F.rrelu, F.relu6, F.hardtanh, F.hardsigmoid,
    F.hardshrink, F.softshrink, F.threshold,
}  # fmt: skip

_DROPPING = (
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout, nn.RReLU,
)  # fmt: skip

#: How many times coarser than its points' format a network must compute for it to be no accident of rounding.
_COARSE = 300


def random(model: Model, rows: Tensor, still: Tensor) -> bool:
    """Whether the output at rows depends on random numbers; `still` is the output with the usual ones."""
    return not bool((difference(output_of(model, rows, seed=1), still) <= rounding(still)).all())


def has_dropout(model: Model) -> bool:
    """Whether a layer of the network drops features at present, for those who may not run it to find out."""
    return any(isinstance(module, _DROPPING) and module.training for module in modules_of(model))


def kinks(model: Model, rows: Tensor) -> str | None:
    """Where a network has kinks: its layer, or the function in its code; None where it has none that are known."""
    owner = owner_of(model)
    named = owner.named_modules() if isinstance(owner, nn.Module) else (("", module) for module in modules_of(model))
    for name, module in named:
        if isinstance(module, KINKED):
            return f"layer {name!r} ({type(module).__name__})" if name else f"layer {type(module).__name__}"
    with _Functions() as seen:
        output_of(model, rows)
    return f"{seen.found} in its own code" if seen.found else None


class _Functions(TorchFunctionMode):
    """Notes a function with kinks that the network calls."""

    found: str | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _KINKED_FUNCTIONS:
            self.found = self.found or getattr(func, "__name__", "relu")
        return called(func, args, kwargs or {})


def coarseness(model: Model, rows: Tensor) -> float:
    """The noise of a network that rounds more coarsely than its points do, relative to its output; else 0."""
    found = noise(model, rows)
    if found is None:
        return 0.0
    size = output_of(model, rows).double().abs().amax(0)
    return float((found / size.clamp(min=torch.finfo(torch.float64).tiny)).amax())


def noise(model: Model, rows: Tensor) -> Tensor | None:
    """What rounding does to each column of the output (m,), where the network rounds more coarsely than its points do.

    The outputs at points so close together that a smooth function is a parabola between them leave nothing in their
    third differences but rounding. None where that is as little as the points' format promises.
    """
    cloud = 1 + rows.abs().amax()
    eps = torch.finfo(rows.dtype).eps
    close = [output_of(model, rows + number * eps**0.5 / 8 * cloud) for number in range(6)]
    values = torch.stack([value.double() for value in close])
    third = values[3:] - 3 * values[2:-1] + 3 * values[1:-2] - values[:-3]
    size = values.abs().amax(dim=(0, 1))
    found = third.square().mean(dim=(0, 1)).div(20).sqrt()  # 1 + 9 + 9 + 1 times the square of one rounding
    # Where nothing moves at all, it may be that the format is too coarse to tell these points apart.
    stuck = (values == values[0]).all(dim=0).all(dim=0)
    if bool(stuck.any()):
        far = (output_of(model, rows + cloud / 8).double() - values[0]).abs().amax(0)
        format_ = torch.finfo(close[0].dtype).eps
        found = torch.where(stuck & (far > 0), torch.clamp(found, min=format_ * size / 4), found)
    return found if bool((found > _COARSE * eps * size).any()) else None
