"""Never a silent wrong number: every trap of the table, with every engine, is either got right or refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch
from helpers import points
from torch import Tensor, nn
from traps import ENGINES, REFUSED, THEIR_OWN_GRADIENTS, TRAPS, Net, without_graph

import dudx
from dudx import D, Laplacian


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("trap", TRAPS)
def test_right_or_refused(trap, name):
    network, clean = TRAPS[trap]()
    x, engine = points(6, 2), ENGINES[name]
    asked = [D(), D(0), D(1), Laplacian()]
    if name in REFUSED.get(trap, ()):
        with pytest.raises(dudx.DudxError, match=r"dudx\."):  # a sentence says what to use, and it may be differences
            dudx.evaluate(network, x, asked, engine)
        return
    found = dudx.evaluate(network, x, asked, engine)
    tolerance = 2e-5 if engine.approximate else 1e-9
    true = _derivatives(clean, x)
    for ours, exact in zip(found, true, strict=True):
        torch.testing.assert_close(ours.detach(), exact.detach(), rtol=tolerance, atol=tolerance)
    if trap in THEIR_OWN_GRADIENTS:
        return
    for values in (found, true):  # by backward, as autograd.grad does not go through reentrant checkpoints
        sum((value * value).sum() for value in values).backward()
    for mine, theirs in zip(network.parameters(), clean.parameters(), strict=True):
        assert mine.grad is not None
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=20 * tolerance, atol=20 * tolerance)


def _derivatives(clean: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """Value, gradient and Laplacian by nested torch.func."""

    def alone(point: Tensor) -> Tensor:
        return clean(point.unsqueeze(0)).squeeze(0)

    value, gradient = torch.func.vmap(alone)(x), torch.func.vmap(torch.func.jacfwd(alone))(x)
    hessian = torch.func.vmap(torch.func.jacfwd(torch.func.jacfwd(alone)))(x)
    return value, gradient[..., 0], gradient[..., 1], hessian.diagonal(dim1=-2, dim2=-1).sum(-1)


#: Parts that somebody has made constant on purpose, while others carry the derivative: they are constant.
INTENDED: dict[str, Callable[[Tensor], Tensor]] = {
    "detached in a factor": lambda h: h * torch.tanh(h.detach()),
    "no graph beside one": lambda h: h + without_graph(h),
    "a whole part": lambda h: h * torch.floor(3 * h.detach()),
}
EXACT = {name: engine for name, engine in ENGINES.items() if not engine.approximate}


@pytest.mark.parametrize("engine", EXACT.values(), ids=EXACT)
@pytest.mark.parametrize("between", INTENDED.values(), ids=INTENDED)
def test_a_part_that_is_constant_on_purpose_stays_constant(between, engine):
    network, x = Net(between), points(6, 2).requires_grad_()
    try:
        slope = dudx.evaluate(network, x, D(0), engine)
    except dudx.errors.UnsupportedError as refusal:
        if not isinstance(engine, dudx.Taylor) or "dudx.AD()" not in str(refusal):
            raise
        return
    (true,) = torch.autograd.grad(network(x).sum(), x)
    torch.testing.assert_close(slope.detach(), true[:, :1])


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "network",
    [
        lambda x: torch.ones_like(x),
        lambda x: x[:, :1].detach() * 0 + x[:, 1:],
        lambda x: torch.floor(7 * x).detach() + 0 * x,
        lambda x: torch.sign(x),
        lambda x: torch.relu(x) + 100.0,
        lambda x: 1e4 * torch.sin(300 * x),
        lambda x: torch.sqrt(x.abs()),
    ],
    ids=["constant", "constant in one variable", "steps", "signs", "kinks", "steep", "roots"],
)
@pytest.mark.filterwarnings("ignore::dudx.errors.KinkWarning")
def test_what_is_right_is_not_refused(network, dtype, engine):
    try:
        dudx.evaluate(network, points(16, 2).to(dtype), [D(0), D(1), Laplacian()], engine)
    except dudx.errors.UnsupportedError as refusal:
        if "has no rule for" not in str(refusal):
            raise


@pytest.mark.parametrize("name", ENGINES)
def test_a_scripted_network_is_trained_by_whom_it_likes_afterwards(name):
    """TorchScript prepares itself at its first pass, for all modules of these layers: so nobody else has these."""
    width = 11 + list(ENGINES).index(name)
    made = nn.Sequential(nn.Linear(2, width), nn.LayerNorm(width), nn.Tanh(), nn.Linear(width, 1)).double()
    network, x = torch.jit.script(made), points(6, 2)
    with contextlib.suppress(dudx.DudxError):
        dudx.evaluate(network, x, [D(0), Laplacian()], ENGINES[name])
    for _ in range(3):
        assert network(x).requires_grad
    (found,) = torch.autograd.grad(network(x).sum(), [network[3].weight])
    assert torch.allclose(found, torch.autograd.grad(made(x).sum(), [made[3].weight])[0])


def test_a_scripted_network_is_isolated_batch_by_batch():
    made = nn.Sequential(nn.Linear(2, 23), nn.BatchNorm1d(23), nn.Tanh(), nn.Linear(23, 1)).double()
    network, x = torch.jit.script(made), points(6, 2)
    exact = dudx.evaluate(dudx.isolate(made, x, update_statistics=False), x, D(0), dudx.FD(1e-3))
    ours = dudx.evaluate(dudx.isolate(network, x, update_statistics=False, exact=True), x, D(0), dudx.FD(1e-3))
    assert torch.allclose(ours, exact, atol=1e-9)
    assert network(x).requires_grad
