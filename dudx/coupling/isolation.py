"""A pointwise function out of a network whose samples influence each other, on which every engine is right.

`isolate` lets one sample move and holds the others; `frozen` holds all of them. The network itself is not touched: it
runs on the context, and then on the queries, where functions that mix rows follow rules by which each query sees the
context that it should see.
"""

from __future__ import annotations

from torch import Tensor

from dudx import checks
from dudx.checks import Model
from dudx.coupling.exact import Exact
from dudx.coupling.isolated import Isolated, Together
from dudx.coupling.rows import MIXING, Rows, mixing_rule
from dudx.coupling.rules import attention, softmax, statistics  # noqa: F401  (importing them fills the table)
from dudx.coupling.verification import verify
from dudx.errors import CoupledModelError, InputError
from dudx.network.detect import slicing

__all__ = ["MIXING", "Isolated", "Rows", "frozen", "isolate", "mixing_rule"]


def isolate(model: Model, context: Tensor, update_statistics: bool = True, *, exact: bool = False) -> Isolated:
    """The network as a function of each sample alone, the other samples held at `context`.

    Row i of `isolate(model, context)(x)` is the network's output for sample i when that sample alone moves to x_i. It
    is exact for a network in which samples mix once. Where they mix in several layers, the reaction of the others'
    hidden states to sample i is left out, which is of the order of one over the batch size.

    Args:
        model: a network with batch norm in training mode, attention over the batch, or reductions over it.
        context: the batch, (B, d).
        update_statistics: let batch norm layers in training mode update their running statistics from the context,
            once a call, as the plain forward pass would.
        exact: leave nothing out, whatever the network: every row passes in a batch of its own, which is O(B²) work.
    """
    context = _checked(model, context)
    if exact:
        return Exact(model, context, update_statistics)
    isolated = Together(model, context, update_statistics)
    verify(isolated)
    return isolated


def frozen(model: Model, context: Tensor, update_statistics: bool = True) -> Isolated:
    """The network as a function of any point, seen against a context in which nothing moves.

    Means, deviations, keys and values are those of `context`, and a query does not take the place of any sample. That
    is the function a network trained with `context` offers to a new point, and it takes any number of points. At a
    point of the context it has the value of the plain forward pass, and another derivative than `isolate`: the part by
    which the point moves its own statistics, of the order of one over the batch size, is not in it. With several mixing
    layers there is nothing second-hand to leave out.

    Args:
        model: a network with batch norm in training mode, attention over the batch, or reductions over it.
        context: the batch, (B, d); gradients of parameters flow through it too.
        update_statistics: as in `isolate`.
    """
    network = Together(model, _checked(model, context), update_statistics, replace=False)
    verify(network)
    return network


def _checked(model: Model, context: Tensor) -> Tensor:
    context = checks.points(context)
    checks.model(model, context)
    if len(context) < 2:
        raise InputError("A context needs at least two samples; a single one has no others to be isolated from.")
    if len(context) < slicing():
        raise CoupledModelError(
            f"The batch of {slicing()} samples is being taken slice by slice, and a context of {len(context)} is not "
            "the whole of it: the samples of a slice would influence only each other. Make isolated = "
            "dudx.isolate(model, x) of the whole batch beforehand, or dudx.frozen, and use isolated.at(which) as the "
            "model, where which is the slice of torch.arange(len(x)) that backward gives beside that of x."
        )
    return context
