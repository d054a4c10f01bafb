"""Open question: does the spectrum of the residual's Jacobian differ between AD and FD, and does it predict the error?

The truncated entropy of singular values σ is the entropy of the shares p = σ / Σσ of those above a cut relative to the
largest, divided by the logarithm of the number of all of them: 1 if all are equal, near 0 if one dominates.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

import dudx
from dudx.errors import percent
from dudx.lab import plots
from reproduction.analysis.figures import plain_log
from reproduction.analysis.tables import Table
from reproduction.experiment import Experiment, ExperimentResults, Measurement
from reproduction.measurements import short_training
from reproduction.measurements.compared_methods import METHODS
from reproduction.profile import Profile

TRAINED = ("ad", "fd")
_CUT, _POINTS, _EVALUATIONS = 1e-3, 150, 6


def truncated_entropy(singular: torch.Tensor, cut: float = _CUT) -> float:
    """Return the entropy of the shares of singular values above a cut, between 0 and 1."""
    kept = singular[singular > cut * singular.max()].double()
    share = kept / kept.sum()
    return float(-(share * share.log()).sum()) / math.log(len(singular))


#: Numbers of an evaluation: step, error, and the entropy by each engine.
_EVALUATED = ("step", "error", "ad", "fd")


def measure(method: str, seed: int, epochs: int, width: int, depth: int, **sizes: int) -> dict[str, Any]:
    """Train on Burgers' equation by Adam, and compute the entropy by both engines during training."""
    torch.set_num_threads(1)
    # Points that stay for some epochs, so that spectra at the same points are compared.
    task = replace(short_training.task("burgers", seed, sizes, torch.float32), moves=False)
    model = short_training.network(task, seed, width, depth, torch.float32)
    equation = task.draw()[0]
    residual, x, found = equation.residual, equation.points[:_POINTS], {key: [] for key in _EVALUATED}

    def evaluate(step: int, engine: dudx.Engine) -> None:
        other = dudx.FD().calibrated(model, x, residual.operators(x)) if method == "ad" else engine
        both = {"ad": dudx.AD(), "fd": other}
        found["step"].append(step)
        found["error"].append(task.error(model))
        for name, each in both.items():
            singular = torch.linalg.svdvals(residual.jacobian(model, x, each)[1].double())
            found[name].append(truncated_entropy(singular))

    engine = METHODS[method].engine(task, torch.Generator())
    result = short_training.train(
        task, model, engine, epochs, max(1, epochs // _EVALUATIONS), short_training.adam, evaluate
    )
    return {**result, "evaluations": found}


def _measurements(profile: Profile) -> list[Measurement]:
    plan = short_training.plan(profile)
    sizes = {key: plan[key] for key in ("width", "depth", "batch", "boundary_batch", "initial_batch")}
    return [
        Measurement(
            f"entropy-{method}-{seed}",
            f"{__name__}:measure",
            {"method": method, "seed": seed, "epochs": profile.methods.short, **sizes},
        )
        for seed in range(profile.methods.outcomes)
        for method in short_training.some(TRAINED, profile.methods.methods)
    ]


def _rows(results: ExperimentResults) -> list[dict[str, Any]]:
    """One row per evaluation of the trainings that came to an end."""
    return [
        {**arguments, **dict(zip(_EVALUATED, values, strict=True)), "final": result["error"]}
        for arguments, result in results.measured
        if result["status"] == "ok"
        for values in zip(*(result["evaluations"][key] for key in _EVALUATED), strict=True)
    ]


def _tables(results: ExperimentResults) -> list[Table]:
    rows = _rows(results)
    steps = sorted({row["step"] for row in rows})
    lines = []
    for step in steps:
        at = [row for row in rows if row["step"] == step]
        apart = np.array([row["fd"] - row["ad"] for row in at])
        own = {method: [row for row in at if row["method"] == method] for method in TRAINED}
        lines.append(
            [
                f"{step:.0f}",
                f"{np.mean([row['ad'] for row in at]):.4f}",
                f"{apart.mean():+.1e} (largest {np.abs(apart).max():.1e})",
                *(percent(float(np.mean([row["error"] for row in own[m]]))) if own[m] else "-" for m in TRAINED),
            ]
        )
    columns = ["step", "entropy by AD", "by FD minus by AD", "error, trained with AD", "with FD"]
    return [Table(_answer(rows, steps) if rows else "No training came to its end.", columns, lines)]


def _answer(rows: list[dict[str, Any]], steps: list[float]) -> str:
    """Say whether it differs between engines by more than between seeds, and correlates with the final error."""
    last = [row for row in rows if row["step"] == steps[-1]]
    between = float(np.std([row["ad"] for row in last]))
    apart = float(np.max([abs(row["fd"] - row["ad"]) for row in rows]))
    words = [
        f"On the same network FD and AD differ by {apart:.1e} at most in the truncated entropy, and networks at the "
        f"end of their training by {between:.1e} (standard deviation)"
    ]
    ends = {m: {row["seed"]: row["ad"] for row in last if row["method"] == m} for m in TRAINED}
    moved = [ends["fd"][seed] - ends["ad"][seed] for seed in ends["ad"] if seed in ends["fd"]]
    if moved:
        words.append(f"training with FD instead of AD moves the entropy at the end by {np.mean(moved):+.1e} on average")
    half = [row for row in rows if row["step"] == steps[len(steps) // 2]]
    for method in TRAINED:
        mine = [row for row in half if row["method"] == method]
        if len(mine) > 2:
            found: Any = stats.spearmanr([row["ad"] for row in mine], [row["final"] for row in mine])
            sure = "which is more than chance" if found.pvalue < 0.05 else "which may be chance"
            words.append(
                f"over {len(mine)} trainings with {METHODS[method].label} the rank correlation of the entropy half-way "
                f"with the final error is {found.statistic:+.2f} (p = {found.pvalue:.2g}), {sure}"
            )
    return "; ".join(words) + "."


def _figure(results: ExperimentResults, path: Path) -> None:
    rows = _rows(results)
    with plots.figure(path, 2, (11, 4)) as (left, right):
        # The first one broad and pale, as the second one would hide it.
        for colour, method, width, alpha in zip(plots.COLOURS, TRAINED, (5, 1), (0.5, 1), strict=False):
            mine = [row for row in rows if row["method"] == method]
            for seed in sorted({row["seed"] for row in mine}):
                of_seed = [row for row in mine if row["seed"] == seed]
                label = f"trained with {METHODS[method].label}" if seed == 0 else None
                steps, found = [row["step"] for row in of_seed], [row["ad"] for row in of_seed]
                left.plot(steps, found, color=colour, label=label, linewidth=width, alpha=alpha)
            errors = [100 * row["error"] for row in mine]
            right.plot([row["ad"] for row in mine], errors, "o", color=colour, markersize=3 + width, alpha=alpha)
        left.set(xlabel="step of Adam", ylabel="truncated entropy")
        left.legend()
        plain_log(right, x=None)
        right.set(xlabel="truncated entropy", ylabel="relative L2 error at the same time [%]")


EXPERIMENT = Experiment(
    "entropy",
    "Truncated entropy of the residual's Jacobian with AD and FD",
    measurements=_measurements,
    tables=_tables,
    figure=_figure,
    note="A question that the paper leaves open; the measure is that of Chen et al., with the cut said above.",
    position=23,
)
