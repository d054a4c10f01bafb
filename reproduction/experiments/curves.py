"""The error of finite differences against the step on fresh networks, in every floating-point format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.quasirandom import SobolEngine

from dudx import find_eps
from dudx.lab.run.networks import MLP
from reproduction.experiments.base import CsvRows, Found, Measurement
from reproduction.experiments.data import Data
from reproduction.experiments.profile import Profile

ORDERS = (1, 2)
#: Format to dtype and range of steps, wide enough for both branches of the curve.
FORMATS = {
    "fp64": ("float64", 1e-8, 1.0),
    "fp32": ("float32", 1e-6, 1.0),
    "fp16": ("float16", 1e-3, 4.0),
    "bf16": ("bfloat16", 1e-2, 8.0),
}
OPTIMA = "optima.csv"


def measure(format: str, seed: int, width: int, depth: int, points: int, candidates: int) -> dict[str, Any]:
    """The curves of both orders on one network, a tanh MLP in two variables at Sobol points of [-1, 1]²."""
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
    """A curve for each format and network."""
    plan = profile.curves.model_dump()
    networks = plan.pop("networks")
    return [
        Measurement(f"curve-{name}-{seed}", f"{__name__}:measure", {"format": name, "seed": seed, **plan})
        for name in formats
        for seed in range(networks)
    ]


def optima_rows(found: Found) -> CsvRows:
    """The best step of every format, network and order; a line also for what could not be measured."""
    return [
        {
            "format": measurement.arguments["format"],
            "network": measurement.arguments["seed"],
            "order": order,
            "status": result["status"],
            "epsilon": result.get("epsilon"),
            "step": result.get(str(order), {}).get("step"),
            "rmse": min(result[str(order)]["rmse"]) if str(order) in result else None,
            "reason": result.get("reason"),
        }
        for measurement, result in found.measured
        for order in ORDERS
    ]


def arrays(found: Found, network: int = 0) -> dict[str, np.ndarray]:
    """The whole curves of one network, by format, order and quantity."""
    return {
        f"{measurement.arguments['format']}-{order}-{key}": np.asarray(result[str(order)][key], np.float32)
        for measurement, result in found.measured
        if measurement.arguments["seed"] == network and result["status"] == "ok"
        for order in ORDERS
        for key in ("steps", "rmse", "max_error")
    }


def read_optima(data: Data) -> list[dict[str, Any]]:
    """The best steps, with the constant C of ε_opt = C ε_m^(1/(k+2)) where they are known."""
    rows = data.rows(OPTIMA, ("format", "status"), ("network", "order", "epsilon", "step", "rmse"))
    for row in rows:
        row["constant"] = row["step"] / row["epsilon"] ** (1 / (row["order"] + 2)) if row["step"] else None
    return rows


def failure(data: Data, formats: Sequence[str], network: int = 0) -> str | None:
    """Why the curves of a network cannot be drawn, if they cannot."""
    for row in data.rows(OPTIMA, ("format", "status", "reason"), ("network",)):
        if row["format"] in formats and row["network"] == network and row["status"] != "ok":
            return f"The curve of {row['format'].upper()} {row['status']}: {row['reason']}"
    return None


def constants(rows: list[dict[str, Any]], order: int) -> Mapping[str, list[float]]:
    """The constants of an order by format, one a network."""
    return {
        name: [row["constant"] for row in rows if (row["format"], row["order"]) == (name, order) and row["constant"]]
        for name in FORMATS
    }
