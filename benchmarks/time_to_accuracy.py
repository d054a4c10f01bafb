"""How accurate a network is after how many CPU seconds of training, for every optimizer and engine.

    python benchmarks/time_to_accuracy.py [--problems poisson burgers] [--optimizers lm soap] [--engines taylor fd]
        [--seeds 5] [--seconds 300] [--out results/accuracy] [--shown] [--smoke]

All runs have the network, the points, the weights and the double precision of the profile `cpu`, on one thread; what
differs is the optimizer and the engine. (`lm, precise` has the wider network and the points of the profile `precise`.)
Seconds are those of the processor, spent in training; looks at the error do not count. The learning rates of
first-order optimizers fall by a cosine over the whole time. Unless engines are named, Levenberg-Marquardt runs with
each and the others with Taylor.

Each run leaves a JSON file and is not run again while that is there; interrupt and start again at will. Those of
Levenberg-Marquardt on three problems are the runs of `dudx reproduce --profile cpu` too, whoever makes them. In the end
there are a table of medians over the seeds and a picture of the error against the time; `--shown` makes these of what
is there and runs nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dudx.lab import file_formats, make_settings, train
from dudx.lab.plots import COLOURS, figure
from dudx.lab.problems import problem
from dudx.lab.run.engine_table import engine_label, engines_in_order
from dudx.lab.run.metrics import percent
from reproduction.archive import Archive, write

MARKS = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
ENGINES = ("taylor", "ad", "fd", "efd", "sfd")


@dataclass(frozen=True)
class Way:
    """An optimizer with what it needs beside its profile, and how many seconds it is given unless told otherwise.

    `longer` is how many times as long problems in space and time take.
    """

    seconds: float
    options: dict[str, Any]
    longer: float = 1.0
    profile: str = "cpu"
    line: str = "-"


FIRST_ORDER = {"evaluate_every": 100, "memory": 0.0}
WAYS = {
    "lm": Way(60.0, {"evaluate_every": 5}, longer=2.0),
    "lm, precise": Way(300.0, {"evaluate_every": 5}, 2.0, "precise", "-"),
    "soap": Way(120.0, {"optimizer": "soap", "learning_rate": 3e-3, **FIRST_ORDER}, line="--"),
    "adam": Way(120.0, {"optimizer": "adam", "learning_rate": 1e-3, **FIRST_ORDER}, line=":"),
    # The points stay for 200 steps: what such a method learns of the loss is of the points it was learned on.
    "broyden": Way(120.0, {"optimizer": "broyden", **FIRST_ORDER, "evaluate_every": 5, "resample": 10}, line="--"),
    # After a thousand epochs of Adam, as is usual.
    "lbfgs": Way(120.0, {"optimizer": "adam", "learning_rate": 1e-3, **FIRST_ORDER, "evaluate_every": 10}, line="-."),
}
ADAM_BEFORE_LBFGS = 1000
ENDLESS = 10**6


@dataclass(frozen=True)
class Method:
    """An optimizer with an engine on a problem."""

    problem: str
    optimizer: str
    engine: str

    def file(self, out: Path, seed: int) -> Path:
        """Where a run is written down; one that a reproduction made stands under its name there."""
        file = out / f"{self.problem}-{self.optimizer.replace(', ', '-')}-{self.engine}-seed{seed}.json"
        if file.exists() or self.optimizer != "lm":
            return file
        options = {**settings_of(self, seed, self.seconds, {}), "epochs": ENDLESS}
        return Archive(out).path(make_settings(self.problem, "cpu", **options)) or file

    @property
    def way(self) -> Way:
        return WAYS[self.optimizer]

    @property
    def seconds(self) -> float:
        return self.way.seconds * (self.way.longer if len(problem(self.problem).inputs) > 2 else 1.0)


def settings_of(method: Method, seed: int, seconds: float, sizes: dict[str, Any]) -> dict[str, Any]:
    """The options of a run, but for its epochs."""
    common = {"engine": method.engine, "seed": seed, "seconds": seconds, "settled": 0, "threads": 1}
    return {**common, "checkpoint_every": 10**6, **method.way.options, **sizes}


def epochs_for(method: Method, options: dict[str, Any], seconds: float, folder: Path) -> dict[str, int]:
    """As many epochs as fit into the seconds, where a schedule depends on it."""
    if "optimizer" not in method.way.options or method.optimizer == "broyden":
        return {"epochs": ENDLESS}
    if method.optimizer == "lbfgs":
        return {"epochs": ADAM_BEFORE_LBFGS, "lbfgs_epochs": ENDLESS}
    trial = {**options, "epochs": 40, "seconds": seconds, "evaluate_every": 40}
    shutil.rmtree(folder, ignore_errors=True)
    result = train(make_settings(method.problem, method.way.profile, **trial), folder)
    return {"epochs": max(10, math.ceil(seconds * result["epochs"] / result["cpu_seconds"]))}


def measure(method: Method, seed: int, seconds: float, sizes: dict[str, Any], out: Path) -> None:
    """Train, and write down the error as it falls."""
    file = method.file(out, seed)
    folder = out / f"{file.stem}-running"
    options = settings_of(method, seed, seconds, sizes)
    options |= epochs_for(method, options, seconds, folder)
    shutil.rmtree(folder, ignore_errors=True)
    settings = make_settings(method.problem, method.way.profile, **options)
    result = train(settings, folder)
    if result["status"] == "interrupted":
        raise SystemExit(130)
    write(file, settings, result, folder)
    shutil.rmtree(folder)


def error_at(seconds: float, curve: Sequence[Sequence[float]]) -> float | None:
    """The last error seen by then; none before the first look, and none for a run that ended long before."""
    seen = [error for spent, _, error in curve if spent <= seconds]
    return seen[-1] if seen and curve[-1][0] > 0.95 * seconds else None


def runs_of(method: Method, seeds: int, out: Path) -> list[dict[str, Any]]:
    """The runs that are done."""
    files = [method.file(out, seed) for seed in range(seeds)]
    return [json.loads(file.read_text()) for file in files if file.exists()]


def curves_of(method: Method, seeds: int, out: Path) -> list[list[list[float]]]:
    """The errors over time of the runs that are done."""
    return [run["curve"] for run in runs_of(method, seeds, out)]


def estimates(method: Method, seeds: int, out: Path) -> str:
    """From where to where the estimates of the final error, which need no reference, were of it."""
    runs = [run for run in runs_of(method, seeds, out) if run.get("estimate")]
    ratios = sorted(run["estimate"]["relative_l2"] / run["l2_relative"] for run in runs)
    return f"{ratios[0]:.2f} to {ratios[-1]:.2f}" if ratios else "-"


def median_at(seconds: float, curves: Sequence[Sequence[Sequence[float]]]) -> float | None:
    """The median over the runs; none while one of them has not looked yet."""
    errors = [error_at(seconds, curve) for curve in curves]
    found = [error for error in errors if error is not None]
    return statistics.median(found) if found and len(found) == len(errors) else None


def show(methods: Sequence[Method], marks: Sequence[float], seeds: int, out: Path) -> None:
    """Print the table of each problem, and write all of them to a file."""
    console, lines = Console(), []
    for name in dict.fromkeys(method.problem for method in methods):
        table = Table(title=f"{name}: relative L2, median over the runs")
        headings = ["optimizer", "engine", "runs", *(f"{mark:g} s" for mark in marks), "estimate / error"]
        lines += [f"## {name}", "", f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
        for heading in headings:
            table.add_column(heading)
        for method in methods:
            if method.problem == name and (curves := curves_of(method, seeds, out)):
                errors = [median_at(mark, curves) for mark in marks]
                texts = ["-" if error is None else percent(error) for error in errors]
                row = [method.optimizer, engine_label(method.engine), str(len(curves)), *texts]
                row.append(estimates(method, seeds, out))
                table.add_row(*row)
                lines.append(f"| {' | '.join(row)} |")
        lines.append("")
        console.print(table)
    file_formats.write_text(out / "table.md", "\n".join(lines))


def draw(methods: Sequence[Method], seeds: int, out: Path) -> None:
    """The error against the seconds, both logarithmic; a panel for each problem."""
    names = list(dict.fromkeys(method.problem for method in methods))
    order = list(dict.fromkeys((method.optimizer, method.engine) for method in methods))
    with figure(out / "time_to_accuracy.png", len(names), (5.2 * len(names), 4.2)) as axes:
        for ax, name in zip(axes, names, strict=True):
            for method in methods:
                curves = curves_of(method, seeds, out) if method.problem == name else []
                if not curves:
                    continue
                times = sorted({row[0] for curve in curves for row in curve})
                pairs = [(time, error) for time in times if (error := median_at(time, curves)) is not None]
                colour = COLOURS[order.index((method.optimizer, method.engine)) % len(COLOURS)]
                label = f"{method.optimizer}, {engine_label(method.engine)}"
                ax.loglog(*zip(*pairs, strict=True), method.way.line, color=colour, label=label)
            ax.set(xlabel="CPU seconds of training", ylabel="relative L2 error", title=name)
            ax.legend(fontsize=7)


def main() -> None:
    """Run what is missing, then show all of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--problems", nargs="+", default=["poisson", "burgers", "heat"])
    parser.add_argument("--optimizers", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--engines", nargs="+", choices=list(engines_in_order()), help="with every optimizer")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, help="instead of those of each way")
    parser.add_argument("--out", type=Path, default=Path("results/accuracy"))
    parser.add_argument("--shown", action="store_true", help="of what is there already")
    parser.add_argument("--smoke", action="store_true", help="a second each, of networks that learn nothing")
    chosen = parser.parse_args()
    sizes: dict[str, Any] = {}
    seconds, marks = chosen.seconds, list(MARKS)
    if chosen.smoke:
        sizes = {"width": 6, "depth": 1, "batch": 32, "boundary_batch": 16, "initial_batch": 16, "evaluate_every": 1}
        sizes |= {"calibration_points": 32, "calibration_candidates": 6}
        seconds, marks = 0.3, [0.1, 0.3]
    file_formats.make_folder(chosen.out)
    methods = [
        Method(name, optimizer, engine)
        for name in chosen.problems
        for optimizer in chosen.optimizers
        for engine in chosen.engines or (ENGINES if optimizer == "lm" else ENGINES[:1])
    ]
    # A seed of every method before the next one, so that what is stopped early compares them.
    for seed in range(chosen.seeds):
        for method in methods:
            if not chosen.shown and not method.file(chosen.out, seed).exists():
                measure(method, seed, seconds or method.seconds, sizes, chosen.out)
    show(methods, marks, chosen.seeds, chosen.out)
    draw(methods, chosen.seeds, chosen.out)


if __name__ == "__main__":
    main()
