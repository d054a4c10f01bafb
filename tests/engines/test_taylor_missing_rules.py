"""Functions without a Taylor rule run, warn or are refused; a rule of one's own is one decorator."""

from __future__ import annotations

import re
import warnings

import pytest
import torch
import torch.nn.functional as F
from taylor_layers import OPERATORS, assert_agree, points
from torch import Tensor, nn

import dudx
from dudx import AD, D, Taylor, evaluate
from dudx.engines.taylor.jet import RULES
from dudx.errors import UnsupportedError


def test_what_does_not_depend_on_the_inputs_just_runs() -> None:
    table = torch.randn(5, 1, dtype=torch.float64)

    def model(x: Tensor) -> Tensor:
        return torch.sin(x[:, :1]) + torch.linalg.eigvalsh(table @ table.T).sum()  # no rule, and none needed

    (second,) = evaluate(model, points(), [D(0, 0)], Taylor())
    assert torch.allclose(second, -torch.sin(points()[:, :1]))


def test_a_function_without_a_rule_is_named_once_by_a_name_that_can_be_pasted(monkeypatch) -> None:
    def model(x: Tensor) -> Tensor:
        return torch.cumprod(x + 3, 1)

    monkeypatch.delitem(dudx.engines.taylor.jet.RULES, torch.cumprod, raising=False)  # which the guide adds
    dudx.engines.taylor.torch_derivatives._hinted.clear()
    with pytest.warns(dudx.errors.SlowRuleWarning, match=r"@dudx\.taylor_rule\(torch\.cumprod\)"):
        assert_agree(model, points(), OPERATORS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(model, points(), [D(0)], Taylor())


@pytest.mark.parametrize("function", [torch.special.bessel_j0, torch.special.hermite_polynomial_h], ids=["one", "two"])
def test_what_torch_cannot_differentiate_is_refused(function) -> None:
    def model(x: Tensor) -> Tensor:
        return function(x) if function is torch.special.bessel_j0 else function(x, torch.tensor(2))

    name = rf"torch\.special\.{function.__name__.removeprefix('special_')}"
    with pytest.raises(UnsupportedError, match=rf"{name}.*@dudx\.taylor_rule\({name}\)"):
        evaluate(model, points(), [D(0)], Taylor())


def test_numbers_made_of_tensors_are_refused() -> None:
    for function in (lambda x: x * float(x[0, 0]), lambda x: x * x[0, 0].item(), lambda x: x * x[0].tolist()[0]):
        with pytest.raises(UnsupportedError, match=r"Python number.*dudx\.FD\(\)"):
            evaluate(function, points(), [D(0)], Taylor(coupled="ignore"))


def test_a_rule_is_one_decorator() -> None:
    before = RULES[torch.digamma]

    @dudx.taylor_rule(torch.digamma)
    def digamma(x: object) -> object:
        from dudx.engines.taylor.chain_and_product import compose

        return compose(x, [torch.polygamma(n, x.value) for n in range(x.layout.top + 1)])

    try:
        exact, ours = (
            evaluate(lambda x: torch.digamma(x + 3), points(), [D(0, 0)], engine)[0] for engine in (AD(), Taylor())
        )
    finally:
        RULES[torch.digamma] = before
    assert (exact - ours).abs().max() < 1e-12


def test_a_mistake_in_a_rule_is_not_hidden() -> None:
    before = RULES[torch.digamma]
    try:
        dudx.taylor_rule(torch.digamma)(lambda x: x + None)
        with pytest.raises(TypeError):
            RULES[torch.digamma](points())
        with pytest.raises(TypeError):
            dudx.engines.taylor.jet.Jet.__torch_function__(torch.digamma, (), (points(),))
    finally:
        RULES[torch.digamma] = before


def test_the_rule_in_the_documentation_works() -> None:
    """The line of the docstring as it stands there."""
    (line,) = re.findall(r"`(taylor_rule\(.*)`", dudx.taylor_rule.__doc__)
    before = RULES[F.softsign]
    try:
        eval(line, {"taylor_rule": dudx.taylor_rule, "F": F, "torch": torch})
        assert_agree(nn.Sequential(nn.Linear(2, 3), nn.Softsign(), nn.Linear(3, 1)).double(), points(), OPERATORS)
    finally:
        RULES[F.softsign] = before


@pytest.mark.parametrize("setting", [{"dropout_p": 0.5}, {"enable_gqa": True}])
def test_attention_that_taylor_does_not_know_is_refused_with_the_remedy(setting) -> None:
    def model(x: Tensor) -> Tensor:
        tokens = x.reshape(-1, 1, 2, 1)
        return F.scaled_dot_product_attention(tokens, tokens, tokens, **setting).flatten(1)

    with pytest.raises(UnsupportedError, match=r"dudx\.AD\(\)"):
        evaluate(model, points(), [D(0)], Taylor(coupled="ignore"))
    evaluate(model, points(), [D(0)], AD(coupled="ignore"))


def test_batch_norm_in_training_mode_is_refused_even_if_coupling_is_ignored() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    with pytest.raises(UnsupportedError, match="mixes samples"):
        evaluate(model, points(), [D(0)], Taylor(coupled="ignore"))
