"""Verify that a network has been isolated, and find the function that mixes samples if it has not."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from dudx.backend.differentiable_kernels import SlowAttention
from dudx.coupling.exact_isolation import ExactlyIsolated
from dudx.coupling.isolated import Isolated
from dudx.coupling.mixing_detection import ROWS, mixing_calls
from dudx.coupling.mixing_rule_table import MIXING
from dudx.coupling.one_pass_isolation import OnePassIsolated
from dudx.errors import CoupledModelError, InputError, UnsupportedError, first_line
from dudx.network import model_checks
from dudx.network.model_checks import Model
from dudx.network.probe_rows import GOLDEN_RATIO, difference, probe_batch, rounding_tolerance
from dudx.network.sandbox import sandboxed, without_graph

# Number of samples, and of axes along which they move, for the error of an approximation.
_COMPARED, _DIRECTIONS = 8, 3


def one_pass_is_exact(isolated: OnePassIsolated) -> bool:
    """Return True if the outputs of queries that pass together equal those in one batch per query."""
    try:
        return not verified(isolated)
    except (CoupledModelError, UnsupportedError):  # a function without a rule; errors of the model itself are raised
        return False


def approximation_error(isolated: OnePassIsolated) -> float:
    """Return the missing part of an output's change when its sample moves (relative RMS, a few samples)."""
    if not verified(isolated):
        return 0.0
    model, context = isolated.model, isolated.context
    few = torch.linspace(0, len(context) - 1, min(len(context), _COMPARED), device=context.device).round().long()
    steps = torch.diag((1 + context.abs().amax(0)) / 100)[:_DIRECTIONS]  # small steps, close to derivatives
    moved = (context[few] + steps.unsqueeze(1)).flatten(0, 1)
    with without_graph(model, context):
        ours, exact = (_output(each.at(few), moved) for each in (isolated, ExactlyIsolated(model, context, False)))
        change = exact - _output(model, context)[few].repeat(len(steps), 1)
    return float((ours - exact).norm() / change.norm().clamp_min(torch.finfo(change.dtype).tiny))


def verified(isolated: OnePassIsolated) -> bool:
    """Raise an error unless queries are independent and exact at rest; return True if several layers mix samples."""
    model, context = isolated.model, isolated.context
    try:
        with without_graph(model, context):
            return _verified(isolated)
    except Exception as error:
        if isinstance(error, CoupledModelError | InputError | UnsupportedError):
            raise
        with without_graph(model, context):
            _output(model, context)  # raises the error of a network that fails by itself
        raise CoupledModelError(
            f"Isolated, this network fails ({first_line(error)}); here a result over the "
            "batch has a row for each sample, which it may not expect: use dudx.isolate(model, x, exact=True)."
        ) from error


def _verified(isolated: OnePassIsolated) -> bool:
    second_hand = False
    for queries, moved, kept in _moves(isolated.context):
        still, then = _output(isolated, queries), _output(isolated, moved)
        change = difference(then, still)[kept]
        if not bool((change <= rounding_tolerance(still)).all()):
            raise CoupledModelError(_blame(isolated, change))
        with sandboxed(isolated.model):
            second_hand |= isolated.passed(moved[: len(isolated.context)].clone())[1].second_hand()
    _compare(isolated)
    return second_hand


def _moves(context: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield two blocks of queries, the same with half of the rows moved far, and a mask of the rows that stayed.

    First one half of a block moves and the other half of the second block, so that for each row, rows of its sample, of
    its block and of neither have moved. The third half is unordered, for influence with the symmetry of the first two.
    """
    cloud = 1 + context.abs().amax(0)
    # Shifted, since a network may be zero on the boundary.
    queries = (context + cloud / 13).repeat(2, 1)
    first = torch.arange(len(context), device=context.device) < len(context) // 2
    squares = torch.arange(1, len(queries) + 1, dtype=torch.float64, device="cpu").square()
    scattered = (squares * GOLDEN_RATIO % 1 < 0.5).to(context.device)
    for half in (torch.cat([first, ~first]), torch.cat([~first, first]), scattered):
        yield queries, torch.where(half.unsqueeze(1), -queries - math.sqrt(2) * cloud, queries), ~half


def _output(network: Model, x: Tensor, seed: int = 0) -> Tensor:
    """Return the output of the network, isolated or not, without side effects."""
    model = network.model if isinstance(network, Isolated) else network
    with sandboxed(model, seed), SlowAttention():
        return model_checks.forward(network, x.clone()).detach()


def _compare(isolated: OnePassIsolated) -> None:
    """Raise CoupledModelError unless queries at the context have the plain output."""
    model, context = isolated.model, isolated.context
    # Two blocks, since with one a network that counts its rows would find the size of the context.
    ours = _output(isolated, context.repeat(2, 1))
    plain, other = (_output(model, context, seed).repeat(2, 1) for seed in (0, 1))
    # Different computations agree to fewer digits than equal ones.
    tolerance = torch.finfo(plain.dtype).eps ** 0.5 * plain.nan_to_num(0, 0, 0).abs().amax(0)
    if bool((difference(ours, plain) <= tolerance).all()) or not torch.equal(plain, other):
        return  # a network that draws random numbers cannot be compared
    error = float(difference(ours, plain).amax())
    raise CoupledModelError(
        f"Isolated, this network's output differs from its plain output by {error:.1e}; it computes with the number of "
        "rows, x.shape[0], perhaps, and here that is the number of queries: use dudx.isolate(model, x, exact=True)."
    )


def _blame(isolated: OnePassIsolated, change: Tensor) -> str:
    remedies = (
        "use dudx.isolate(model, x, exact=True), or dudx.PerSampleAD() as the engine, or add a rule with "
        "dudx.mixing_rule."
    )
    with contextlib.suppress(Exception):  # a network that cannot be monitored is reported without its function
        rows, _ = probe_batch(isolated.model, isolated.context, ROWS, ROWS)
        for call in mixing_calls(isolated.model, rows):
            if call.function is not None and call.function not in MIXING:
                where = f" (in module {call.module!r})" if call.module else ""
                return (
                    f"isolate has no rule for {call.name} over the batch{where}, by which the samples of this network "
                    f"influence each other; {remedies}"
                )
    return (
        "This network mixes samples in a way isolate has no rule for (rows that did not move changed by "
        f"{float(change.amax()):.1e}); {remedies}"
    )
