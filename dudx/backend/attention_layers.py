"""Attention in elementary arithmetic, for tensors and jets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.errors import UnsupportedError

#: Signature (q, k, v, masks, is_causal, *context) -> (attended values, weights), with q, k, v and the optional keys and
#: values of a context of shape (…, tokens, features).
Attend = Callable[..., tuple[Any, Any]]

#: Function by which a transformer asks whether its tokens can be packed. Without it nothing is packed.
may_be_packed: Any = getattr(torch, "_nested_tensor_from_mask_left_aligned", None)


def attended(
    query: Any, key: Any, value: Any, masks: Sequence[Any], is_causal: bool, scale: float | None = None
) -> tuple[Any, Any]:
    """Return the attended values of each query and its weights over the keys."""
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
    """Compute `F.scaled_dot_product_attention`."""
    if dropout_p or enable_gqa:
        raise UnsupportedError(
            "dudx can write out attention only without dropout and with as many key heads as query heads; use "
            "dudx.AD() for other attention."
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
    """Compute `F.multi_head_attention_forward` with a given attention function.

    `attend` is called with projected queries, keys, values, masks and is_causal. The key and value of a `context` are
    projected like the others and passed to `attend` too. The other arguments are those of torch.
    """
    if any(given is not None for given in (bias_k, bias_v, static_k, static_v)) or add_zero_attn:
        raise UnsupportedError(
            "dudx can write out nn.MultiheadAttention only without extra keys and values; use dudx.PerSampleAD(), or "
            "dudx.AD() if samples do not mix."
        )
    if dropout_p and training:
        raise UnsupportedError(
            "dudx cannot write out nn.MultiheadAttention with dropout in training mode; create it with dropout=0, or "
            "use dudx.PerSampleAD(), or dudx.AD() if samples do not mix."
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
    # zip is not strict: the context may be empty.
    kept = [heads(x, w, b) for x, w, b in zip(context, projections[1:], biases[1:], strict=False)]
    masks = []
    # As in torch, is_causal overrides the mask if there is no other mask and no weights are needed.
    is_causal = is_causal and key_padding_mask is None and not need_weights
    if attn_mask is not None and not is_causal:
        masks.append(attn_mask.unflatten(0, (-1, num_heads)) if attn_mask.ndim == 3 else attn_mask)
    if key_padding_mask is not None:
        masks.append(key_padding_mask.reshape(-1, 1, 1, key_padding_mask.shape[-1]))
    # True excludes a key here, and includes it in scaled_dot_product_attention.
    masks = [~mask if mask.dtype == torch.bool else mask for mask in masks]
    attended, weights = attend(q, k, v, masks, is_causal, *kept)
    joined = F.linear(attended.permute(2, 0, 1, 3).flatten(2), out_proj_weight, out_proj_bias)
    if not need_weights:
        return joined.squeeze(1) if alone else joined, None
    weights = weights.mean(1) if average_attn_weights else weights
    return (joined.squeeze(1), weights.squeeze(0)) if alone else (joined, weights)


def attention_weights(scores: Any, masks: Sequence[Any]) -> Any:
    """Return the softmax of masked scores of shape (…, tokens, keys).

    A boolean mask is True where a token may attend to a key; any other mask is added to the scores. A token that may
    attend to no key has weights of zero, as in `scaled_dot_product_attention`.
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
