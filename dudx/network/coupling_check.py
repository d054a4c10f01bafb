"""Detect coupled networks, whose samples influence each other, and refuse them."""

from __future__ import annotations

import torch
from torch import Tensor

from dudx.backend import tensor_checks
from dudx.backend.active_modes import transforms_active, vmap_active
from dudx.errors import CoupledModelError, InputError, ModelError, first_line
from dudx.network import model_checks
from dudx.network.batch_bound import Pointwise
from dudx.network.chunking import CHUNKED_ROWS, chunked_rows
from dudx.network.double_precision import in_double
from dudx.network.model_checks import Model
from dudx.network.probe_rows import difference, perturbations, probe_batch, rounding_tolerance
from dudx.network.probe_schedule import NetworkRecord, probed_on_schedule
from dudx.network.row_dependence import refuse_if_rows_are_counted
from dudx.network.sandbox import output_of

# Influence shows in a few rows, so a probe does not need the whole batch.
_PROBE_ROWS = 16
#: Ratio of rounding to the response of a moved row above which the probe is repeated in double precision.
_HIDDEN = 1e-3

#: The message of the refusal: the problem, and the line that solves it.
REFUSAL = (
    "The samples of this network's batch influence each other, as they do in batch norm in training mode and in "
    "attention over the batch. Each sample's own derivative is that of dudx.isolate(model, x), or by the slower engine "
    "dudx.PerSampleAD(); training works best with dudx.frozen(model, context), one fixed context in all terms of the "
    "loss; print(dudx.explain(model, x)) says which layer it is."
)
#: The message for chunked evaluation, in which no engine is right for coupled networks.
_REFUSAL_OF_SLICES = (
    "The samples of this network's batch influence each other, so a slice of the batch is another batch with other "
    "derivatives. Isolate the whole batch beforehand, isolated = dudx.isolate(model, x), and use isolated.at(which) as "
    "the model, where which is the slice of torch.arange(len(x)) that backward gives beside that of x; or take the "
    "batch whole, without a chunk."
)


def coupled(model: Model, x: Tensor) -> bool:
    """Return True if a sample's output depends on another sample's input, in the model's present mode.

    Some rows are moved, and the outputs of the others are compared. The model's state (running statistics, counters)
    and the random state are restored.

    Example:
        >>> x = torch.rand(10, 2)
        >>> dudx.coupled(torch.sin, x), dudx.coupled(lambda x: x - x.mean(0), x)
        (False, True)
    """
    x = tensor_checks.points(x)
    return _probe(model_checks.model(model, x), x)


def refuse_if_coupled(model: Model, x: Tensor) -> NetworkRecord:
    """Raise CoupledModelError for a coupled network; probe at the 1st, 2nd, 4th, 8th ... call in a mode.

    Repeated probes find influence that training switches on later, such as a zero-initialised output projection.
    Returns the record of other checks since the last probe.
    """
    if x.is_meta or torch.compiler.is_compiling() or isinstance(model, Pointwise):
        return NetworkRecord()
    if transforms_active() and vmap_active():
        return probed_on_schedule(model, "vmap", NetworkRecord)
    return probed_on_schedule(model, "chunks" if CHUNKED_ROWS.get() else "coupling", lambda: _uncoupled(model, x))


def _uncoupled(model: Model, x: Tensor) -> NetworkRecord:
    if _probe(model, x):
        raise CoupledModelError(_REFUSAL_OF_SLICES if chunked_rows() else REFUSAL)
    if chunked_rows():
        refuse_if_rows_are_counted(model, x, "a chunk of the batch passes", CHUNKED_ROWS.get(), len(x))
    return NetworkRecord()


def _probe(model: Model, x: Tensor) -> bool:
    if x.is_meta:
        raise InputError("The meta device holds no values, so coupling cannot be measured; use real points.")
    try:
        return _influence(model, x)
    except Exception as error:
        output_of(model, x.detach())  # raises the error of a network that fails by itself
        raise ModelError(
            f"The network fails where some of the points are moved away ({first_line(error)}), by which it is found "
            "out whether samples influence each other. If you know that they do not, say so to the engine: "
            "coupled='ignore', as in dudx.AD(coupled='ignore')."
        ) from error


def _influence(model: Model, x: Tensor) -> bool:
    """Return True if rows that stay change when others move."""
    with torch.no_grad():
        rows, still = probe_batch(model, x, least=4, most=_PROBE_ROWS)
        tolerance = rounding_tolerance(still)
        found, response = _influence_at(model, rows, still, tolerance)
        if found or bool((tolerance <= _HIDDEN * response).all()):
            return found
        # The output is so large relative to its changes that influence may look like rounding.
        double = in_double(model, rows)
        if double is not None:
            rows = rows.double()
            still = output_of(double, rows)
            return _influence_at(double, rows, still, rounding_tolerance(still))[0]
        smallest = torch.finfo(still.dtype).eps * still.masked_fill(~still.isfinite(), 0).abs().amax(0)
        return _influence_at(model, rows, still, smallest)[0]


def _influence_at(model: Model, rows: Tensor, still: Tensor, tolerance: Tensor) -> tuple[bool, Tensor]:
    """Return whether rows that stay change by more than a tolerance (m,), and the largest change (m,) of moved rows."""
    response = torch.zeros_like(tolerance)
    repeated = False
    for moved, block in perturbations(rows):
        changes = difference(output_of(model, moved), still)
        response = torch.maximum(response, changes.masked_fill(~block | ~changes.isfinite(), 0).amax(0))
        change = changes.masked_fill(block, 0).amax(0)
        if bool((change <= tolerance).all()):  # False for a NaN in a row that stayed, which is influence
            continue
        if not repeated:
            tolerance, repeated = tolerance + 10 * _noise(model, rows, still), True
        if not bool((change <= tolerance).all()):
            return True, response
    return False, response


def _noise(model: Model, rows: Tensor, still: Tensor) -> Tensor:
    """Measure changes (m,) of the output between equal passes, as by sums whose order varies."""
    noise = torch.zeros_like(still[0])
    for _ in range(4):
        noise = torch.maximum(noise, difference(output_of(model, rows), still).amax(0))
        if not bool(noise.any()):  # the usual case; a single sample of noise may be small by chance
            break
    return noise
