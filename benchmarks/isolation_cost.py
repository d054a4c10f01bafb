"""Time per-sample derivatives of coupled networks, the batched idiom (incorrect) and a loop over samples (slow).

    python benchmarks/isolation_cost.py [--out runs/isolation] [--repeats 7] [--quick]

Time and peak memory of a full training step (the Laplacian's mean square, forward and backward) in two variables, in
single precision: a network with batch norm and one with attention over the batch. Times are the minimum over
interleaved repetitions; on one thread they are CPU times, so that other load hardly affects them. Methods whose step
would take longer than ten seconds are skipped. Results that exist in the folder are not measured again.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness import HERE, Subject, agree
from matplotlib import pyplot as plt
from peers.report import BLACK, BLUE, GREEN, GREY, ORANGE, RED
from peers.results import FINAL, Results, Row
from pictures import against_the_batch

NETWORKS = {"batchnorm": "batch norm", "attention": "attention over the batch"}
WIDTH = 64
BATCHES = {"batchnorm": [2**7, 2**10, 2**13, 2**16], "attention": [2**7, 2**9, 2**11]}
QUICK = {"batchnorm": [2**7, 2**10], "attention": [2**7, 2**8]}
BASE, TRUTH, LOOP = "batched AD", "isolated AD", "per-sample loop"
#: The first method is the reference for the others.
WAYS = [TRUTH, BASE, "isolated FD", "isolated Taylor", "per-sample AD", LOOP]
#: Tolerances: none for the idiom; for finite differences their error in single precision.
TOLERANCE = {BASE: math.inf, "isolated FD": 0.05}
#: Power of the batch size with which the work grows: attention uses all pairs, per-sample methods all batches.
GROWTH = {
    (network, way): 1 + (network == "attention") + way.startswith("per-sample") for network in NETWORKS for way in WAYS
}
PATIENCE = 10.0  # seconds for a step
MEMORY = "memory only"  # status of a row without a time yet
STYLES = {
    BASE: (BLACK, "o", ":"),
    TRUTH: (BLUE, "s", "-"),
    "isolated FD": (ORANGE, "v", "-"),
    "isolated Taylor": (RED, "^", "-"),
    "per-sample AD": (GREEN, "D", "--"),
    LOOP: (GREY, "X", "--"),
}


def main() -> None:
    """Measure missing rows, print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE.parent / "runs" / "isolation")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="small batches only")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results = Results(options.out / "results.csv")
    for network in options.networks:
        for batch in (QUICK if options.quick else BATCHES)[network]:
            _measure(results, network, batch, options.threads, options.repeats)
    rows = [row for row in results.rows.values() if row.threads == options.threads]
    table = markdown(rows)
    (options.out / "results.md").write_text(table, encoding="utf-8")
    print(table)
    draw(rows, options.out / "isolation-cost.png")
    print(options.out / "isolation-cost.png")


def _measure(results: Results, network: str, batch: int, threads: int, repeats: int) -> None:
    """Measure all methods on one network and batch: memory one by one, then time in one interleaved run."""
    rows = {way: Row(network, WIDTH, batch, threads, way, MEMORY) for way in WAYS}
    known = {way: results.rows.get(row.key) for way, row in rows.items()}
    if all(row is not None and row.status in FINAL for row in known.values()):
        return
    subjects = []
    for way, row in rows.items():
        expected = _expected(results, row)
        if expected > PATIENCE:
            reason = f"a step would take about {expected:.0f} s"
            results.add(replace(row, status="skipped", reason=reason, best=1e3 * expected))
            continue
        case = {"network": network, "batch": batch, "way": way}
        subject = Subject(way, "worker_isolation.py", case, threads=threads)
        before = known[way]
        if before is None:
            before = replace(row, megabytes=subject.peak())
            results.add(before)
        subject.megabytes = before.megabytes
        subjects.append(subject)
    _time(subjects, repeats)
    base = next((1e3 * s.median for s in subjects if s.name == BASE), math.nan)
    for s in subjects:
        times = {"median": 1e3 * s.median, "best": 1e3 * min(s.seconds), "base": base}
        results.add(replace(rows[s.name], status="ok", **times, repeats=repeats, megabytes=s.megabytes))


def _time(subjects: Sequence[Subject], repeats: int) -> None:
    """Time all methods in rounds, after checking that they agree with the first one."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            for subject in subjects:
                subject.start()
                agree(subject, subjects[0], Path(folder), TOLERANCE)
        for number in range(repeats + 1):
            for subject in subjects:
                answer = subject.next_step()
                if number:  # the first step is a warm-up
                    subject.seconds.append(answer["processor" if subject.threads == 1 else "seconds"])
    finally:
        for subject in subjects:
            if hasattr(subject, "process"):
                subject.stop()


def _expected(results: Results, row: Row) -> float:
    """Estimate the seconds of a step from the next smaller batch."""
    smaller = results.smaller(row)
    if smaller is None:
        return 0.0
    return smaller.best / 1e3 * (row.batch / smaller.batch) ** GROWTH[row.problem, row.subject]


# -- the table and the picture -------------------------------------------------------------------------------------


def markdown(rows: Sequence[Row]) -> str:
    """Return the Markdown table, one section per network."""
    parts = []
    for network, title in NETWORKS.items():
        mine = [row for row in rows if row.problem == network and row.status == "ok"]
        at = {(row.batch, row.subject): row for row in mine}
        lines = [
            f"### {title}\n",
            f"| B | | ms | of {BASE} | MB | of {BASE} | faster than the loop |",
            "|---:|---|---:|---:|---:|---:|---:|",
        ]
        for row in sorted(mine, key=lambda row: (row.batch, list(STYLES).index(row.subject))):
            base, loop = at[row.batch, BASE], at.get((row.batch, LOOP))
            faster = "" if loop is None else f"{loop.best / row.best:.0f}×"
            lines.append(
                f"| {row.batch} | {row.subject} | {row.best:.1f} | {row.best / base.best:.2f} | "
                f"{row.megabytes:.1f} | {row.megabytes / base.megabytes:.2f} | {faster} |"
            )
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw time and peak memory against the batch, one row of panels per network."""
    figure, panels = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
    for (network, title), (left, right) in zip(NETWORKS.items(), panels, strict=True):
        for way, (colour, marker, line) in STYLES.items():
            mine = sorted(
                (r for r in rows if (r.problem, r.subject, r.status) == (network, way, "ok")), key=lambda r: r.batch
            )
            style = {"color": colour, "marker": marker, "linestyle": line, "linewidth": 1.6, "markersize": 5}
            label = f"{way} (wrong)" if way == BASE else way
            left.plot([r.batch for r in mine], [r.best for r in mine], label=label, **style)
            right.plot([r.batch for r in mine], [max(r.megabytes, 0.1) for r in mine], label=label, **style)
        for axes, quantity in ((left, "time"), (right, "peak memory")):
            axes.set_title(title, fontsize=11)
            against_the_batch(axes, f"{quantity} of a training step [{'ms' if axes is left else 'MB'}]")
    threads = {row.threads for row in rows}
    figure.suptitle(f"Each sample's own Laplacian in two variables, width {WIDTH}, float32, {threads.pop()} thread(s)")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, handlelength=3.5)
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main()
