"""Attention over the batch, with one sample's key and value replaced."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.backend.attention_layers import attention_weights, multi_head_attention
from dudx.coupling.mixing_rule_table import mixing_rule
from dudx.coupling.query_rows import QueryRows
from dudx.errors import UnsupportedError


@mixing_rule(F.scaled_dot_product_attention)
def _scaled_dot_product(
    rows: QueryRows, function: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    if not all(x.ndim - 2 in rows.axes(x) for x in (query, key, value)):  # attention within rows, or to shared tokens
        rest = {"enable_gqa": True} if enable_gqa else {}
        return function(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **rest)
    if dropout_p or enable_gqa:
        raise _beyond_the_rule("dropout or shared heads")
    masks = [] if attn_mask is None else [attn_mask]
    return _attend(rows, query, key, value, masks, is_causal, rows.of_context(key), rows.of_context(value), scale)[0]


@mixing_rule(F.multi_head_attention_forward)
def _multi_head(rows: QueryRows, function: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    if not all(rows.leads(x) for x in (query, key, value)):
        return function(query, key, value, *args, **kwargs)

    def of_rows(*args: Any) -> tuple[Any, Any]:
        return _attend(rows, *args)

    context = [rows.of_context(x) for x in (key, value)]
    return multi_head_attention(of_rows, query, key, value, *args, **kwargs, context=context)


def _attend(
    rows: QueryRows, query: Any, key: Any, value: Any, masks: list[Any], is_causal: bool, keys: Any, values: Any,
    scale: float | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Return each query's attention to the context's keys and values, and the weights, (…, count, B).

    A query's own key and value replace those of its sample.
    """
    if masks or is_causal:
        raise _beyond_the_rule("masks")
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    owners = rows.owners(keys.device)
    query = query * factor
    scores = torch.matmul(query, keys.transpose(-2, -1))  # torch.compile cannot follow jets through @
    if rows.replace:
        scores = _with_own(scores, owners, (query * key).sum(-1, keepdim=True))
    weights = attention_weights(scores, [])
    attended = torch.matmul(weights, values)
    if rows.replace:
        attended = attended + _own(weights, owners) * (value - rows.owned(values, -2))
    return attended, weights


def _with_own(scores: Any, owners: Tensor, own: Any) -> Any:
    """Replace each row's score for its own sample in (…, count, B) by `own`, (…, count, 1)."""
    if isinstance(scores, Tensor):
        return scores.scatter(-1, owners.unsqueeze(1).expand(own.shape), own)
    return torch.where(_is_own(scores, owners), own, scores)


def _own(weights: Any, owners: Tensor) -> Any:
    """Return the weight of each row for its own sample, (…, count, 1)."""
    if isinstance(weights, Tensor):
        return weights.gather(-1, owners.unsqueeze(1).expand(*weights.shape[:-1], 1))
    return torch.where(_is_own(weights, owners), weights, torch.zeros_like(weights)).sum(-1, keepdim=True)


def _is_own(scores: Any, owners: Tensor) -> Tensor:
    return owners.unsqueeze(1) == torch.arange(scores.shape[-1], device=owners.device)


def _beyond_the_rule(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"The rule for attention over the batch knows no {what}; use dudx.isolate(model, x, exact=True)."
    )
