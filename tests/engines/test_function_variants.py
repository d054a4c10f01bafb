"""Every function of torch that networks are made of, on jets: against nested autograd, to third order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from function_variants import TWINS, VARIANTS
from torch import Tensor, nn

from dudx import AD, D, Taylor, evaluate
from dudx.errors import UnsupportedError

#: Functions that Taylor refuses, as listed in the guide.
UNSUPPORTED = {"torch.special.zeta(p + 2, 1.5 + w[0])"}

#: Every kind of product of streams up to the third order occurs.
OPERATORS = [D(), D(0), D(0, 1) + D(1, 1), D(0, 0, 1)]


MASK, INDEX = torch.tensor([True, False, False, True, False, True]), torch.tensor([[2, 0, 4, 1, 5, 3]])


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def _constants() -> dict[str, Any]:
    generator = _generator()

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    torch.manual_seed(3)
    modules = {
        "rnn": nn.RNN(6, 4), "lstm": nn.LSTM(2, 4, batch_first=True),
        "gru": nn.GRU(2, 4, num_layers=2, batch_first=True, bidirectional=True),
        "lstm2": nn.LSTM(2, 4, num_layers=2, batch_first=True, proj_size=2), "lstm_cell": nn.LSTMCell(6, 4),
        "gru_cell": nn.GRUCell(6, 4), "rnn_cell": nn.RNNCell(6, 4),
        "attention": nn.MultiheadAttention(3, 1, batch_first=True),
        "encoder": nn.TransformerEncoder(nn.TransformerEncoderLayer(3, 1, 8, batch_first=True), 1).eval(),
    }  # fmt: skip
    return {
        "w": random(6, 6) / 3, "v": random(6), "k": [random(3, 2, 3), random(2, 1, 2, 2), random(2, 3, 3)],
        "mask": MASK, "index": INDEX,
        "torch": torch, "F": F, "written": _written, "rows": lambda h: INDEX.expand(len(h), 6),
        "truth": lambda h: MASK.to(h.dtype).expand(len(h), 6),
        # Not zeros_like, which knows of jets.
        "zeros": lambda h: torch.zeros(len(h), 6, dtype=h.dtype),
        "ones": lambda h: torch.ones(len(h), 6, dtype=h.dtype),
        **{name: module.double() for name, module in modules.items()},
    }  # fmt: skip


def _written(write: Any, tensor: Any) -> Any:
    """A copy after something was written into it."""
    copy = tensor.clone()
    write(copy)
    return copy * 1


CONSTANTS = _constants()


class Variant(nn.Module):
    """A layer with parameters, one function, and a sum of its results with weights."""

    def __init__(self, expression: str):
        super().__init__()
        self.first = nn.Linear(2, 6).double()
        self.expression = compile(expression, expression, "eval")
        with torch.no_grad():
            generator = _generator()
            self.first.weight.copy_(torch.randn(6, 2, generator=generator, dtype=torch.float64))
            self.first.bias.copy_(torch.randn(6, generator=generator, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.sin(self.first(x)) + 0.3 * x[:, :1]
        s = 0.8 * torch.tanh(h.flip(1))
        p = 0.6 + torch.sigmoid(2 * h.roll(1, 1))
        q = h.reshape(-1, 2, 3)
        m = lambda: torch.eye(3, dtype=x.dtype) * 2 + torch.cat([q, s[:, :3].unsqueeze(1)], 1) / 2  # noqa: E731
        makers = {
            "m": m, "spd": lambda: m() @ m().mT, "img": lambda: torch.cat([h, s, p[:, :4]], 1).reshape(-1, 1, 4, 4),
            "big": lambda: 2.3 * h + 0.4, "seq": lambda: torch.stack([h, p], 1), "z": lambda: torch.complex(h, p),
        }  # fmt: skip
        made = {name: make() for name, make in makers.items() if name in self.expression.co_names}
        torch.manual_seed(0)
        u = eval(self.expression, {"h": h, "s": s, "p": p, "q": q, **made, **CONSTANTS}).reshape(len(x), -1)
        weights = torch.linspace(0.5, 1.5, u.shape[1], dtype=x.dtype)
        return (u * weights).sum(1, keepdim=True)


def results(model: nn.Module, x: Tensor, engine: Any) -> list[Tensor]:
    values = evaluate(model, x, OPERATORS, engine)
    loss = sum((value / (1 + value.detach().abs().max())).square().mean() for value in values)
    gradients = torch.autograd.grad(loss, [*model.first.parameters()], materialize_grads=True)
    return [*values, *gradients]


@pytest.mark.parametrize("expression", VARIANTS)
@pytest.mark.filterwarnings("ignore::dudx.errors.SlowRuleWarning", "ignore::UserWarning")
def test_a_function_agrees_with_nested_autograd(expression: str) -> None:
    model = Variant(expression)
    # A function of the whole tensor would couple several points.
    x = torch.rand(1 if "[0]" in expression else 3, 2, dtype=torch.float64, generator=_generator()) * 2 - 1
    if expression in UNSUPPORTED:
        with pytest.raises(UnsupportedError):
            results(model, x, Taylor(coupled="ignore"))
        return
    exact = results(Variant(TWINS.get(expression, expression)), x, AD(coupled="ignore"))
    ours = results(model, x, Taylor(coupled="ignore"))
    for a, b in zip(ours, exact, strict=True):
        assert torch.isfinite(b).all()
        assert (a - b).abs().max() < 1e-9 * (1 + b.abs().max())


def test_few_functions_are_unsupported() -> None:
    assert len(VARIANTS) >= 284
    assert len(set(VARIANTS)) == len(VARIANTS)
    assert len(UNSUPPORTED) <= 10
