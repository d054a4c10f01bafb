"""Networks that compute in a coarser format than their points: differences fit it, or are refused."""

from __future__ import annotations

import pytest
import torch
from helpers import points
from torch import Tensor, nn
from traps import ENGINES, layers

import dudx
from dudx import D, Laplacian


class Rounded(nn.Module):
    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        return x.to(self.dtype).to(x.dtype)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_formats_agree_under_autocast(engine):
    a, b, c = (layer.float() for layer in layers())
    model, x = nn.Sequential(a, nn.Tanh(), b, nn.Tanh(), c), points(6, 2).float()
    true = [value.detach() for value in dudx.evaluate(model, x, [D(), D(0), Laplacian()], dudx.AD())]
    with torch.autocast("cpu", torch.bfloat16):
        try:
            found = dudx.evaluate(model, x, [D(), D(0), Laplacian()], engine)
        except dudx.errors.UnsupportedError as refusal:
            if not engine.approximate or "coarser format" not in str(refusal):
                raise
            return
    for ours, exact in zip(found, true, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.detach(), exact, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_calibrated_as_it_is_evaluated(dtype):
    a, b, c = (layer.float() for layer in layers())
    model, x = nn.Sequential(a, Rounded(dtype), nn.Tanh(), b, nn.Tanh(), c), points(64, 2).float()
    smooth = nn.Sequential(a, nn.Tanh(), b, nn.Tanh(), c)
    (true,) = dudx.evaluate(smooth, x, [D(0)], dudx.AD())
    with pytest.raises(dudx.errors.UnsupportedError, match="coarser format"):
        dudx.evaluate(model, x, D(0), dudx.FD(1e-4))
    engine = dudx.FD().calibrated(model, x, [D(0)], reference="differences")
    (found,) = dudx.evaluate(model, x, [D(0)], engine)
    assert float((found - true).detach().norm() / true.detach().norm()) < 0.1
