"""The time and peak memory of one training step, by network, way to differentiate, and batch."""

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
from reproduction.experiments.base import Measurement
from reproduction.experiments.profile import Profile
from reproduction.measuring import in_own_process, limit_memory, peak_megabytes

_STEP = 2e-2  # near the best one of a fresh network in single precision; it decides nothing about the cost
_FEWEST, _MOST = 3, 50  # steps that are timed, of which the fastest counts


def _itself(model: nn.Module, x: Tensor) -> Model:
    return model


@dataclass(frozen=True)
class Way:
    """What is made of a network and a batch, every step anew as in training, the engine, and how it is run."""

    seen: Callable[[nn.Module, Tensor], Model]
    engine: dudx.Engine
    compiled: bool = False
    sliced: bool = False


WAYS = {
    "batched AD": Way(_itself, dudx.AD(coupled="ignore")),
    "per-sample AD": Way(_itself, dudx.PerSampleAD(method="loop")),
    "FD": Way(_itself, dudx.FD(_STEP, coupled="ignore")),
    "Taylor": Way(_itself, dudx.Taylor()),
    "AD in slices": Way(_itself, dudx.AD(), sliced=True),
    "FD in slices": Way(_itself, dudx.FD(_STEP), sliced=True),
    "Taylor in slices": Way(_itself, dudx.Taylor(), sliced=True),
    "Taylor compiled": Way(_itself, dudx.Taylor(), compiled=True),
    "Taylor compiled in slices": Way(_itself, dudx.Taylor(), compiled=True, sliced=True),
    "isolated AD": Way(dudx.isolate, dudx.AD()),
    "isolated FD": Way(dudx.isolate, dudx.FD(_STEP)),
    "isolated Taylor": Way(dudx.isolate, dudx.Taylor()),
}
_PAPERS = ("batched AD", "per-sample AD", "FD")
#: Samples of the plain network are independent, so there is nothing to isolate.
LADDERS = {
    "mlp": (*_PAPERS, *(way for way in WAYS if way not in _PAPERS and "isolated" not in way)),
    "batchnorm": (*_PAPERS, "isolated AD", "isolated FD", "isolated Taylor"),
    "attention": (*_PAPERS, "isolated AD", "isolated FD", "isolated Taylor"),
}


def measure(
    network: str,
    way: str,
    batch: int,
    width: int,
    depth: int,
    threads: int,
    memory_cap: int,
    seconds: float,
    device: str,
) -> dict[str, Any]:
    """A full step: first and second derivatives in two variables, the mean square, its gradient in the parameters."""
    torch.set_num_threads(threads)

    def make() -> Callable[[], None]:
        return _step(network, way, batch, width, depth, device)

    # Before anything is computed here, and in_own_process: memory is measured with another allocator than time.
    # What a compiler needs for itself is no part of a step, so that its memory is compared in the end, and not capped.
    cap = None if WAYS[way].compiled else memory_cap
    space = in_own_process(lambda: _space(make, memory_cap, device, cap))
    return space if space["status"] != "ok" else {**_time(make, seconds), **space}


def _step(network: str, way: str, batch: int, width: int, depth: int, device: str) -> Callable[[], None]:
    torch.manual_seed(0)
    maker = networks()[network]
    model = maker(2, **sizes_taken(maker, width, depth)).to(device)
    x = (2 * torch.rand(batch, 2) - 1).to(device)
    chosen = WAYS[way]
    operators = [dudx.D(0), dudx.D(1), dudx.D(0, 0), dudx.D(1, 1)]
    residual = dudx.Residual(lambda u: (u.x, u.y, u.xx, u.yy), inputs=("x", "y"), compile=chosen.compiled)
    rows = chosen.engine.rows(x, operators) if chosen.sliced else 1
    chunk = dudx.suggested_chunk(model, device, rows) if chosen.sliced else None

    def loss(part: Tensor) -> Tensor:
        if chosen.compiled:
            derivatives = residual(model, part, chosen.engine)
        else:
            derivatives = dudx.evaluate(chosen.seen(model, part), part, operators, chosen.engine)
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
    """The peak memory of a step, or that it is above the cap."""
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
    """The time of a step: the fastest of several, because whatever else the machine does only adds to it."""
    times = _timed(make(), seconds)
    return {"seconds": min(times), "median": sorted(times)[len(times) // 2], "steps": len(times)}


def _timed(step: Callable[[], None], seconds: float) -> list[float]:
    """Steps until the time is up; the first ones of a process do not count."""
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
    """For each network and way the batches from small to large; where one goes wrong the larger ones are not tried."""
    plan = profile.cost.model_dump()
    smallest, largest, patience, with_compiled = (
        plan.pop(key) for key in ("smallest", "largest", "patience", "compiled")
    )
    found = []
    for network, ways in LADDERS.items():
        for way in (way for way in ways if with_compiled or not WAYS[way].compiled):
            batch, before = smallest, None
            while batch <= largest:
                arguments = {"network": network, "way": way, "batch": batch, "device": profile.device, **plan}
                name = f"cost-{network}-{way.replace(' ', '-').lower()}-{batch}"
                before = Measurement(name, f"{__name__}:measure", arguments, before, _hopeless(patience))
                found.append(before)
                batch *= 2
    return found


def _hopeless(patience: float) -> Callable[[Mapping[str, Any]], str | None]:
    def reason(before: Mapping[str, Any]) -> str | None:
        if before["status"] != "ok":
            return "half the batch was too much already"
        if before["seconds"] > patience:
            return f"half the batch took {before['seconds']:.1f} s a step already"
        return None

    return reason
