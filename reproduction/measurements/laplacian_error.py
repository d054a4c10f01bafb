"""Error of the Laplacian of networks whose samples influence each other, by method."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import dudx
from dudx.lab.run.networks import networks
from reproduction.experiment import Measurement
from reproduction.profile import Profile

NETWORK_NAMES = ("mlp", "batchnorm", "attention")
LAPLACIANS = ("batched_ad", "batched_fd", "isolated_ad", "isolated_fd", "isolated_taylor")
DTYPES = ("float32", "float64")
_CANDIDATES = 40
_RANGES = {"float32": (1e-4, 1.0), "float64": (1e-6, 1.0)}
_LAPLACIAN = dudx.Laplacian()


def measure(network: str, seed: int, epochs: int, pretraining_batch: int, points: int, width: int) -> dict[str, Any]:
    """Measure the largest difference of the Laplacian from `PerSampleAD`, by method, in FP32 and FP64."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = networks()[network](2, width=width)
    generator = torch.Generator().manual_seed(seed)
    loss = _pretrain(model, generator, epochs, pretraining_batch)
    x = _drawn(points, generator)
    found: dict[str, Any] = {"status": "ok", "loss": loss}
    for dtype in DTYPES:
        kind = getattr(torch, dtype)
        found[dtype] = _differences(copy.deepcopy(model).to(kind), x.to(kind), *_RANGES[dtype])
    return found


def _drawn(count: int, generator: torch.Generator) -> Tensor:
    """Draw points of [-1, 1]²; the domain is not published."""
    return 2 * torch.rand(count, 2, generator=generator) - 1


def _pretrain(model: nn.Module, generator: torch.Generator, epochs: int, batch: int) -> float:
    """Fit sin x · cos y, so that outputs have a common scale and batch norm has seen its data."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    last = float("nan")
    for _ in range(epochs):
        x = _drawn(batch, generator)
        loss = (model(x) - torch.sin(x[:, :1]) * torch.cos(x[:, 1:])).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        last = float(loss.detach())
    return last


def _differences(model: nn.Module, x: Tensor, smallest: float, largest: float) -> dict[str, float]:
    truth = _laplacian(model, x, dudx.PerSampleAD())
    pointwise = dudx.isolate(model, x) if dudx.coupled(model, x) else model
    steps = np.geomspace(smallest, largest, _CANDIDATES).tolist()

    def best(function: Callable[[Tensor], Tensor], **options: Any) -> Tensor:
        """Return differences with the step that comes closest to the truth.

        Not by `find_eps`, which evaluates several steps in one batch, where they would influence each other.
        """
        tried = [_laplacian(function, x, dudx.FD(step, **options)) for step in steps]
        return min(tried, key=lambda values: float((values - truth).square().mean()))

    values_of = {
        "batched_ad": _laplacian(model, x, dudx.AD(coupled="ignore")),
        "batched_fd": best(model, coupled="ignore"),
        "isolated_ad": _laplacian(pointwise, x, dudx.AD()),
        "isolated_fd": best(pointwise),
        "isolated_taylor": _laplacian(pointwise, x, dudx.Taylor()),
    }
    found = {method: float((values - truth).abs().max()) for method, values in values_of.items()}
    return {**found, "scale": float(truth.abs().max())}


def _laplacian(model: Callable[[Tensor], Tensor], x: Tensor, engine: dudx.Engine) -> Tensor:
    return dudx.evaluate(model, x, _LAPLACIAN, engine).detach()


def measurements(profile: Profile) -> list[Measurement]:
    """Return a measurement for every network and initialisation."""
    plan = profile.discrepancy.model_dump()
    count = plan.pop("networks")
    return [
        Measurement(f"discrepancy-{network}-{seed}", f"{__name__}:measure", {"network": network, "seed": seed, **plan})
        for network in NETWORK_NAMES
        for seed in range(count)
    ]
