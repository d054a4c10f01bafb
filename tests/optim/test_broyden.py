import math

import pytest
import torch
from torch import nn

import dudx
from dudx.optim.self_scaled_broyden import _family, updated


def spd(size: int, seed: int) -> torch.Tensor:
    a = torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return a @ a.T + 0.1 * torch.eye(size, dtype=torch.float64)


@pytest.mark.parametrize("seed", range(5))
def test_the_update_is_the_formula_written_out(seed):
    hessian, h = spd(6, seed), spd(6, seed + 100)
    gradient = torch.randn(6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    length = 0.37
    s = -length * h @ gradient
    y = hessian @ s
    b_matrix = torch.linalg.inv(h)
    b, ratio = float(s @ b_matrix @ s / (y @ s)), float(y @ h @ y / (y @ s))
    phi, tau = _family(b, ratio, 6)
    v = (y @ h @ y).sqrt() * (s / (y @ s) - h @ y / (y @ h @ y))
    outer = torch.outer
    expected = (h - outer(h @ y, h @ y) / (y @ h @ y) + phi * outer(v, v)) / tau + outer(s, s) / (y @ s)
    found = updated(h.clone(), s, y, gradient, length)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found @ y, s, rtol=1e-9, atol=1e-11)  # what makes it a quasi-Newton method
    assert float(torch.linalg.eigvalsh(found)[0]) > 0


def test_a_step_without_curvature_teaches_nothing():
    h, s = spd(4, 0), torch.ones(4, dtype=torch.float64)
    torch.testing.assert_close(updated(h.clone(), s, -s, s, 1.0), h, rtol=0, atol=0)


def test_a_quadratic_is_solved_to_rounding():
    hessian = spd(12, 3)
    x = nn.Parameter(torch.ones(12, dtype=torch.float64))
    optimizer = dudx.optim.SelfScaledBroyden([x], max_iter=80)

    def closure():
        optimizer.zero_grad()
        loss = 0.5 * x @ hessian @ x
        loss.backward()
        return loss

    first = float(optimizer.step(closure).detach())
    assert float(closure().detach()) < 1e-14 * first


def test_it_trains_a_network_further_than_lbfgs_on_the_same_looks():
    x = torch.linspace(-1, 1, 60, dtype=torch.float64)[:, None]
    residual = dudx.Residual(lambda u, x: u.xx + torch.sin(3 * x) + u, inputs=("x",))

    def trained(make):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 1)).double()
        optimizer, looks = make(model.parameters()), 0

        def closure():
            nonlocal looks
            looks += 1
            optimizer.zero_grad()
            loss = residual.loss(model, x, dudx.Taylor())
            loss.backward()
            return loss

        while looks < 400:
            optimizer.step(closure)
        return float(residual.loss(model, x, dudx.Taylor()).detach())

    lbfgs = trained(lambda p: torch.optim.LBFGS(p, max_iter=20, history_size=50, line_search_fn="strong_wolfe"))
    assert trained(dudx.optim.SelfScaledBroyden) < lbfgs


def test_a_state_goes_on_where_it_was():
    def closure_of(optimizer, x):
        def closure():
            optimizer.zero_grad()
            loss = (x**4 - 3 * x**2 + x).sum() + (x[0] - x[1]) ** 2
            loss.backward()
            return loss

        return closure

    def make():
        x = nn.Parameter(torch.tensor([2.0, -1.5, 0.3], dtype=torch.float64))
        return x, dudx.optim.SelfScaledBroyden([x], max_iter=3)

    whole, optimizer = make()
    for _ in range(4):
        optimizer.step(closure_of(optimizer, whole))
    half, first = make()
    for _ in range(2):
        first.step(closure_of(first, half))
    rest, second = make()
    rest.data.copy_(half.data)
    second.load_state_dict(first.state_dict())
    for _ in range(2):
        second.step(closure_of(second, rest))
    assert torch.equal(whole, rest)


def test_a_loss_that_is_not_finite_moves_nothing():
    x = nn.Parameter(torch.ones(2, dtype=torch.float64))
    optimizer = dudx.optim.SelfScaledBroyden([x])

    def closure():
        optimizer.zero_grad()
        loss = (x * math.nan).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert torch.equal(x, torch.ones(2, dtype=torch.float64))


def test_wrong_arguments_are_refused():
    x = nn.Parameter(torch.ones(2))
    with pytest.raises(dudx.errors.InputError, match="max_iter"):
        dudx.optim.SelfScaledBroyden([x], max_iter=0)
    with pytest.raises(dudx.errors.InputError, match="positive"):
        dudx.optim.SelfScaledBroyden([x], lr=0.0)
    groups = [{"params": [x]}, {"params": [nn.Parameter(torch.ones(1))]}]
    with pytest.raises(dudx.errors.InputError, match="one group"):
        dudx.optim.SelfScaledBroyden(groups)
