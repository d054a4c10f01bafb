"""Values that leave torch by any door, gradients changed on their way, backward passes that are a little wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import dudx
from dudx import D


def _sine(slope):
    """A sine with a backward pass of one's own."""

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.sin(x)

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * slope(x)

    return lambda x: Sine.apply(x[:, :1])


def _hook(x):
    h = torch.sin(x[:, :1])
    if h.requires_grad:
        h.register_hook(lambda gradient: 0.5 * gradient)
    return 2 * h


def _saved(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: 0.5 * tensor):
        return torch.sin(x[:, :1]).square()


def _node_hook(x):
    h = torch.sin(x[:, :1])
    if h.grad_fn is not None:
        h.grad_fn.register_prehook(lambda gradients: (0.5 * gradients[0],))
    return 2 * h


def _storage(x):
    memory = x.detach().clone().untyped_storage()
    return x[:, :1] * torch.empty(0, dtype=x.dtype).set_(memory, 0, x.shape)[:, :1]


def _rebuilt(numbers, x):
    return torch.tensor(numbers, dtype=x.dtype).reshape(-1, 1)


#: Networks of which autograd sees a part only, or something else.
WRONG = {
    "backward 4 % off": _sine(lambda x: 1.04 * torch.cos(x)),
    "backward 1 % off": _sine(lambda x: 1.01 * torch.cos(x)),
    "backward off in a tenth of the domain": _sine(lambda x: torch.where(x > 0.9, 1.5, 1.0) * torch.cos(x)),
    "backward off at the start of the domain": _sine(lambda x: torch.where(x < 0.1, 1.5, 1.0) * torch.cos(x)),
    "backward off in a twentieth of the domain": _sine(
        lambda x: torch.where((x > 0.3) & (x < 0.35), -1.0, 1.0) * torch.cos(x)
    ),
    "hook on a tensor": _hook,
    "hooks on saved tensors": _saved,
    "copied into a new tensor": lambda x: x[:, :1] * x.new_tensor(x)[:, :1],
    "torch.tensor": lambda x: x[:, :1] * torch.tensor(x.detach())[:, :1],
    "printed": lambda x: x[:, :1] * _rebuilt([float(f"{value:.17g}") for value in x[:, 0]], x),
    "hook on a node": _node_hook,
    "item": lambda x: x[:, :1] * _rebuilt([value.item() for value in x.detach()[:, 0]], x),
    "float": lambda x: x[:, :1] * _rebuilt([float(value) for value in x.detach()[:, 0]], x),
    "tolist": lambda x: x[:, :1] * _rebuilt(x[:, :1].tolist(), x),
    "numpy": lambda x: x[:, :1] * torch.from_numpy(x.detach().numpy()[:, :1]),
    "asarray": lambda x: x[:, :1] * torch.as_tensor(np.asarray(x.detach()))[:, :1],
    "dlpack": lambda x: x[:, :1] * torch.from_dlpack(torch.utils.dlpack.to_dlpack(torch.sin(x[:, :1].detach()))),
    "dlpack to numpy": lambda x: x[:, :1] * torch.from_numpy(np.from_dlpack(torch.sin(x[:, :1].detach())).copy()),
    "storage": _storage,
    "data": lambda x: x[:, :1] * x.data[:, :1],
}
RIGHT = {
    "a backward pass that is right": _sine(torch.cos),
    "a number of a constant": lambda x: torch.tensor(2.0).item() * torch.sin(x[:, :1]),
    "a constant as an array": lambda x: torch.from_numpy(np.ones((1, 2))).to(x.dtype) * torch.sin(x),
    "kinks and a number": lambda x: float(torch.tensor(3.0)) * torch.relu(x - 0.5),
}
ENGINES = [dudx.AD(), dudx.Taylor(), dudx.PerSampleAD(), dudx.PerSampleAD(method="loop")]


def _true(network, x: Tensor) -> Tensor:
    """Central differences of fourth order in double precision."""
    x, step, found = x.double(), 1e-3, 0.0
    for share, weight in ((1, 8), (-1, -8), (2, -1), (-2, 1)):
        moved = x + step * share * torch.tensor([1.0, 0.0])
        found = found + weight * network(moved).detach() / (12 * step)
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("engine", ENGINES, ids=str)
@pytest.mark.parametrize("name", WRONG)
def test_right_or_refused(name, engine, dtype):
    count = 60 if getattr(engine, "method", "") == "loop" else 300  # each point is a pass of its own
    x = torch.rand(count, 2, dtype=dtype, generator=torch.Generator().manual_seed(0))
    try:
        found = dudx.evaluate(WRONG[name], x, D(0), engine).detach()
    except dudx.errors.UnsupportedError:
        return
    assert engine != dudx.AD()  # which sees what autograd does
    torch.testing.assert_close(found.double(), _true(WRONG[name], x), rtol=1e-3, atol=1e-3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes(name, dtype):
    x = torch.rand(300, 2, dtype=dtype, generator=torch.Generator().manual_seed(0))
    found = dudx.evaluate(RIGHT[name], x, D(0), dudx.AD()).detach()
    away = (x[:, :1] - 0.5).abs() > 0.01
    torch.testing.assert_close(found[away[:, 0]].double(), _true(RIGHT[name], x)[away[:, 0]], rtol=1e-4, atol=1e-4)
