"""Measure time and peak memory of a full training step (residual and backward pass) per engine.

    python benchmarks/training_step.py [--batches 8192 65536] [--repeats 15]

A 4x128 tanh network in single precision, Poisson and Burgers. Times are medians of one interleaved run; only their
ratios carry over to another machine.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from harness import Subject, make_case, measure
from rich.console import Console
from rich.table import Table

ENGINES = {
    "AD": {"engine": "AD"},
    "FD": {"engine": "FD"},
    "EFD": {"engine": "EFD"},
    "SFD": {"engine": "SFD"},
    "Taylor": {"engine": "Taylor"},
    "Taylor compiled": {"engine": "Taylor", "compile": True},
}
SLICED = {"Taylor compiled, sliced": {"engine": "Taylor", "compile": True, "chunk": "auto"}}
# Error of finite differences in single precision; exact engines agree to 1e-4 or better.
TOLERANCE = {"FD": 0.05, "EFD": 0.05, "SFD": 0.05}


def main() -> None:
    """Measure all engines and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[8192, 65536])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    table = Table(title=f"Training step, 4x128 tanh, float32, {options.threads} threads")
    for column in ("problem", "batch", "engine", "ms", "times AD", "MB", "of AD's MB"):
        table.add_column(column, justify="left" if column in ("problem", "engine") else "right")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for problem in ("poisson", "burgers"):
            for batch in options.batches:
                case = make_case(folder, inputs=2, width=128, depth=4, batch=batch) | {"problem": problem}
                subjects = [
                    Subject(name, "worker_dudx.py", case | options_of, threads=options.threads)
                    for name, options_of in (ENGINES | SLICED).items()
                ]
                measure(subjects, folder, options.repeats, TOLERANCE)
                base = subjects[0]
                for s in subjects:
                    table.add_row(
                        problem,
                        str(batch),
                        s.name,
                        f"{1e3 * s.median:.1f}",
                        f"{base.median / s.median:.2f}x faster",
                        f"{s.megabytes:.0f}",
                        f"{s.megabytes / base.megabytes:.2f}",
                    )
                table.add_section()
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
