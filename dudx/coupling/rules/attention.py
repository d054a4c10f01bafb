"""Attention over the batch, with one sample's key and value replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.coupling.passes import ContextPass, mixing_rule
from dudx.coupling.rows import QueryRows
from dudx.errors import InputError, UnsupportedError
from dudx.layers.attention import attention_weights, multi_head_attention


def _check_mask(
    context_pass: ContextPass, function: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, *args: Any,
    **kwargs: Any,
) -> Any:  # fmt: skip
    """Attention as always; a mask that does not fit the batch is refused in words, where torch would name sizes."""
    if attn_mask is not None and query.shape[-2] == key.shape[-2] == context_pass.size:
        for length in attn_mask.shape[-2:]:
            if length not in (1, context_pass.size):
                raise InputError(
                    f"An attention mask over the batch has a row and a column for each of the {context_pass.size} "
                    f"samples; got shape {tuple(attn_mask.shape)}."
                )
    return function(query, key, value, attn_mask, *args, **kwargs)


@mixing_rule(F.scaled_dot_product_attention, context=_check_mask)
def _scaled_dot_product(
    rows: QueryRows,
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
    if not all(x.ndim - 2 in rows.axes(x) for x in (query, key, value)):  # rows that see tokens of their own, or shared
        rest = {"enable_gqa": True} if enable_gqa else {}
        return function(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **rest)
    if dropout_p or enable_gqa:
        raise UnsupportedError(
            "isolate knows attention over the batch without dropout and with as many key heads as query heads; use "
            "dudx.isolate(model, x, exact=True)."
        )
    masks = [] if attn_mask is None else [rows.of_context(attn_mask)]
    _refuse_masks_of_inputs(rows)
    keys, values = rows.of_context(key), rows.of_context(value)
    return attend(rows, query, key, value, masks, is_causal, keys, values, scale)[0]


@mixing_rule(F.multi_head_attention_forward)
def _multi_head(rows: QueryRows, function: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    if not all(rows.leads(x) for x in (query, key, value)):
        return function(query, key, value, *args, **kwargs)
    _refuse_masks_of_inputs(rows)

    def of_rows(*args: Any) -> tuple[Any, Any]:
        return attend(rows, *args)

    context = [rows.of_context(x) for x in (key, value)]
    # All the rest is the samples': weights, which are what they were, and masks.
    rest, named = rows.call.args[3:], rows.call.kwargs
    return multi_head_attention(of_rows, query, key, value, *rest, **named, context=context)


def attend(
    rows: QueryRows, query: Any, key: Any, value: Any, masks: Sequence[Any], is_causal: bool, keys: Any, values: Any,
    scale: float | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Every query's attention to the context in which it takes its sample's place, and the weights, (…, count, B).

    Keys, values and masks, (…, B, B), are the context's. A query sees what its sample sees, and its own key and value
    stand in its sample's column.
    """
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    owners = rows.owners(keys.device)
    query = query * factor
    scores = torch.matmul(query, keys.transpose(-2, -1))  # torch.compile cannot follow jets through @
    if rows.replace:
        scores = _with_own(scores, owners, (query * key).sum(-1, keepdim=True))
    if is_causal:
        masks = [*masks, torch.ones(rows.size, rows.size, dtype=torch.bool, device=owners.device).tril()]
    masks = [rows.owned(m, -2) if m.ndim > 1 and m.shape[-2] == rows.size else m for m in masks]
    weights = attention_weights(scores, masks)
    attended = torch.matmul(weights, values)
    if rows.replace:
        attended = attended + _own(weights, owners) * (value - rows.owned(values, -2))
    return attended, weights


def _with_own(scores: Any, owners: Tensor, own: Any) -> Any:
    """The scores, (…, count, B), with each row's score for its own sample replaced by (…, count, 1)."""
    if isinstance(scores, Tensor):
        return scores.scatter(-1, owners.unsqueeze(1).expand(own.shape), own)
    return torch.where(_is_own(scores, owners), own, scores)


def _own(weights: Any, owners: Tensor) -> Any:
    """The weight that each row gives its own sample, (…, count, 1)."""
    if isinstance(weights, Tensor):
        return weights.gather(-1, owners.unsqueeze(1).expand(*weights.shape[:-1], 1))
    return torch.where(_is_own(weights, owners), weights, torch.zeros_like(weights)).sum(-1, keepdim=True)


def _is_own(scores: Any, owners: Tensor) -> Tensor:
    return owners.unsqueeze(1) == torch.arange(scores.shape[-1], device=owners.device)


def _refuse_masks_of_inputs(rows: QueryRows) -> None:
    """While queries are known to have moved, a mask of the samples' numbers is still what it was for the context."""
    if not rows.moved:
        return
    named = [(now, rows.call.kwargs.get(name)) for name, now in rows.kwargs.items()]
    for now, then in [*zip(rows.args[3:], rows.call.args[3:], strict=False), *named]:
        if isinstance(now, Tensor) and isinstance(then, Tensor) and now is not then and _differ(now, then):
            raise UnsupportedError(
                "isolate knows attention masks made of the samples' numbers; this one seems to be computed from the "
                "inputs; use dudx.isolate(model, x, exact=True)."
            )


def _differ(now: Tensor, then: Tensor) -> bool:
    """Whether two masks differ where both have entries."""
    for axis in range(-min(now.ndim, then.ndim), 0):
        least = min(now.shape[axis], then.shape[axis])
        now, then = now.narrow(axis, 0, least), then.narrow(axis, 0, least)
    return not torch.equal(now, then)
