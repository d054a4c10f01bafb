"""Attention over the batch in its many forms, isolated: masks, heads, layouts, layers, fused kernels."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from helpers import parameter_gradients
from torch import Tensor, nn

from dudx import AD, D, Laplacian, PerSampleAD, Residual, Taylor, evaluate, isolate
from dudx.errors import ModelError, UnsupportedError

SIZE = 10
torch.manual_seed(0)
SOME = (torch.rand(SIZE, SIZE) > 0.5) | torch.eye(SIZE, dtype=torch.bool)  # who may see whom
BIAS = torch.randn(SIZE, SIZE, dtype=torch.float64)
PADDED = torch.tensor([[i in (3, 7) for i in range(SIZE)]])
causal_mask = nn.Transformer.generate_square_subsequent_mask


def by_function(**options: object):
    """Attention by scaled_dot_product_attention; an option that is a function makes its mask of the rows."""

    def mix(layer: None, h: Tensor) -> Tensor:
        given = {name: make(h) if callable(make) else make for name, make in options.items()}
        tokens = h.unsqueeze(0)
        return F.scaled_dot_product_attention(tokens, 2 * tokens, tokens + 1, **given)[0]

    return mix


def by_heads(layout: str = "batch first", **options: object):
    """Attention by nn.MultiheadAttention."""

    def mix(layer: nn.Module, h: Tensor) -> Tensor:
        given = {name: make(h) if callable(make) else make for name, make in options.items()}
        if layout == "alone":
            return layer(h, h, h, **given)[0]
        axis = 0 if layout == "batch first" else 1
        tokens = h.unsqueeze(axis)
        return layer(tokens, tokens, tokens, **given)[0].squeeze(axis)

    return mix


def weighted_numbers(layer: nn.Module, h: Tensor) -> Tensor:
    """Uses the weights that nn.MultiheadAttention returns."""
    out, weights = layer(h.unsqueeze(0), h.unsqueeze(0), h.unsqueeze(0))
    return out[0] + (weights[0] * torch.arange(SIZE, dtype=h.dtype)).sum(1, keepdim=True)


def numbers_apart(h: Tensor) -> Tensor:
    number = torch.arange(len(h), dtype=torch.float64)
    return -0.3 * (number.unsqueeze(1) - number).abs()


def heads(count: int = 2, **options: object) -> nn.Module:
    return nn.MultiheadAttention(8, count, **options)


def encoder_layer(**options: object) -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0, **options)


def encoder() -> nn.Module:
    return nn.TransformerEncoder(encoder_layer(batch_first=True), 1)


FORMS = {
    "plain": (by_function(), None),
    "scaled": (by_function(scale=0.7), None),
    "bool mask": (by_function(attn_mask=SOME), None),
    "float mask": (by_function(attn_mask=BIAS), None),
    "causal": (by_function(is_causal=True), None),
    "bool mask made inside": (by_function(attn_mask=lambda h: torch.ones(len(h), len(h)).tril().bool()), None),
    "float mask made inside": (by_function(attn_mask=numbers_apart), None),
    "one row sees nothing": (by_function(attn_mask=torch.ones(SIZE, SIZE, dtype=torch.bool).tril(-1)), None),
    "heads": (by_heads(need_weights=False), lambda: heads(batch_first=True)),
    "heads, sequence first": (by_heads("sequence first"), lambda: heads(4)),
    "heads, without batch": (by_heads("alone"), lambda: heads(4, bias=False)),
    "heads, separate projections": (by_heads("alone"), lambda: heads(kdim=8, vdim=8)),
    "heads, bool mask": (by_heads(attn_mask=~SOME), lambda: heads(batch_first=True)),
    "heads, mask by head": (by_heads(attn_mask=torch.stack([BIAS, BIAS.T])), lambda: heads(batch_first=True)),
    "heads, causal": (
        by_heads(attn_mask=lambda h: causal_mask(len(h), dtype=h.dtype), is_causal=True, need_weights=False),
        lambda: heads(batch_first=True),
    ),
    "heads, padding": (by_heads(key_padding_mask=PADDED), lambda: heads(batch_first=True)),
    "heads, padding and mask": (by_heads("sequence first", key_padding_mask=PADDED, attn_mask=~SOME), lambda: heads()),
    "heads, weights used": (weighted_numbers, lambda: heads(batch_first=True)),
    "encoder layer": (lambda layer, h: layer(h.unsqueeze(0))[0], lambda: encoder_layer(batch_first=True)),
    "encoder layer, sequence first, mask": (
        lambda layer, h: layer(h.unsqueeze(1), src_mask=~SOME)[:, 0],
        lambda: encoder_layer(norm_first=True, activation="gelu"),
    ),
    "encoder, causal": (
        lambda layer, h: layer(h.unsqueeze(0), mask=causal_mask(len(h), dtype=h.dtype), is_causal=True)[0],
        encoder,
    ),
    "encoder, padding": (lambda layer, h: layer(h.unsqueeze(0), src_key_padding_mask=PADDED)[0], encoder),
}


class Network(nn.Module):
    def __init__(self, name: str):
        super().__init__()
        self.mix, make = FORMS[name]
        self.embed, self.head = nn.Linear(2, 8), nn.Linear(8, 1)
        self.layer = make() if make else None

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.embed(x))
        return self.head(h + self.mix(self.layer, h))


def made(name: str, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Network(name).to(dtype), (torch.rand(SIZE, 2, dtype=torch.float64) * 4 - 2).to(dtype)


@pytest.fixture(autouse=True)
def quiet():
    """About masks of two kinds, and nested tensors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


