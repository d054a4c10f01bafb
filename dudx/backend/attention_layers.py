"""Attention written out, on tensors or on jets, for those who need to look inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.errors import UnsupportedError

#: From queries, keys and values (…, tokens, features), masks, whether tokens see only those before them, and the keys
#: and values of a context if there is one, to what is attended to and the weights.
Attend = Callable[..., tuple[Any, Any]]


def attended(
    query: Any, key: Any, value: Any, masks: Sequence[Any], is_causal: bool, scale: float | None = None
) -> tuple[Any, Any]:
    """What each query finds, and the weights it gives to the keys."""
    # torch.compile cannot follow jets through @.
    scores = torch.matmul(query, key.transpose(-2, -1)) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        masks = [*masks, torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()]
    weights = attention_weights(scores, masks)
    return torch.matmul(weights, value), weights


def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """What `F.scaled_dot_product_attention` computes."""
    if dropout_p or enable_gqa:
        raise UnsupportedError(
            "Attention is taken apart without dropout and with as many key heads as query heads; use dudx.AD() for "
            "others."
        )
    return attended(query, key, value, [] if attn_mask is None else [attn_mask], is_causal, scale)[0]


def multi_head_attention(
    attend: Attend,
    query: Any, key: Any, value: Any, embed_dim_to_check: int, num_heads: int, in_proj_weight: Any, in_proj_bias: Any,
    bias_k: Any, bias_v: Any, add_zero_attn: bool, dropout_p: float, out_proj_weight: Any, out_proj_bias: Any,
    training: bool = True, key_padding_mask: Any = None, need_weights: bool = True, attn_mask: Any = None,
    use_separate_proj_weight: bool = False, q_proj_weight: Any = None, k_proj_weight: Any = None,
    v_proj_weight: Any = None, static_k: Any = None, static_v: Any = None, average_attn_weights: bool = True,
    is_causal: bool = False, context: Sequence[Any] = (),
) -> tuple[Any, Any]:  # fmt: skip
    """What `F.multi_head_attention_forward` computes, with `attend(q, k, v, masks, is_causal)` in its middle.

    The key and value of a context, if given, are projected as the others are, and attend gets them as well.
    """
    if any(given is not None for given in (bias_k, bias_v, static_k, static_v)) or add_zero_attn:
        raise UnsupportedError(
            "Only nn.MultiheadAttention without extra keys and values can be taken apart; use dudx.PerSampleAD(), or "
            "dudx.AD() if samples do not mix."
        )
    if dropout_p and training:
        raise UnsupportedError(
            "nn.MultiheadAttention with dropout cannot be taken apart in training mode; make it with dropout=0, or use "
            "dudx.PerSampleAD(), or dudx.AD() if samples do not mix."
        )
    alone = query.ndim == 2
    if alone:
        query, key, value, *context = (x.unsqueeze(1) for x in (query, key, value, *context))
    projections = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight.chunk(3)
    biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)

    def heads(x: Any, weight: Tensor, bias: Tensor | None) -> Any:
        length, batch, _ = x.shape
        return F.linear(x, weight, bias).reshape(length, batch, num_heads, -1).permute(1, 2, 0, 3)

    q, k, v = (heads(x, w, b) for x, w, b in zip((query, key, value), projections, biases, strict=True))
    # Without a context there is nothing to be paired.
    kept = [heads(x, w, b) for x, w, b in zip(context, projections[1:], biases[1:], strict=False)]
    masks = []
    # As in torch, the hint that a mask is causal counts more than the mask where nothing else has to be masked.
    is_causal = is_causal and key_padding_mask is None and not need_weights
    if attn_mask is not None and not is_causal:
        masks.append(attn_mask.unflatten(0, (-1, num_heads)) if attn_mask.ndim == 3 else attn_mask)
    if key_padding_mask is not None:
        masks.append(key_padding_mask.reshape(-1, 1, 1, key_padding_mask.shape[-1]))
    # True means "not this one" here, and "this one" in scaled_dot_product_attention.
    masks = [~mask if mask.dtype == torch.bool else mask for mask in masks]
    attended, weights = attend(q, k, v, masks, is_causal, *kept)
    joined = F.linear(attended.permute(2, 0, 1, 3).flatten(2), out_proj_weight, out_proj_bias)
    if not need_weights:
        return joined.squeeze(1) if alone else joined, None
    weights = weights.mean(1) if average_attn_weights else weights
    return (joined.squeeze(1), weights.squeeze(0)) if alone else (joined, weights)


def attention_weights(scores: Any, masks: Sequence[Any]) -> Any:
    """The softmax of scores (…, tokens, keys) after masks: True where a key may be seen, or numbers to be added.

    A token that may see no key has weights of zero, as in `scaled_dot_product_attention`.
    """
    if not masks:
        return torch.softmax(scores, dim=-1)
    for mask in masks:
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask, -torch.inf)
        scores = scores + mask
    value = getattr(scores, "value", scores).detach()
    blind = (value == -torch.inf).all(-1, keepdim=True)
    nothing = torch.zeros_like(value)
    return torch.where(blind, nothing, torch.softmax(torch.where(blind, nothing, scores), dim=-1))
