"""Measure the speed-up of a sweep of equal runs by several workers.

    python benchmarks/sweep_workers.py [--workers 2] [--runs 8] [--epochs 1000] [--problem burgers] [--engine ad]

The whole sweep is timed, including the start of its processes, so the runs must be longer than that: a few seconds. The
results of both sweeps are compared, bit for bit, before the ratio is printed. Other load reduces the measured ratio.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from dudx.lab.sweep import Outcome, Run, grid, run_sweep


def timed(runs: list[Run], workers: int) -> tuple[float, list[Outcome]]:
    """Run the sweep in a new folder; return its seconds and results."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        outcomes = run_sweep(runs, Path(folder), workers=workers)
        return time.perf_counter() - start, outcomes


def main() -> None:
    """Time one worker and several workers, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--problem", default="burgers")
    parser.add_argument("--engine", default="ad")
    parser.add_argument("--profile", default="cpu")
    options = parser.parse_args()
    runs = grid(
        options.profile,
        problem=options.problem,
        engine=options.engine,
        epochs=options.epochs,
        threads=1,
        seed=range(options.runs),
    )
    alone, found = timed(runs, 1)
    together, again = timed(runs, options.workers)
    errors = [[outcome.result and outcome.result["l2_relative"] for outcome in each] for each in (found, again)]
    if errors[0] != errors[1] or any(outcome.status != "finished" for outcome in found):
        raise SystemExit(f"The sweeps differ, so their times mean nothing: {errors}")
    print(
        f"{options.runs} runs of {options.epochs} epochs: {alone:.1f} s with 1 worker, {together:.1f} s with "
        f"{options.workers}, {alone / together:.2f}× faster"
    )


if __name__ == "__main__":
    main()
