"""Any batch in the memory of a slice: time per point and peak memory of a training step, slice by slice.

    python benchmarks/streaming.py [--batches 1024 8192 65536 524288] [--width 128] [--repeats 3] [--threads 1]

Poisson's residual, its mean square and the gradient in all parameters; a tanh network of four hidden layers, float32.
Slices are as `dudx.suggested_chunk` has them. All engines and batches take turns, so ratios are of one run, and in a
turn each takes as many steps as make the points of the largest batch: a short step would find a fast moment of the
machine that a long one cannot.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from harness import Subject, make_case, measure
from rich.console import Console
from rich.table import Table
from training_step import ENGINES as DIFFERENT

ENGINES = DIFFERENT | {"FD compiled": {"engine": "FD", "compile": True}}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[2**10, 2**13, 2**16, 2**19])
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    options = parser.parse_args()
    table = Table(title=f"Training step in slices, Poisson, 4x{options.width} tanh, {options.threads} thread(s)")
    table.add_column("engine")
    for batch in options.batches:
        table.add_column(f"{batch}: us a point", justify="right")
        table.add_column("MB", justify="right")
    table.add_column("largest batch, of the best", justify="right")
    with tempfile.TemporaryDirectory() as temporary:
        cases = {
            batch: make_case(Path(temporary), 2, options.width, 4, batch) | {"problem": "poisson", "chunk": "auto"}
            for batch in options.batches
        }
        subjects = {
            (name, batch): Subject(
                f"{name} {batch}",
                "worker_dudx.py",
                case | ENGINES[name],
                threads=options.threads,
                steps=max(options.batches) // batch,
            )
            for name in options.engines
            for batch, case in cases.items()
        }
        # Batches differ, so there is no residual that all would share; the tests check slices against the whole.
        measure(list(subjects.values()), Path(temporary), options.repeats)
    for name in options.engines:
        own = [subjects[name, batch] for batch in options.batches]
        micro = [1e6 * s.median / batch for s, batch in zip(own, options.batches, strict=True)]
        cells = [text for t, s in zip(micro, own, strict=True) for text in (f"{t:.1f}", f"{s.megabytes:.0f}")]
        table.add_row(name, *cells, f"{micro[-1] / min(micro):.2f}x")
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
