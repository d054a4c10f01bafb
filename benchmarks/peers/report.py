"""Write the results as a Markdown table and a picture of time and memory against the batch.

    cd benchmarks && ../.venv/bin/python -m peers.report [--out ../runs/peers] [--problem poisson] [--publish ../docs]

Tables contain every problem and width; the picture shows one of them. `--publish` copies table, picture and rows into
the documentation.
"""

from __future__ import annotations

import argparse
import itertools
import math
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # after choosing a backend without a screen
from harness import HERE
from matplotlib.axes import Axes
from peers.results import Results, Row
from peers.subjects import BASE, entries
from pictures import against_the_batch

#: Okabe and Ito's colour-blind safe palette; markers and line styles distinguish the rest.
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PURPLE, GREY = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "#999999",
)
STYLES: dict[str, tuple[str, str, str]] = {
    "AD": (BLACK, "o", "-"),
    "FD": (ORANGE, "s", "-"),
    "FD compiled streamed": (ORANGE, "s", ":"),
    "Taylor": (RED, "^", "-"),
    "Taylor compiled": (RED, "^", "--"),
    "Taylor compiled streamed": (RED, "^", ":"),
    "DeepXDE reverse": (GREEN, "D", "-"),
    "PINA": (GREEN, "v", "--"),
    "PhysicsNeMo differences": (PURPLE, "P", "-"),
    "torch.func jvp compiled": (SKY, "X", "--"),
    "torch-jet compiled": (PURPLE, "*", "--"),
    "JAX hessian": (BLUE, "<", "--"),
    "JAX folx": (BLUE, ">", "-"),
    "products of Taylor": (GREY, "", ":"),
}
MIDDLE = 8192  # batch shown between the smallest and the largest; the picture has all
REASON = 100  # maximum length of a reason in a table; the file of results has all of it


def main() -> None:
    """Write the table and the picture next to the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE.parent / "runs" / "peers")
    parser.add_argument("--problem", default="poisson")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--publish", type=Path, help="a folder for benchmarks.md, benchmarks.csv and images/peers.png")
    options = parser.parse_args()
    rows = [row for row in Results(options.out / "results.csv").rows.values() if row.threads == options.threads]
    if not rows:
        parser.error(f"no results with {options.threads} threads in {options.out}")
    table = options.out / "results.md"
    table.write_text(markdown(rows, options.threads), encoding="utf-8")
    print(table)
    shown = [row for row in rows if (row.problem, row.width) == (options.problem, options.width)]
    if not shown:
        parser.error(f"no results of {options.problem} with width {options.width}; the table is written")
    path = options.out / f"{options.problem}-{options.width}.png"
    draw(shown, path)
    print(path)
    if options.publish:
        shutil.copyfile(table, options.publish / "benchmarks.md")
        shutil.copyfile(path, options.publish / "images" / "peers.png")
        published = Results(options.publish / "benchmarks.csv", fresh=True)
        for row in rows:
            published.add(row)


# -- the table -----------------------------------------------------------------------------------------------------


def markdown(rows: Sequence[Row], threads: int) -> str:
    """Return the Markdown tables, one section per problem and width."""
    parts = [
        "# Training step: time and peak memory\n",
        "Residual, mean square and gradient in all parameters; tanh network of four hidden layers, float32, "
        f"{threads} thread(s). Milliseconds are medians. “of {BASE}” is the time as a multiple of {BASE}'s in the same "
        "interleaved rounds: below 1 is faster. MB is what a step adds to the process at its peak. “Products” are the "
        "bare matrix products of a method: no activation function, no derivative, no bookkeeping. Every subject gets "
        "the same weights and points, and its residual and gradient are held against raw autograd in double precision "
        "first.\n",
        "`make bench-peers` builds an environment for each peer, with the same version of torch, and measures what is "
        "missing; hours for everything.\n",
    ]
    order = [entry.name for entry in entries()]
    for (problem, width), group in _grouped(rows):
        group.sort(key=lambda row: order.index(row.subject))
        parts.append(_section(problem, width, group))
    return "\n".join(parts)


def _grouped(rows: Sequence[Row]) -> list[tuple[tuple[str, int], list[Row]]]:
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row.problem, row.width), []).append(row)
    return list(found.items())


def _section(problem: str, width: int, rows: Sequence[Row]) -> str:
    batches = _spread(sorted({row.batch for row in rows}))
    heads = ["", *itertools.chain.from_iterable((f"B = {b}: ms", f"of {BASE}", "MB") for b in batches)]
    lines = [f"## {problem}, width {width}\n", _line(heads), _line(["---", *["---:"] * (len(heads) - 1)])]
    for subject, group in itertools.groupby(rows, key=lambda row: row.subject):
        by_batch = {row.batch: row for row in group}
        lines.append(_line([subject, *itertools.chain.from_iterable(_cells(by_batch.get(b)) for b in batches)]))
    return "\n".join([*lines, ""])


def _spread(batches: Sequence[int]) -> list[int]:
    """Return the smallest, a middle and the largest batch."""
    middle = min(batches, key=lambda batch: abs(math.log(batch / MIDDLE)))
    return sorted({batches[0], middle, batches[-1]})


def _cells(row: Row | None) -> list[str]:
    if row is None:
        return ["", "", ""]
    if row.status != "ok":
        return [textwrap.shorten(f"{row.status}: {row.reason}", REASON), "", ""]
    relative = "" if math.isnan(row.base) else f"{row.median / row.base:.2f}"
    return [f"{row.median:.1f}", relative, f"{row.megabytes:.0f}"]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


# -- the picture ---------------------------------------------------------------------------------------------------


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw time and peak memory against the batch on logarithmic axes."""
    good = [row for row in rows if row.status == "ok"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(14, 5.2), layout="constrained")
    for subject in STYLES:
        points = sorted((row for row in good if row.subject == subject), key=lambda row: row.batch)
        if not points:
            continue
        _curve(left, subject, [row.batch for row in points], [row.median for row in points])
        if not subject.startswith("products"):  # products allocate no memory
            _curve(right, subject, [row.batch for row in points], [max(row.megabytes, 0.1) for row in points])
    against_the_batch(left, "time of a training step [ms]")
    against_the_batch(right, "peak memory of a training step [MB]")
    one = rows[0]
    figure.suptitle(f"{one.problem.capitalize()}, tanh network 4×{one.width}, float32, {one.threads} thread(s)")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, handlelength=3.5)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _curve(axes: Axes, subject: str, x: Sequence[int], y: Sequence[float]) -> None:
    colour, marker, line = STYLES[subject]
    axes.plot(x, y, color=colour, marker=marker, linestyle=line, linewidth=1.6, markersize=5, label=subject)


if __name__ == "__main__":
    main()