@pytest.mark.parametrize("mode", ["training", "evaluation"])
@pytest.mark.parametrize("name", FORMS)
def test_every_form_agrees_with_the_per_sample_reference(name, mode):
    model, x = made(name)
    model.train(mode == "training")
    operators = [D(), D(0), D(0, 1), Laplacian()]
    reference = evaluate(model, x, operators, PerSampleAD(method="loop"))
    for engine in (AD(), Taylor()):
        for ours, exact in zip(evaluate(isolate(model, x), x, operators, engine), reference, strict=True):
            assert (ours - exact).abs().max() < 1e-11
    with torch.no_grad():  # where torch would take fused layers
        assert (isolate(model, x)(x) - reference[0]).abs().max() < 1e-11


@pytest.mark.parametrize("name", ["bool mask", "heads, padding and mask", "encoder layer"])
def test_gradients_of_parameters(name):
    model, x = made(name)
    residual = Residual(lambda u: u.laplacian() + u * u.x, ("x", "y"))
    exact = parameter_gradients(residual.loss(model, x, PerSampleAD(method="loop")), model)
    for engine in (AD(), Taylor()):
        ours = parameter_gradients(residual.loss(isolate(model, x), x, engine), model)
        assert (ours - exact).abs().max() < 1e-11


def test_fused_layers_are_back_afterwards():
    model, x = made("encoder layer")
    isolate(model, x)(x)
    assert torch.backends.mha.get_fastpath_enabled()


def test_some_samples_use_their_own_rows_of_the_mask():
    model, x = made("float mask")
    isolated = isolate(model, x)
    assert torch.allclose(isolated.at([7, 2])(x[[7, 2]] + 0.1), isolated(x + 0.1)[[7, 2]])


@pytest.mark.parametrize(
    "attend",
    [
        lambda h: F.scaled_dot_product_attention(h, h, h, dropout_p=0.1),
        nn.TransformerEncoderLayer(2, 1, 4, dropout=0.1, batch_first=True).double(),
    ],
    ids=["function", "layer"],
)
def test_dropout_in_attention_has_no_rule(attend):
    x = torch.rand(SIZE, 2, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match="dropout"):
        isolate(lambda x: attend(x.unsqueeze(0))[0], x, approximate=True)
    assert isolate(lambda x: attend(x.unsqueeze(0))[0], x).method == "each alone, in a batch of its own"
    if isinstance(attend, nn.Module):
        attend.eval()
        assert isolate(lambda x: attend(x.unsqueeze(0))[0], x).method == "each alone, in one pass"


def test_a_mask_of_another_size_is_refused():
    x, mask = torch.rand(SIZE, 2, dtype=torch.float64), torch.zeros(SIZE - 1, SIZE - 1, dtype=torch.float64)
    with pytest.raises(ModelError, match=r"The model failed on a batch of shape \(10, 2\).*\(9\)"):
        isolate(lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], attn_mask=mask)[0], x)


def test_attention_to_tokens_that_all_rows_share_mixes_nothing():
    torch.manual_seed(0)
    tokens, x = torch.randn(1, 5, 2, dtype=torch.float64), torch.rand(SIZE, 2, dtype=torch.float64)

    def shared(x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x.unsqueeze(0), tokens, tokens)[0]

    assert torch.allclose(isolate(shared, x)(x), shared(x))
