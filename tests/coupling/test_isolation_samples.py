"""Some samples of an isolated batch: they have the derivatives they have among all."""

from __future__ import annotations

import pytest
import torch
from helpers import parameter_gradients
from isolation_networks import BOTH, made

import dudx
from dudx import AD, FD, D, Laplacian, Residual, Taylor, evaluate, isolate
from dudx.errors import InputError


@BOTH
@pytest.mark.parametrize("name", ["batch norm", "attention", "softmax"])
def test_some_samples_have_the_derivatives_they_have_among_all(name, exact):
    model, x = made(name)
    isolated = isolate(model, x, exact=exact)
    for chosen in ([3, 17, 5], slice(4, 12), torch.tensor([23])):
        for engine in (AD(), Taylor(), FD(1e-2)):
            all_ = evaluate(isolated, x, [D(0), Laplacian()], engine)
            some = evaluate(isolated.at(chosen), x[chosen], [D(0), Laplacian()], engine)
            for a, b in zip(all_, some, strict=True):
                assert (a[chosen] - b).abs().max() < 1e-9  # differences divide rounding by the square of the step


def test_some_of_some_samples():
    model, x = made("batch norm")
    isolated = isolate(model, x)
    assert torch.allclose(isolated.at(slice(4, 12)).at([0, 7])(x[[4, 11]]), isolated(x)[[4, 11]])


def test_slices_add_up_to_the_gradient_of_the_whole():
    model, x = made("batch norm")
    isolated, residual = isolate(model, x, exact=True), Residual(lambda u: u.laplacian() + u, ("x", "y"))
    whole = parameter_gradients(residual.loss(isolated, x, AD()), model)
    dudx.backward(
        lambda part, numbers: residual.loss(isolated.at(numbers), part, AD()), (x, torch.arange(len(x))), chunk=5
    )
    assert (torch.cat([p.grad.flatten() for p in model.parameters()]) - whole).abs().max() < 1e-12


@pytest.mark.parametrize("samples", [[], [[1, 2]]])
def test_a_choice_that_is_none_is_refused(samples):
    model, x = made("batch norm")
    with pytest.raises(InputError, match="chosen by a slice or by a list"):
        isolate(model, x).at(samples)
