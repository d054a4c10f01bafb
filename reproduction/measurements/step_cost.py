"""Time and peak memory of one training step, by network, variant of the derivatives, and batch size."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import dudx
from dudx.lab.run.networks import networks, sizes_taken
from dudx.network.model_checks import Model
from reproduction.experiment import Measurement
from reproduction.measurement_server import in_own_process, limit_memory, peak_megabytes
from reproduction.profile import Profile

_STEP = 2e-2  # near the best one of a fresh network in single precision; it decides nothing about the cost
_FEWEST, _MOST = 3, 50  # timed steps, of which the fastest counts


TITLES = {"mlp": "plain MLP", "batchnorm": "MLP with BN", "attention": "MLP with attention"}


def _unchanged(model: nn.Module, x: Tensor) -> Model:
    return model


@dataclass(frozen=True)
class StepVariant:
    """Variant of a step: how the network is wrapped for a batch (at every step), the engine, and how it is run."""

    wrapped: Callable[[nn.Module, Tensor], Model]
    engine: dudx.Engine
    compiled: bool = False
    sliced: bool = False


VARIANTS = {
    "batched AD": StepVariant(_unchanged, dudx.AD(coupled="ignore")),
    "per-sample AD": StepVariant(_unchanged, dudx.PerSampleAD(method="loop")),
    "FD": StepVariant(_unchanged, dudx.FD(_STEP, coupled="ignore")),
    "Taylor": StepVariant(_unchanged, dudx.Taylor()),
    "AD in slices": StepVariant(_unchanged, dudx.AD(), sliced=True),
    "FD in slices": StepVariant(_unchanged, dudx.FD(_STEP), sliced=True),
    "Taylor in slices": StepVariant(_unchanged, dudx.Taylor(), sliced=True),
    "Taylor compiled": StepVariant(_unchanged, dudx.Taylor(), compiled=True),
    "Taylor compiled in slices": StepVariant(_unchanged, dudx.Taylor(), compiled=True, sliced=True),
    "isolated AD": StepVariant(dudx.isolate, dudx.AD()),
    "isolated FD": StepVariant(dudx.isolate, dudx.FD(_STEP)),
    "isolated Taylor": StepVariant(dudx.isolate, dudx.Taylor()),
}
_PAPERS = ("batched AD", "per-sample AD", "FD")
#: Samples of the plain network are independent, so there is nothing to isolate.
LADDERS = {
    "mlp": (*_PAPERS, *(name for name in VARIANTS if name not in _PAPERS and "isolated" not in name)),
    "batchnorm": (*_PAPERS, "isolated AD", "isolated FD", "isolated Taylor"),
    "attention": (*_PAPERS, "isolated AD", "isolated FD", "isolated Taylor"),
}


def measure(
    network: str,
    variant: str,
    batch: int,
    width: int,
    depth: int,
    threads: int,
    memory_cap: int,
    seconds: float,
    device: str,
) -> dict[str, Any]:
    """Measure a full step: first and second derivatives in two variables, their mean square, its gradient."""
    torch.set_num_threads(threads)

    def make() -> Callable[[], None]:
        return _step(network, variant, batch, width, depth, device)

    # Before anything is computed here, and in_own_process: memory is measured with another allocator than time.
    # The compiler's own memory is no part of a step, so the memory is not capped there but compared with the cap.
    cap = None if VARIANTS[variant].compiled else memory_cap
    space = in_own_process(lambda: _space(make, memory_cap, device, cap))
    return space if space["status"] != "ok" else {**_time(make, seconds), **space}


def _step(network: str, variant: str, batch: int, width: int, depth: int, device: str) -> Callable[[], None]:
    torch.manual_seed(0)
    maker = networks()[network]
    model = maker(2, **sizes_taken(maker, width, depth)).to(device)
    x = (2 * torch.rand(batch, 2) - 1).to(device)
    chosen = VARIANTS[variant]
    operators = [dudx.D(0), dudx.D(1), dudx.D(0, 0), dudx.D(1, 1)]
    residual = dudx.Residual(lambda u: (u.x, u.y, u.xx, u.yy), inputs=("x", "y"), compile=chosen.compiled)
    rows = chosen.engine.rows(x, operators) if chosen.sliced else 1
    chunk = dudx.suggested_chunk(model, device, rows) if chosen.sliced else None

    def loss(part: Tensor) -> Tensor:
        if chosen.compiled:
            derivatives = residual(model, part, chosen.engine)
        else:
            derivatives = dudx.evaluate(chosen.wrapped(model, part), part, operators, chosen.engine)
        return torch.stack(list(derivatives)).sum(0).square().mean()

    def step() -> None:
        model.zero_grad(set_to_none=True)
        if chunk is None:
            loss(x).backward()
        else:
            dudx.backward(loss, x, chunk)
        if device == "cuda":
            torch.cuda.synchronize()

    return step


def _space(make: Callable[[], Callable[[], None]], cap: int, device: str, enforced: int | None) -> dict[str, Any]:
    """Measure the peak memory of a step, or report that it is above the cap."""
    if enforced is not None:
        _cap(device, enforced)
    try:
        megabytes = peak_megabytes(make, device)
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        return {"status": "memory", "reason": f"a step takes more than {cap} MiB"}
    if megabytes is not None and megabytes > cap:
        return {"status": "memory", "reason": f"a step takes {megabytes:.0f} MiB"}
    return {"status": "ok", "megabytes": megabytes}


def _time(make: Callable[[], Callable[[], None]], seconds: float) -> dict[str, Any]:
    """Measure the time of a step: the fastest of several, because other processes only add to it."""
    times = _timed(make(), seconds)
    return {"seconds": min(times), "median": sorted(times)[len(times) // 2], "steps": len(times)}


def _timed(step: Callable[[], None], seconds: float) -> list[float]:
    """Time steps until the time is up; the first ones of a process do not count."""
    first = _clocked(step)
    if first < seconds:
        step()
    times = [_clocked(step)]
    while len(times) < _MOST and (len(times) < _FEWEST or sum(times) < seconds) and sum(times) < 3 * seconds:
        times.append(_clocked(step))
    return times


def _clocked(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def _cap(device: str, megabytes: int) -> None:
    if device == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory / 2**20
        torch.cuda.set_per_process_memory_fraction(min(1.0, megabytes / total))
    else:
        limit_memory(megabytes)


def _out_of_memory(error: Exception) -> bool:
    text = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in text or "bad_alloc" in text


def measurements(profile: Profile) -> list[Measurement]:
    """Return the batches of each network and variant, from small to large; after a failure larger ones are skipped."""
    plan = profile.cost.model_dump()
    smallest, largest, patience, with_compiled = (
        plan.pop(key) for key in ("smallest", "largest", "patience", "compiled")
    )
    found = []
    for network, variants in LADDERS.items():
        for variant in (name for name in variants if with_compiled or not VARIANTS[name].compiled):
            batch, before = smallest, None
            while batch <= largest:
                arguments = {"network": network, "variant": variant, "batch": batch, "device": profile.device, **plan}
                name = f"cost-{network}-{variant.replace(' ', '-').lower()}-{batch}"
                before = Measurement(name, f"{__name__}:measure", arguments, before, _skip_after(patience))
                found.append(before)
                batch *= 2
    return found


def _skip_after(patience: float) -> Callable[[Mapping[str, Any]], str | None]:
    def reason(before: Mapping[str, Any]) -> str | None:
        if before["status"] != "ok":
            return "half the batch was too much already"
        if before["seconds"] > patience:
            return f"half the batch took {before['seconds']:.1f} s a step already"
        return None

    return reason
