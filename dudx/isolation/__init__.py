"""A pointwise function out of a network whose samples influence each other.

Row i of `isolate(model, context)(x)` is the network's output for sample i when that sample alone moves to x_i and the
others stay where `context` has them. All rows pass together, the context first: layers that mix rows give each query
row the context with entry i replaced by the query itself. The result is pointwise, so every engine is right on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dudx import checks
from dudx.checks import Model
from dudx.coupling import unobserved
from dudx.engines.attention import multi_head_attention
from dudx.engines.jet import Jet
from dudx.errors import CoupledModelError, InputError

#: What to do instead of a torch function that mixes rows: called with the rows' layout and the function's arguments.
MIXING: dict[object, Callable[..., Any]] = {}


def mixing_rule(*functions: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register how a function that mixes the rows of a batch acts on context and queries.

    The rule is called as `rule(rows, function, *args, **kwargs)`. Where the call mixes no rows, it returns
    `function(*args, **kwargs)`.
    """

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        MIXING.update(dict.fromkeys(functions, rule))
        return rule

    return register


def isolate(model: Model, context: Tensor, update_statistics: bool = True) -> Isolated:
    """The network as a function of each sample alone, the other samples held at `context`.

    Exact for a network in which samples mix once. Where they mix in several layers, the reaction of the others' hidden
    states to sample i is left out, which is of the order of one over the batch size.

    Args:
        model: a network with batch norm in training mode, attention over the batch, or reductions over it.
        context: the batch, (B, d).
        update_statistics: let batch norm layers in training mode update their running statistics from the context,
            once a call, as the plain forward pass would.
    """
    context = checks.points(context)
    model = checks.model(model, context)
    if len(context) < 2:
        raise InputError("A context needs at least two samples; a single one has no others to be isolated from.")
    isolated = Isolated(model, context, update_statistics)
    isolated.verify()
    return isolated


class Isolated:
    """What `isolate` returns: a callable from (k·B, d) to (k·B, m), row j belonging to sample j mod B."""

    #: Verified when it was made, so that engines need not probe it again.
    pointwise = True

    def __init__(self, model: Model, context: Tensor, update_statistics: bool):
        self.model, self.context, self.update_statistics = model, context, update_statistics

    def __call__(self, x: Any) -> Any:
        """The output at the query rows; blocks of B rows, as stencils have them, pass together."""
        size = len(self.context)
        if x.shape[0] % size:
            raise InputError(
                f"An isolated network has {size} samples, so it takes {size} rows or a multiple; got {x.shape[0]}."
            )
        with _Mode(Rows(size, size + x.shape[0], self.update_statistics)):
            return self.model(torch.cat([self.context, x]))[size:]

    def verify(self) -> None:
        """Make sure that no mixing function went unnoticed: move half of the queries and look at the others."""
        first = torch.arange(len(self.context), device=self.context.device).unsqueeze(1) < len(self.context) // 2
        moved = torch.where(first, self.context + (1 + self.context.abs().amax(dim=0)), self.context)
        outputs = []
        with torch.no_grad():
            for queries in (self.context, moved):
                with unobserved(self.model, self.context.device):
                    outputs.append(checks.forward(self, queries))
            still = outputs[0]
            change = (outputs[1] - still).masked_fill(first, 0).abs().amax()
            tolerance = 64 * torch.finfo(still.dtype).eps * (1 + still.abs().amax())
        if not bool(change <= tolerance):
            raise CoupledModelError(
                "This network mixes samples in a way isolate has no rule for (rows that did not move changed by "
                f"{float(change):.1e}); use dudx.PerSampleAD() as the engine, or add a rule with dudx.mixing_rule."
            )


class Rows:
    """Where the rows are: `size` of context, then queries up to `total`."""

    def __init__(self, size: int, total: int, update_statistics: bool):
        self.size, self.total, self.update_statistics = size, total, update_statistics

    def leads(self, x: Any) -> bool:
        """Whether the first axis of x counts the rows."""
        return isinstance(getattr(x, "shape", None), torch.Size) and x.ndim > 0 and x.shape[0] == self.total

    def split(self, x: Any) -> tuple[Any, Any]:
        """The context (B, …) and the queries (k, B, …)."""
        return x[: self.size], x[self.size :].reshape(-1, self.size, *x.shape[1:])

    def join(self, context: Any, queries: Any) -> Any:
        """Context and queries as rows again."""
        return torch.cat([context, queries.reshape(-1, *queries.shape[2:])])


class _Mode(TorchFunctionMode):
    def __init__(self, rows: Rows):
        super().__init__()
        self.rows = rows

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rule, original = MIXING.get(func), _Original(func)
        return original(*args, **(kwargs or {})) if rule is None else rule(self.rows, original, *args, **(kwargs or {}))


class _Original:
    """A torch function as it is without isolation, for tensors and jets; methods of Tensor would refuse a jet."""

    def __init__(self, function: Any):
        self.function, self.__name__ = function, getattr(function, "__name__", "")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], Jet):
            return Jet.__torch_function__(self.function, (), args, kwargs)
        return self.function(*args, **kwargs)


# -- rules -----------------------------------------------------------------------------------------------------------


