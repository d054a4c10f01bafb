"""Measure time per point and peak memory of a training step that is computed slice by slice.

    python benchmarks/streaming.py [--batches 1024 8192 65536 524288] [--width 128] [--repeats 3] [--threads 1]
    python benchmarks/streaming.py --batches 8192 65536 --threads 2 --chunks auto 512 1024 2048 4096 8192 --repeats 15
    python benchmarks/streaming.py --batches 8192 --returned

Poisson's residual, its mean square and the gradient in all parameters; a tanh network of four hidden layers, float32.
Slices have the size of `dudx.suggested_chunk`. The second command compares that size with others, the third measures
`dudx.keep_freed_memory`. All rows and batches are measured in turn, so ratios are from one run. Each row processes as
many points per turn as the largest batch has, so that short steps do not profit from short idle periods.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from harness import Subject, make_case, measure
from rich.console import Console
from rich.table import Table
from training_step import ENGINES as DIFFERENT
from worker_dudx import TrainingStep

ENGINES = DIFFERENT | {"FD compiled": {"engine": "FD", "compile": True}}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[2**10, 2**13, 2**16, 2**19])
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--chunks", nargs="+", default=["auto"], help="points per slice; auto is the suggested number")
    parser.add_argument("--returned", action="store_true", help="also with freed memory returned to the system")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)  # the suggested number depends on it
    with tempfile.TemporaryDirectory() as temporary:
        cases = {batch: make_case(Path(temporary), 2, options.width, 4, batch) for batch in options.batches}
        subjects: dict[tuple[str, str, int], Subject] = {}
        for name in options.engines:
            for chunk in options.chunks:
                for returned in (False, True) if options.returned else (False,):
                    wanted = {"problem": "poisson", "chunk": size(chunk), "return": returned, **ENGINES[name]}
                    row = f"slices of {suggested(cases, wanted)}" + ", memory returned" * returned
                    for batch, case in cases.items():
                        subjects[name, f"{row}{', suggested' * (chunk == 'auto')}", batch] = Subject(
                            f"{name} {row} {batch}",
                            "worker_dudx.py",
                            case | wanted,
                            threads=options.threads,
                            steps=max(options.batches) // batch,
                        )
        # Batches differ, so no residual is common to all; the tests compare slices with the whole batch.
        measure(list(subjects.values()), Path(temporary), options.repeats)
    print_table(subjects, options)


def size(chunk: str) -> str | int:
    """Parse the number of points per slice: "auto" or a number."""
    return chunk if chunk == "auto" else int(chunk)


def suggested(cases: dict[int, dict[str, Any]], wanted: dict[str, Any]) -> int | None:
    """Return the points per slice, as a worker would choose them."""
    return TrainingStep(next(iter(cases.values())) | wanted | {"compile": False}).chunk


def print_table(subjects: dict[tuple[str, str, int], Subject], options: argparse.Namespace) -> None:
    """Print time per point (also relative to the engine's fastest row) and memory per batch."""
    table = Table(title=f"Training step in slices, Poisson, 4x{options.width} tanh, {options.threads} thread(s)")
    table.add_column("engine")
    table.add_column("slices")
    for batch in options.batches:
        table.add_column(f"{batch}: us a point", justify="right")
        table.add_column("of the best row", justify="right")
        table.add_column("MB", justify="right")
    table.add_column("largest batch, of the best", justify="right")
    for name, row in dict.fromkeys((name, row) for name, row, _ in subjects):
        own = [subjects[name, row, batch] for batch in options.batches]
        micro = [1e6 * s.median / batch for s, batch in zip(own, options.batches, strict=True)]
        cells = []
        for subject, time, batch in zip(own, micro, options.batches, strict=True):
            best = min(s.median for (engine, _, b), s in subjects.items() if engine == name and b == batch)
            cells += [f"{time:.1f}", f"{subject.median / best:.2f}", f"{subject.megabytes:.0f}"]
        table.add_row(name, row, *cells, f"{micro[-1] / min(micro):.2f}x")
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
