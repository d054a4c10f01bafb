"""Attention over the batch, with one sample's key and value replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.engines.attention import attention_weights, multi_head_attention
from dudx.errors import InputError, UnsupportedError
from dudx.isolation.rows import Rows, mixing_rule
from dudx.isolation.statistics import plain


@mixing_rule(F.scaled_dot_product_attention)
def _scaled_dot_product(
    rows: Rows,
    function: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if not _over_the_batch(rows, query, key):
        rest = {"enable_gqa": True} if enable_gqa else {}
        return function(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **rest)
    if dropout_p or enable_gqa:
        raise UnsupportedError(
            "isolate knows attention over the batch without dropout and with as many key heads as query heads; use "
            "dudx.isolate(model, x, exact=True)."
        )
    return attend(rows, query, key, value, [] if attn_mask is None else [attn_mask], is_causal, scale)[0]


def _over_the_batch(rows: Rows, query: Any, key: Any) -> bool:
    """Whether rows attend to rows, rather than to a few tokens of their own or to tokens that all rows share."""
    return query.shape[-2] == key.shape[-2] == rows.total and rows.total not in query.shape[:-2]


@mixing_rule(F.multi_head_attention_forward)
def _multi_head(rows: Rows, function: Any, query: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
    over_the_batch = query.shape[0] == key.shape[0] == rows.total
    if not over_the_batch or (query.ndim == 3 and query.shape[1] == rows.total):
        return function(query, key, *args, **kwargs)

    def of_rows(q: Any, k: Any, v: Any, masks: Sequence[Any], is_causal: bool) -> tuple[Any, Any]:
        return attend(rows, q, k, v, masks, is_causal)

    return multi_head_attention(of_rows, query, key, *args, **kwargs)


def attend(
    rows: Rows, query: Any, key: Any, value: Any, masks: Sequence[Any], is_causal: bool, scale: float | None = None
) -> tuple[Any, Any]:
    """Every row's attention to the context in which it takes its sample's place, and the weights, (…, total, B)."""
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    keys, values = key[..., : rows.size, :], value[..., : rows.size, :]
    owners = rows.owners(plain(query).device)
    query = query * factor
    scores = torch.matmul(query, keys.transpose(-2, -1))  # torch.compile cannot follow jets through @
    if rows.replace:
        scores = _with_own(scores, owners, (query * key).sum(-1, keepdim=True))
    if is_causal:
        masks = [*masks, torch.ones(rows.size, rows.size, dtype=torch.bool, device=owners.device).tril()]
    weights = attention_weights(scores, [_of_rows(rows, mask, owners) for mask in masks])
    attended = torch.matmul(weights, values)
    if rows.replace:
        attended = attended + _own(weights, owners) * (value - values[..., owners, :])
    return attended, weights


def _with_own(scores: Any, owners: Tensor, own: Any) -> Any:
    """The scores, (…, total, B), with each row's score for its own sample replaced by (…, total, 1)."""
    if isinstance(scores, Tensor):
        return scores.scatter(-1, owners.unsqueeze(1).expand(own.shape), own)
    return torch.where(_is_own(scores, owners), own, scores)


def _own(weights: Any, owners: Tensor) -> Any:
    """The weight that each row gives its own sample, (…, total, 1)."""
    if isinstance(weights, Tensor):
        return weights.gather(-1, owners.unsqueeze(1).expand(*weights.shape[:-1], 1))
    return torch.where(_is_own(weights, owners), weights, torch.zeros_like(weights)).sum(-1, keepdim=True)


def _is_own(scores: Any, owners: Tensor) -> Tensor:
    return owners.unsqueeze(1) == torch.arange(scores.shape[-1], device=owners.device)


def _of_rows(rows: Rows, mask: Any, owners: Tensor) -> Any:
    """A mask for the batch, (…, B, B), or one the network made for all rows, as (…, total, B).

    Row j sees what its sample sees, and stands in its sample's column.
    """
    for axis in (-1, -2)[: mask.ndim]:
        length = mask.shape[axis]
        if length == rows.total:
            if rows.at_rest and _follows_inputs(rows, mask, axis, owners):
                raise UnsupportedError(
                    "isolate knows attention masks made of the samples' numbers; this one seems to be computed from "
                    "the inputs; use dudx.isolate(model, x, exact=True)."
                )
            mask = mask.narrow(axis, 0, rows.size)
        elif length not in (1, rows.size):
            raise InputError(
                f"An attention mask over the batch has a row and a column for each of the {rows.size} samples; got "
                f"shape {tuple(mask.shape)}."
            )
    return mask.index_select(-2, owners) if mask.ndim > 1 and mask.shape[-2] == rows.size else mask


def _follows_inputs(rows: Rows, mask: Tensor, axis: int, owners: Tensor) -> bool:
    """Whether a mask for all rows repeats itself as the inputs do while queries are where the context has them.

    One that is made of the rows' numbers would go on instead, unless it is the same for all of them.
    """
    of_context = mask.narrow(axis, 0, rows.size)
    constant = torch.equal(of_context, of_context.narrow(axis, 0, 1).expand_as(of_context))
    return not constant and torch.equal(mask, of_context.index_select(axis, owners))