def _moments(rows: Rows, x: Any) -> tuple[Any, Any, Any, Any]:
    """Mean and variance over the batch, of the context and of the context with each query in its sample's place.

    With the deviation δ = q - c of the one entry that moves, the mean moves by δ/B, and the sum of squares about the
    context's mean by (q - m)² - (c - m)²: no difference of large numbers.
    """
    context, queries = rows.split(x)
    mean = context.mean(0, keepdim=True)
    variance = ((context - mean) * (context - mean)).mean(0, keepdim=True)
    shift = (queries - context) / rows.size
    away, before = queries - mean, context - mean
    own_variance = variance + (away * away - before * before) / rows.size - shift * shift
    return mean, variance, mean + shift, own_variance


@mixing_rule(F.batch_norm)
def _batch_norm(
    rows: Rows,
    function: Any,
    x: Any,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if not training or not rows.leads(x):
        return function(x, running_mean, running_var, weight, bias, training, momentum, eps)
    if x.ndim != 2:
        raise InputError("isolate knows batch norm of features, (B, channels); reshape, or use dudx.PerSampleAD().")
    mean, variance, own_mean, own_variance = _moments(rows, x)
    if rows.update_statistics and running_mean is not None and running_var is not None:
        with torch.no_grad():
            plain_mean, plain_variance = (getattr(t, "value", t).detach().flatten() for t in (mean, variance))
            running_mean.lerp_(plain_mean, momentum)
            running_var.lerp_(plain_variance * (rows.size / (rows.size - 1)), momentum)
    context, queries = rows.split(x)
    normal = rows.join(
        (context - mean) * torch.rsqrt(variance + eps), (queries - own_mean) * torch.rsqrt(own_variance + eps)
    )
    normal = normal if weight is None else normal * weight
    return normal if bias is None else normal + bias


def _over_batch(dim: Any, ndim: int) -> bool:
    """Whether a reduction is over the first axis and no other."""
    axes = [dim] if isinstance(dim, int) else list(dim) if dim is not None else []
    return [axis % ndim for axis in axes] == [0]


@mixing_rule(torch.mean, Tensor.mean, torch.sum, Tensor.sum, torch.var, Tensor.var, torch.std, Tensor.std)
def _reduction(rows: Rows, function: Any, x: Any, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A reduction over the batch gives each row its own result, which broadcasts as the one result would."""
    if dim is None or not rows.leads(x) or not _over_batch(dim, x.ndim):
        return function(x, *(() if dim is None else (dim,)), *args, **kwargs)
    mean, variance, own_mean, own_variance = _moments(rows, x)
    name = function.__name__
    if name in ("mean", "sum"):
        together = rows.join(mean.expand(rows.size, *x.shape[1:]), own_mean)
        return together if name == "mean" else together * rows.size
    correction = kwargs.get("correction", int(args[0] if args else kwargs.get("unbiased", True)))
    together = rows.join(variance.expand(rows.size, *x.shape[1:]), own_variance) * (
        rows.size / (rows.size - correction)
    )
    return together if name == "var" else torch.sqrt(together)


@mixing_rule(torch.softmax, Tensor.softmax, F.softmax)
def _softmax(rows: Rows, function: Any, x: Any, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    if not rows.leads(x) or dim is None or not _over_batch(dim, x.ndim):
        return function(x, dim, *args, **kwargs)
    context, queries = rows.split(x)
    # One common shift for context and queries keeps the exponentials finite without changing the quotient.
    largest = getattr(x, "value", x).detach().amax(0, keepdim=True)
    weights, own = torch.exp(context - largest), torch.exp(queries - largest)
    total = weights.sum(0, keepdim=True)
    return rows.join(weights / total, own / (total + own - weights))


def _attention(
    rows: Rows,
    function: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    **rest: Any,
) -> Any:
    if query.shape[-2] != rows.total or rows.total in query.shape[:-2]:
        return function(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **rest)
    if attn_mask is not None or is_causal or dropout_p or any(rest.values()):
        raise InputError("isolate knows attention over the batch without masks and dropout; use dudx.PerSampleAD().")
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    keys, values = key[..., : rows.size, :], value[..., : rows.size, :]
    device = getattr(query, "value", query).device
    number = torch.arange(rows.total, device=device)
    # Row j stands for sample j mod B, whose entry it replaces by itself; rows of the context replace nothing new.
    own = (number % rows.size).unsqueeze(1) == number[: rows.size]
    scores = torch.where(own, (query * key).sum(-1, keepdim=True) * scale, query @ keys.transpose(-2, -1) * scale)
    weights = torch.softmax(scores, dim=-1)
    of_own = torch.where(own, weights, torch.zeros_like(weights)).sum(-1, keepdim=True)
    places = number % rows.size
    return weights @ values + of_own * (value - values[..., places, :])


mixing_rule(F.scaled_dot_product_attention)(_attention)


@mixing_rule(F.multi_head_attention_forward)
def _multi_head_attention(rows: Rows, function: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
    if query.ndim == 3 and (query.shape[0] != rows.total or query.shape[1] == rows.total):
        return function(query, *args, **kwargs)

    def attend(q: Any, k: Any, v: Any, mask: Tensor | None, is_causal: bool) -> Any:
        return _attention(rows, F.scaled_dot_product_attention, q, k, v, mask, is_causal=is_causal)

    return multi_head_attention(attend, query, *args, **kwargs)
