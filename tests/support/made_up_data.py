"""Results of experiments, made up so that claims hold, or do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dudx.lab.run.settings import make_settings
from reproduction.analysis.claims import Claim
from reproduction.experiment import ExperimentResults
from reproduction.experiments import experiments

EXPERIMENTS = experiments()
NOISE = (1.0, 1.1, 0.93, 1.05, 0.97)  # of the seeds, the same for all engines, as points are
JITTER = (0.99, 1.01, 1.0, 1.005, 0.995)
MACHINES = [{"dudx": "0.1.0", "torch": "2", "commit": "abc", "count": 3}]


def errors(level: float, jitter: Sequence[float] = (1.0,) * 5) -> dict[int, float]:
    return {seed: level * noise * more for seed, (noise, more) in enumerate(zip(NOISE, jitter, strict=True))}


def run_rows(problem: str, levels: dict[str, dict[int, float]], **more: Any) -> list[dict[str, Any]]:
    settings = make_settings("poisson", "smoke").model_dump(exclude_none=True)
    return [
        {
            "name": "-".join([problem, engine, *map(str, more.values()), str(seed)]),
            **{"problem": problem, "engine": engine, "network": "mlp", "coupled": "isolate", "recalibrate": 250},
            **{"dtype": "float32", "seed": seed, "status": "finished", "epochs": 10, "l2_relative": error},
            **{"smape": 5.0, "max_error": 0.1, "seconds": 1.0, "cpu_seconds": None, "curve": None, "prediction": None},
            **{"reason": None, "settings": settings, **more},
        }
        for engine, by_seed in levels.items()
        for seed, error in by_seed.items()
    ]


def results(runs: Sequence[dict[str, Any]] = (), measured: Sequence[dict[str, Any]] = ()) -> ExperimentResults:
    """Results of an experiment; a measured row holds arguments and result in one."""
    return ExperimentResults(runs, [(row, row) for row in measured], MACHINES)


def verdicts(found: ExperimentResults, experiment: str) -> dict[str, str]:
    claims: list[Claim] = EXPERIMENTS[experiment].claims(found)
    return {claim.text: claim.verdict for claim in claims}


def cost_rows(batched_ad: float, memory: float) -> list[dict[str, Any]]:
    """FD takes 1 ms and 10 MiB; the batched idiom takes as much more, and the loop a thousand times as much."""
    factors = {"batched AD": (batched_ad, memory), "per-sample AD": (1000.0, 60.0), "FD": (1.0, 1.0)}
    return [
        {"network": network, "variant": variant, "batch": batch, "status": "ok"}
        | {"seconds": 1e-3 * batch * time, "megabytes": 10 * batch * space, "reason": ""}
        for network in ("mlp", "batchnorm")
        for variant, (time, space) in factors.items()
        for batch in (64, 128, 256)
    ]
