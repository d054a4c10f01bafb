"""Isolated networks against the per-sample reference: each sample's own derivative, the others held still."""

from __future__ import annotations

import pytest
import torch
from helpers import mlp, parameter_gradients, rms
from isolation_networks import NETWORKS, OPERATORS, made, two_batch_norms

from dudx import AD, EFD, FD, SFD, D, Laplacian, PerSampleAD, Residual, Taylor, evaluate, isolate
from dudx.lab.run.networks import AttentionMLP, BatchNormMLP


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-11)])
@pytest.mark.parametrize("name", NETWORKS)
def test_isolated_engines_agree_with_the_per_sample_reference(name, dtype, tolerance):
    model, x = made(name, dtype=dtype)
    reference, isolated = evaluate(model, x, OPERATORS, PerSampleAD()), isolate(model, x)
    for engine in (AD(), Taylor()):
        for ours, exact in zip(evaluate(isolated, x, OPERATORS, engine), reference, strict=True):
            assert (ours - exact).abs().max() < tolerance * (1 + exact.abs().max())


def residual_gradient(network, x, engine, model):
    """The gradient in the parameters of a loss with a Laplacian in it."""
    residual = Residual(lambda u: u.laplacian() + u * u.x, ("x", "y", "z")[: x.shape[1]])
    return parameter_gradients(residual.loss(network, x, engine), model)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_with_respect_to_parameters_flow_through_the_context_too(name):
    model, x = made(name)
    exact = residual_gradient(model, x, PerSampleAD(), model)
    for engine in (AD(), Taylor()):
        ours = residual_gradient(isolate(model, x), x, engine, model)
        assert (ours - exact).abs().max() < 1e-10 * (1 + exact.abs().max())


@pytest.mark.parametrize("trained", [False, True], ids=["fresh", "trained"])
@pytest.mark.parametrize(("inputs", "size"), [(1, 8), (2, 64), (3, 24)])
@pytest.mark.parametrize("network", [BatchNormMLP, AttentionMLP])
def test_the_networks_of_the_paper(network, inputs, size, trained):
    torch.manual_seed(0)
    model = network(inputs, width=16).double()
    x = torch.rand(size, inputs, dtype=torch.float64) * 2 - 1
    if trained:
        target, optimizer = torch.sin(3 * x).sum(1, keepdim=True), torch.optim.Adam(model.parameters(), 1e-2)
        for _ in range(30):
            optimizer.zero_grad()
            (model(x) - target).square().mean().backward()
            optimizer.step()
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 1e-5)):
        model, x = model.to(dtype), x.to(dtype)
        operators = [D(), D(0), Laplacian()]
        reference = evaluate(model, x, operators, PerSampleAD())
        slope = residual_gradient(model, x, PerSampleAD(), model)
        for engine in (AD(), Taylor()):
            for ours, exact in zip(evaluate(isolate(model, x), x, operators, engine), reference, strict=True):
                assert (ours - exact).abs().max() < tolerance * (1 + exact.abs().max())
            ours = residual_gradient(isolate(model, x), x, engine, model)
            # A gradient of Laplacians goes through a third derivative more, in which single precision loses a digit.
            assert (ours - slope).abs().max() < 10 * tolerance * (1 + slope.abs().max())


@pytest.mark.parametrize("name", ["batch norm", "attention"])
def test_a_batch_of_a_thousand_at_a_few_samples(name):
    model, x = made(name, 2, 1024)
    few = [0, 511, 1023]
    exact = []
    for i in few:
        own = x[i].clone().requires_grad_()
        u = model(torch.cat([x[:i], own.unsqueeze(0), x[i + 1 :]]))[i]
        exact.append(torch.autograd.grad(u, own)[0])
    ours = evaluate(isolate(model, x), x, [D(0), D(1)], Taylor())
    assert (torch.cat(ours, 1)[few] - torch.stack(exact)).abs().max() < 1e-11


@pytest.mark.parametrize("name", ["batch norm", "attention", "mean and deviation"])
def test_differences_of_an_isolated_network_converge_at_their_order(name):
    model, x = made(name)
    (exact,) = evaluate(model, x, [Laplacian()], PerSampleAD())
    errors = [(evaluate(isolate(model, x), x, [Laplacian()], FD(h))[0] - exact).abs().max() for h in (2e-2, 1e-2)]
    assert torch.log2(errors[0] / errors[1]).item() == pytest.approx(2, abs=0.15)


@pytest.mark.parametrize("name", ["batch norm", "attention"])
def test_differences_are_as_accurate_as_on_a_plain_network(name):
    """In single precision, where rounding counts: relative to the value the error is that of a plain network."""
    model, x = made(name, dtype=torch.float32)
    plain = mlp().float()
    engines = [FD(3e-2), EFD({1: 1e-2, 2: 3e-2}), SFD((3e-2, 3e-2))]
    for engine in engines:
        errors = []
        for network, target in ((plain, plain), (model, isolate(model, x))):
            (exact,) = evaluate(network, x, [Laplacian()], PerSampleAD())
            (ours,) = evaluate(target, x, [Laplacian()], engine)
            errors.append(rms((ours - exact).detach()) / rms(exact.detach()))
        assert errors[1] < 3 * errors[0]


def test_the_usual_idiom_is_far_off_where_the_isolated_network_is_exact():
    model, x = made("batch norm")
    (exact,) = evaluate(model, x, [Laplacian()], PerSampleAD())
    (wrong,) = evaluate(model, x, [Laplacian()], AD(coupled="ignore"))
    assert (wrong - exact).abs().max() > 1e-2 * exact.abs().max()


def test_second_hand_influence_fades_with_the_batch():
    """Approximated, two mixing layers have an error of the order of one over the batch size, and it is known."""

    def error(size: int) -> tuple[float, float]:
        model, x = two_batch_norms(), torch.rand(size, 2, dtype=torch.float64) * 4 - 2
        isolated = isolate(model, x, approximate=True)
        exact, ours = (evaluate(m, x, [D(0)], e)[0].detach() for m, e in ((model, PerSampleAD()), (isolated, AD())))
        return rms(ours - exact) / rms(exact), isolated.error

    (small, told_small), (large, told_large) = error(16), error(128)
    assert 0 < large < small / 4
    assert 0 < told_large < told_small / 2  # at a few samples
    assert small / 3 < told_small < 3 * small
    assert large / 3 < told_large < 3 * large
