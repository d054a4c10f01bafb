"""Scripts that know nothing of dudx, watched while they run."""

from __future__ import annotations

import runpy

import pytest
import torch
from helpers import mlp, points
from torch import nn

import dudx


def _laplacian(model, x, by_sum=False):
    x = x.clone().requires_grad_()
    u = model(x)
    if by_sum:
        (gradient,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    else:
        (gradient,) = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)
    total = 0
    for axis in range(x.shape[1]):
        column = gradient[:, axis : axis + 1]
        (second,) = torch.autograd.grad(
            column, x, torch.ones_like(column), create_graph=True, allow_unused=True, materialize_grads=True
        )
        total = total + second[:, axis : axis + 1]
    return total


def _network(*layers):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), *layers, nn.Linear(8, 1)).double()


NETWORKS = {
    "nothing": (mlp, set()),
    "batch norm": (lambda: _network(nn.BatchNorm1d(8), nn.Tanh()), {"coupled", "fused"}),
    "batch norm, evaluation": (lambda: _network(nn.BatchNorm1d(8), nn.Tanh()).eval(), set()),
    "layer norm": (lambda: _network(nn.LayerNorm(8), nn.Tanh()), {"fused"}),
    "group norm": (lambda: _network(nn.GroupNorm(2, 8), nn.Tanh()), set()),
    "rms norm": (lambda: _network(nn.RMSNorm(8), nn.Tanh()), set()),
    "relu": (lambda: _network(nn.ReLU()), {"kinks"}),
    "relu and sine": (lambda: nn.Sequential(_network(nn.LeakyReLU()), _Sine()), {"kinks"}),
    "detached": (lambda: nn.Sequential(_Detached(), mlp()), {"detached"}),
}


class _Sine(nn.Module):
    def forward(self, x):
        return torch.sin(x)


class _Detached(nn.Module):
    def forward(self, x):
        return x.detach() + 0 * x


@pytest.mark.parametrize(
    "norm", [nn.LayerNorm(8), nn.GroupNorm(2, 8), nn.RMSNorm(8)], ids=lambda norm: type(norm).__name__
)
def test_a_norm_is_reported_if_and_only_if_its_gradient_is_wrong(norm):
    model, x = _network(norm, nn.Tanh()), points(10, 2)
    with dudx.watch() as seen:
        ours = _laplacian(model, x)
    exact = dudx.evaluate(model, x, dudx.Laplacian(), dudx.Taylor())
    gradients = [torch.autograd.grad(value.sum(), model[0].weight)[0] for value in (ours, exact)]
    assert bool(seen.findings) == (not torch.allclose(*gradients, rtol=1e-9))


@pytest.mark.parametrize("by_sum", [False, True], ids=["ones", "sum"])
@pytest.mark.parametrize(("make", "kinds"), NETWORKS.values(), ids=NETWORKS)
def test_what_is_wrong_is_found(make, kinds, by_sum):
    model, x = make(), points(10, 2)
    with dudx.watch() as seen:
        _laplacian(model, x, by_sum)
    assert {finding.kind for finding in seen.findings} == kinds
    assert all(finding.file == __file__ for finding in seen.findings)
    assert all(dudx.watch.__name__ not in str(finding) or finding.line > 0 for finding in seen.findings)


def test_results_and_torch_are_as_they_were():
    original = torch.autograd.grad
    model, x = mlp(), points(10, 2)
    plain = _laplacian(model, x)
    with dudx.watch():
        assert torch.autograd.grad is not original
        assert torch.equal(_laplacian(model, x), plain)
    assert torch.autograd.grad is original


def test_each_line_is_looked_at_a_few_times_only():
    model, x = mlp(), points(10, 2)
    looks = []
    with dudx.watch(calls=2) as seen:
        wrong = seen._wrong
        seen._wrong = lambda *args: looks.append(1) or wrong(*args)
        for _ in range(20):
            _laplacian(model, x)
    assert sum(seen.lines.values()) == 60
    assert len(looks) == 4  # two lines, twice each
    assert "Nothing wrong" in repr(seen)


def test_error_of_a_coupled_gradient():
    """u_i = x_i² - mean: the sum's gradient is off by what the mean contributes, here (1 - 1)."""
    x = torch.tensor([[1.0], [2.0]], dtype=torch.float64, requires_grad=True)
    with dudx.watch() as seen:
        torch.autograd.grad((x - x.mean(0)).sum(), x, create_graph=True)
    (finding,) = seen.findings
    assert "off by 100 %" in finding.says  # zero instead of one half


SCRIPT = """
import torch
from torch import nn
from torch.autograd import grad
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
x = torch.rand(16, 2, requires_grad=True)
u = net(x)
(gradient,) = grad(u, x, torch.ones_like(u), create_graph=True)
gradient.square().mean().backward()
"""


def test_a_script_is_watched_while_it_runs(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    with dudx.watch() as seen:
        runpy.run_path(str(script), run_name="__main__")
    assert f"{script}:9: samples of the batch influence each other" in str(seen)


class _Labelled(torch.Tensor):
    """As other libraries have them: one that was made by anyone else lacks what it needs to be copied."""

    def clone(self, *args, **kwargs):
        self.labels
        return super().clone(*args, **kwargs)


def test_classes_of_tensors_do_not_stop_the_script():
    network = _network(nn.BatchNorm1d(8), nn.Tanh())
    x = points(6, 2).as_subclass(_Labelled).requires_grad_()
    with dudx.watch() as seen:
        u = network(x)
        torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)
    assert [finding.kind for finding in seen.findings] == ["coupled"]
    assert seen.unseen == {}
    assert all(file == __file__ for file, _ in seen.lines)
