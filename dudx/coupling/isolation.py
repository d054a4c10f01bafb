"""Turn a coupled network into a pointwise function, which every engine differentiates correctly.

`isolate` lets one sample move and holds the others; `frozen` holds all of them. The network is not modified. It runs on
the context and then on the queries, where functions that mix rows follow rules, so that each query sees the right
context. If no rule is exact, it runs on one batch per query.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dudx.backend import tensor_checks
from dudx.backend.outer_compile import uncompiled
from dudx.coupling.exact_isolation import ExactlyIsolated
from dudx.coupling.isolated import Isolated
from dudx.coupling.isolation_check import approximation_error, one_pass_is_exact, verified
from dudx.coupling.mixing_rule_table import MIXING, mixing_rule
from dudx.coupling.one_pass_isolation import OnePassIsolated
from dudx.engines.registry import modules_in
from dudx.errors import CoupledModelError, InputError
from dudx.network import model_checks
from dudx.network.chunking import chunked_rows
from dudx.network.model_checks import Model
from dudx.network.probe_schedule import Found, probed_on_schedule

__all__ = ["MIXING", "Isolated", "frozen", "isolate", "mixing_rule"]

list(modules_in("dudx.coupling.rules"))  # importing them fills the table


@uncompiled
def isolate(
    model: Model,
    context: Tensor,
    update_statistics: bool = True,
    *,
    exact: bool = False,
    approximate: bool = False,
) -> Isolated:
    """Return the network as a function of each sample alone, with the other samples held at `context`.

    Row i of `isolate(model, context)(x)` is the network's output for sample i when that sample alone moves to x_i,
    exactly. If samples mix in one layer, by a function that has a rule, all rows pass together, at about the cost of
    the network itself. If they mix in several layers, or by a function without a rule, every row passes in its own
    batch, which is O(B²) work. `repr` shows which method is used.

    Args:
        model: a network with batch norm in training mode, attention over the batch, or other coupling.
        context: the batch, (B, d).
        update_statistics: let batch norm layers in training mode update their running statistics from the context,
            once per call, as the plain forward pass would.
        exact: use one batch per row, without checking whether that is needed.
        approximate: evaluate all rows together also if samples mix in several layers. This leaves out the reaction of
            the others' hidden states to sample i, which is of the order of one over the batch size; `.error` is its
            measured size. A function without a rule is refused.

    Example:
        >>> x = torch.rand(10, 1, dtype=torch.float64)
        >>> centred = lambda x: x - x.mean(0)
        >>> slope = dudx.evaluate(dudx.isolate(centred, x), x, dudx.D(0), dudx.AD())
        >>> torch.allclose(slope, torch.full_like(slope, 1 - 1 / 10))  # a sample's own share of the mean
        True
    """
    if exact and approximate:
        raise InputError("exact and approximate exclude each other; choose one.")
    context = _checked(model, context)
    if exact:
        return ExactlyIsolated(model, context, update_statistics)
    isolated = OnePassIsolated(model, context, update_statistics)
    if approximate:
        isolated.error = _probed(isolated, "approximate", approximation_error, 0.0)
        return isolated
    if _probed(isolated, "isolate", one_pass_is_exact, True):
        return isolated
    return ExactlyIsolated(model, context, update_statistics)


@uncompiled
def frozen(model: Model, context: Tensor, update_statistics: bool = True) -> Isolated:
    """Return the network as a function of any point, with statistics of a fixed context.

    Means, deviations, keys and values are those of `context`, and a query replaces no sample. This is the function that
    a network trained with `context` offers to a new point; it accepts any number of points. At a point of the context
    it has the value of the plain forward pass. Its derivative differs from that of `isolate` by the part by which the
    point moves its own statistics, of the order of one over the batch size. It is exact with several mixing layers too.

    Args:
        model: a network with batch norm in training mode, attention over the batch, or reductions over it.
        context: the batch, (B, d); gradients of parameters flow through it too.
        update_statistics: as in `isolate`.

    Example:
        >>> x = torch.rand(10, 1, dtype=torch.float64)
        >>> seen = dudx.frozen(lambda x: x - x.mean(0), x)
        >>> slope = dudx.evaluate(seen, torch.rand(4, 1, dtype=torch.float64), dudx.D(0), dudx.AD())
        >>> torch.allclose(slope, torch.ones_like(slope))  # the mean does not move
        True
    """
    network = OnePassIsolated(model, _checked(model, context), update_statistics, replace=False)
    _probed(network, "frozen", verified, None)
    return network


def _probed(isolated: OnePassIsolated, purpose: str, probe: Callable[[OnePassIsolated], Found], unseen: Found) -> Found:
    """Return the result of a probe, on schedule; `unseen` if the network cannot be probed."""
    context = isolated.context.detach()
    if context.is_meta or torch.compiler.is_compiling():
        return unseen
    alike = OnePassIsolated(isolated.model, context, update_statistics=False, replace=isolated.replace)
    return probed_on_schedule(isolated.model, (purpose, tuple(context.shape), context.dtype), lambda: probe(alike))


def _checked(model: Model, context: Tensor) -> Tensor:
    context = tensor_checks.batch(context)
    tensor_checks.finite_on_schedule(context, "points")
    model_checks.model(model, context)
    if len(context) < 2:
        raise InputError("A context needs at least two samples; a single one has no others to be isolated from.")
    if len(context) < chunked_rows():
        raise CoupledModelError(
            f"The batch of {chunked_rows()} samples is being taken slice by slice, and a context of {len(context)} is "
            "not the whole of it: the samples of a slice would influence only each other. Make isolated = "
            "dudx.isolate(model, x) of the whole batch beforehand, or dudx.frozen, and use isolated.at(which) as the "
            "model, where which is the slice of torch.arange(len(x)) that backward gives beside that of x."
        )
    return context
