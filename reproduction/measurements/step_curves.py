"""Error of finite differences against the step on fresh networks, in every floating-point format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.quasirandom import SobolEngine

from dudx import find_eps
from dudx.lab.run.networks import MLP
from reproduction.experiment import ExperimentResults, Measurement
from reproduction.profile import Profile

ORDERS = (1, 2)
#: Format: dtype and range of steps, wide enough for both branches of the curve.
FORMATS = {
    "fp64": ("float64", 1e-8, 1.0),
    "fp32": ("float32", 1e-6, 1.0),
    "fp16": ("float16", 1e-3, 4.0),
    "bf16": ("bfloat16", 1e-2, 8.0),
}


def measure(format: str, seed: int, width: int, depth: int, points: int, candidates: int) -> dict[str, Any]:
    """Measure the curves of both orders on one tanh MLP in two variables, at Sobol points of [-1, 1]²."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    name, smallest, largest = FORMATS[format]
    dtype = getattr(torch, name)
    model = MLP(2, width=width, depth=depth).to(dtype)
    x = (2 * SobolEngine(2, scramble=True, seed=seed).draw(points) - 1).to(dtype)
    found: dict[str, Any] = {"status": "ok", "epsilon": torch.finfo(dtype).eps}
    for order in ORDERS:
        curve = find_eps(model, x, order, candidates=candidates, smallest=smallest, largest=largest)
        found[str(order)] = {
            "step": curve.step,
            "steps": curve.steps.tolist(),
            "rmse": curve.rmse.tolist(),
            "max_error": curve.max_error.tolist(),
        }
    return found


def measurements(profile: Profile, formats: tuple[str, ...] = tuple(FORMATS)) -> list[Measurement]:
    """Return a measurement for each format and network."""
    plan = profile.curves.model_dump()
    networks = plan.pop("networks")
    return [
        Measurement(f"curve-{name}-{seed}", f"{__name__}:measure", {"format": name, "seed": seed, **plan})
        for name in formats
        for seed in range(networks)
    ]


def curves(results: ExperimentResults, network: int = 0) -> dict[str, Mapping[str, Any]]:
    """Return the results of one network by format; curves are entries "1" and "2", by order."""
    return {arguments["format"]: result for arguments, result in results.measured if arguments["seed"] == network}


def optima(results: ExperimentResults) -> list[dict[str, Any]]:
    """Return the best step of every format, network and order, with the constant C of ε_opt = C ε_m^(1/(k+2)).

    Step and constant are None where the measurement failed.
    """
    rows = []
    for arguments, result in results.measured:
        for order in ORDERS:
            row = {"format": arguments["format"], "seed": arguments["seed"], "order": order, "status": result["status"]}
            row |= {"epsilon": result.get("epsilon"), "step": result.get(str(order), {}).get("step")}
            row["constant"] = row["step"] / row["epsilon"] ** (1 / (order + 2)) if row["step"] else None
            rows.append(row)
    return rows


def failure(results: ExperimentResults, formats: Sequence[str], network: int = 0) -> str | None:
    """Return why the curves of a network cannot be drawn, if they cannot."""
    for format, result in curves(results, network).items():
        if format in formats and result["status"] != "ok":
            return f"The curve of {format.upper()} {result['status']}: {result['reason']}"
    return None


def constants(rows: list[dict[str, Any]], order: int) -> Mapping[str, list[float]]:
    """Return the constants of an order by format, one per network."""
    return {
        name: [row["constant"] for row in rows if (row["format"], row["order"]) == (name, order) and row["constant"]]
        for name in FORMATS
    }
