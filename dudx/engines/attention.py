"""`nn.MultiheadAttention` written out, for those who need to look inside: on tensors or on jets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from dudx.errors import UnsupportedError


def multi_head_attention(
    attend: Callable[[Any, Any, Any, Tensor | None, bool], Any],
    query: Any, key: Any, value: Any, embed_dim_to_check: int, num_heads: int, in_proj_weight: Any, in_proj_bias: Any,
    bias_k: Any, bias_v: Any, add_zero_attn: bool, dropout_p: float, out_proj_weight: Any, out_proj_bias: Any,
    training: bool = True, key_padding_mask: Any = None, need_weights: bool = True, attn_mask: Any = None,
    use_separate_proj_weight: bool = False, q_proj_weight: Any = None, k_proj_weight: Any = None,
    v_proj_weight: Any = None, static_k: Any = None, static_v: Any = None, average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Any, None]:  # fmt: skip
    """What `F.multi_head_attention_forward` computes, with `attend(q, k, v, mask, is_causal)` in its middle.

    The weights are not returned, even if they were asked for: no derivative needs them.
    """
    unusual = (bias_k, bias_v, key_padding_mask, static_k, static_v)
    if any(given is not None for given in unusual) or add_zero_attn or (dropout_p and training):
        raise UnsupportedError(
            "Only nn.MultiheadAttention without padding, extra biases and dropout can be taken apart; use "
            "dudx.PerSampleAD(), or dudx.AD() if samples do not mix."
        )
    alone = query.ndim == 2
    if alone:
        query, key, value = (x.unsqueeze(1) for x in (query, key, value))
    projections = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight.chunk(3)
    biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)

    def heads(x: Any, weight: Tensor, bias: Tensor | None) -> Any:
        length, batch, _ = x.shape
        return F.linear(x, weight, bias).reshape(length, batch, num_heads, -1).permute(1, 2, 0, 3)

    q, k, v = (heads(x, w, b) for x, w, b in zip((query, key, value), projections, biases, strict=True))
    attended = attend(q, k, v, attn_mask, is_causal and attn_mask is None)
    joined = F.linear(attended.permute(2, 0, 1, 3).flatten(2), out_proj_weight, out_proj_bias)
    return joined.squeeze(1) if alone else joined, None
