"""Measure how often the 95 % intervals of unknown constants hold the true values.

    python benchmarks/error_bars.py [--repetitions 100] [--seconds 5] [--out out/error_bars.csv]

The diffusion u_t = D u_xx - k u on an interval, with two unknown constants and 50 values with noise of 2 % of the
largest value, drawn anew in each repetition. Beside the intervals of `solution.unknowns` stand those of least squares
with the exact solution, which has no network. The table grows by a row per repetition, and the next call continues it.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from scipy.optimize import least_squares

from dudx.errors import percent
from dudx.lab import Data, Dirichlet, Initial, Interval, Problem, solve

TRUE = {"D": 0.1, "k": 0.75}
NOISE, VALUES = 0.02, 50
#: The amplitudes of the sines in the initial values; with one sine alone D and k could not be told apart.
AMPLITUDES = (1.0, 0.6)


def exact(x: np.ndarray, t: np.ndarray, diffusion: float, decay: float) -> np.ndarray:
    """Evaluate the exact solution."""
    terms = zip((1, 2), AMPLITUDES, strict=True)
    return sum(a * np.sin(n * np.pi * x) * np.exp(-(diffusion * (n * np.pi) ** 2 + decay) * t) for n, a in terms)  # type: ignore[return-value]


def measurements(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw points x, t and values with noise."""
    random = np.random.default_rng(seed)
    x, t = random.uniform(0.05, 0.95, VALUES), random.uniform(0.05, 1, VALUES)
    return x, t, exact(x, t, *TRUE.values()) + NOISE * random.standard_normal(VALUES)


def problem(x: np.ndarray, t: np.ndarray, u: np.ndarray) -> Problem:
    """State the inverse problem; the first guesses are half of the true constants."""
    start = lambda x: AMPLITUDES[0] * torch.sin(math.pi * x) + AMPLITUDES[1] * torch.sin(2 * math.pi * x)  # noqa: E731
    return Problem(
        lambda u, D, k: u.t - D * u.xx + k * u,
        inputs=("x", "t"),
        domain=Interval(0, 1) * Interval(0, 1),
        conditions=[Dirichlet(u=0.0), Initial(u=start), Data(np.stack([x, t], axis=1), u=u)],
        unknowns={name: value / 2 for name, value in TRUE.items()},
    )


def repetition(seed: int, seconds: float) -> dict[str, Any]:
    """Solve one problem; return values and intervals of both methods."""
    x, t, u = measurements(seed)
    solution = solve(problem(x, t, u), seconds=seconds, width=16, quiet=True)
    row: dict[str, Any] = {"seed": seed, "steps": solution.result["epochs"]}
    fit = least_squares(lambda q: exact(x, t, *q) - u, list(TRUE.values()))
    covariance = np.linalg.inv(fit.jac.T @ fit.jac) * 2 * fit.cost / (VALUES - 2)
    reach = stats.t.ppf(0.975, VALUES - 2)
    for i, (name, found) in enumerate(solution.unknowns.items()):
        half = reach * math.sqrt(covariance[i, i])
        row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
        row |= {f"{name}_exact": fit.x[i], f"{name}_exact_low": fit.x[i] - half, f"{name}_exact_high": fit.x[i] + half}
    row["correlation"] = solution.unknowns.correlation[0, 1]
    row["correlation_exact"] = covariance[0, 1] / math.sqrt(covariance[0, 0] * covariance[1, 1])
    return row


def report(rows: list[dict[str, str]]) -> None:
    """Print coverage, mean and width of the intervals."""
    print(f"{len(rows)} repetitions\n| constant | true | method | mean | half width | intervals that hold it |")
    print("|---|---:|---|---:|---:|---:|")
    for name, true in TRUE.items():
        for method, suffix in (("dudx", ""), ("least squares, exact solution", "_exact")):
            value, low, high = (
                np.array([float(row[f"{name}{suffix}{end}"]) for row in rows]) for end in ("", "_low", "_high")
            )
            held = percent(float(np.mean((low <= true) & (true <= high))))
            print(f"| {name} | {true} | {method} | {value.mean():.4f} | {np.mean(high - low) / 2:.4f} | {held} |")
    ours, theirs = (np.mean([float(row[key]) for row in rows]) for key in ("correlation", "correlation_exact"))
    print(f"Correlation of the constants: {ours:.2f} (exact solution: {theirs:.2f}).")


def main() -> None:
    """Run the repetitions that are missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5.0, help="CPU seconds of each solution")
    parser.add_argument("--out", type=Path, default=Path("out/error_bars.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = list(csv.DictReader(options.out.open())) if options.out.exists() else []
    for seed in range(len(done), options.repetitions):
        row = repetition(seed, options.seconds)
        with options.out.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            if not done:
                writer.writeheader()
            writer.writerow(row)
        done.append({key: str(value) for key, value in row.items()})
        print(f"\r{len(done)} of {options.repetitions}", end="", flush=True)
    print("\r", end="")
    report(done[: options.repetitions])


if __name__ == "__main__":
    main()
