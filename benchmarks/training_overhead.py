"""Measure the share of gradients in the time of an epoch.

    python benchmarks/training_overhead.py [--epochs 40] [--batch 8192] [--engine ad]

The trainer runs as users run it, with logging and progress display. The time of gradients (residuals forward and
backward) is measured separately.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dudx.errors import percent
from dudx.lab import make_settings, problem
from dudx.lab.run.trainer import Trainer


def timed(owner: Any, name: str, spent: dict[str, float], label: str) -> None:
    """Replace a method by one that adds its time to `spent[label]`."""
    original: Callable[..., Any] = getattr(owner, name)

    def measured(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            spent[label] += time.perf_counter() - start

    setattr(owner, name, measured)


def main() -> None:
    """Measure each problem and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--engine", default="ad")
    options = parser.parse_args()
    table = Table(title=f"Share of an epoch's time, {options.engine}, batch {options.batch}, settings of the paper")
    for column in ("problem", "ms an epoch", "network passes", "sampling", "optimizer", "the rest"):
        table.add_column(column, justify="right")
    for name in ("poisson", "burgers", "heat"):
        spent: dict[str, float] = defaultdict(float)
        settings = make_settings(
            name, "paper", engine=options.engine, epochs=options.epochs, batch=options.batch, evaluate_every=10**9
        )
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(problem(name), settings, Path(folder))
            timed(trainer.objective, "gradient", spent, "network")
            timed(trainer.objective, "draw", spent, "sampling")
            timed(trainer.optimizer, "step", spent, "optimizer")
            trainer.evaluation.arrays = lambda: {}  # evaluation at the reference's points is not part of an epoch
            start = time.perf_counter()
            trainer.run()
            whole = time.perf_counter() - start
        rest = whole - sum(spent.values())
        shares = [spent["network"], spent["sampling"], spent["optimizer"], rest]
        table.add_row(name, f"{1e3 * whole / options.epochs:.1f}", *(percent(share / whole) for share in shares))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
