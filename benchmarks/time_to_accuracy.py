"""How accurate a network is after how many CPU seconds of training, for every optimizer and engine.

    python benchmarks/time_to_accuracy.py [--problems poisson burgers] [--optimizers lm soap] [--engines taylor fd]
        [--seeds 5] [--seconds 300] [--results results/cpu] [--out results/accuracy] [--shown] [--smoke]

All runs have the network, the points, the weights and the double precision of the profile `cpu`, on one thread; they
differ in the optimizer and the engine. (`lm, precise` has the wider network and the points of the profile `precise`.)
Seconds are CPU seconds of training without evaluations of the error. The learning rates of first-order optimizers fall
by a cosine over the whole time. Unless engines are named, Levenberg-Marquardt runs with each engine and the others with
Taylor.

Each run is a row of `results/cpu/runs.csv` and is not made again; interrupt and start again at will. The table is that
of `python -m reproduction --profile cpu`, which needs the runs of Levenberg-Marquardt too. In the end a table of
medians over the seeds and a picture of the error against the time are written; `--shown` runs nothing and writes these
from the existing runs.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dudx.errors import percent
from dudx.lab import file_formats, make_settings, train
from dudx.lab.plots import COLOURS, figure
from dudx.lab.problems import problem
from dudx.lab.run.engine_table import engine_label, engines_in_order
from dudx.lab.run.settings import Settings
from dudx.lab.sweep.sweep_run import outcome
from reproduction.experiment import named
from reproduction.result_store import ResultStore

MARKS = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
ENGINES = ("taylor", "ad", "fd", "efd", "sfd")


@dataclass(frozen=True)
class OptimizerChoice:
    """Optimizer with its settings, profile and default CPU seconds, `longer` times as many in space and time."""

    seconds: float
    options: dict[str, Any]
    longer: float = 1.0
    profile: str = "cpu"
    line: str = "-"


FIRST_ORDER = {"evaluate_every": 100, "memory": 0.0}
OPTIMIZERS = {
    "lm": OptimizerChoice(60.0, {"evaluate_every": 5}, longer=2.0),
    "lm, precise": OptimizerChoice(300.0, {"evaluate_every": 5}, 2.0, "precise", "-"),
    "soap": OptimizerChoice(120.0, {"optimizer": "soap", "learning_rate": 3e-3, **FIRST_ORDER}, line="--"),
    "adam": OptimizerChoice(120.0, {"optimizer": "adam", "learning_rate": 1e-3, **FIRST_ORDER}, line=":"),
    # The points stay for 200 steps: what such a method learns of the loss is of the points it was learned on.
    "broyden": OptimizerChoice(
        120.0, {"optimizer": "broyden", **FIRST_ORDER, "evaluate_every": 5, "resample": 10}, line="--"
    ),
    # After a thousand epochs of Adam, as is usual.
    "lbfgs": OptimizerChoice(
        120.0, {"optimizer": "adam", "learning_rate": 1e-3, **FIRST_ORDER, "evaluate_every": 10}, line="-."
    ),
}
ADAM_BEFORE_LBFGS = 1000
#: Sizes of `--smoke`.
SIZES = {"width": 6, "depth": 1, "batch": 32, "boundary_batch": 16, "initial_batch": 16, "evaluate_every": 1}
SIZES |= {"calibration_points": 32, "calibration_candidates": 6}
ENDLESS = 10**6


Result = Mapping[str, Any]


@dataclass(frozen=True)
class Method:
    """Optimizer with an engine on a problem."""

    problem: str
    optimizer: str
    engine: str

    @property
    def chosen(self) -> OptimizerChoice:
        return OPTIMIZERS[self.optimizer]

    @property
    def seconds(self) -> float:
        return self.chosen.seconds * (self.chosen.longer if len(problem(self.problem).inputs) > 2 else 1.0)


#: Results of the runs of each method that are done.
Runs = Mapping[Method, Sequence[Result]]


def settings_of(method: Method, seed: int, seconds: float, sizes: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a run, but for its epochs."""
    common = {"engine": method.engine, "seed": seed, "seconds": seconds, "settled": 0, "threads": 1}
    return {**common, "checkpoint_every": 10**6, **method.chosen.options, **sizes}


def epochs_for(method: Method, options: dict[str, Any], seconds: float, folder: Path) -> dict[str, int]:
    """Return the number of epochs that fit into the seconds, if a schedule depends on it."""
    if "optimizer" not in method.chosen.options or method.optimizer == "broyden":
        return {"epochs": ENDLESS}
    if method.optimizer == "lbfgs":
        return {"epochs": ADAM_BEFORE_LBFGS, "lbfgs_epochs": ENDLESS}
    trial = {**options, "epochs": 40, "seconds": seconds, "evaluate_every": 40}
    shutil.rmtree(folder, ignore_errors=True)
    result = train(make_settings(method.problem, method.chosen.profile, **trial), folder)
    return {"epochs": max(10, math.ceil(seconds * result["epochs"] / result["cpu_seconds"]))}


def measure(method: Method, seed: int, seconds: float, sizes: dict[str, Any], store: ResultStore) -> None:
    """Train, and add the run to the table."""
    name = f"{method.problem}-{method.optimizer.replace(', ', '-')}-{method.engine}-seed{seed}"
    folder = store.folder / "runs" / f"{name}-timed"
    options = settings_of(method, seed, seconds, sizes)
    options |= epochs_for(method, options, seconds, folder)
    shutil.rmtree(folder, ignore_errors=True)
    run = named(make_settings(method.problem, method.chosen.profile, **options))
    if train(run.settings, folder)["status"] == "interrupted":
        raise SystemExit(130)
    store.add_runs([(outcome(run, folder), folder)])
    shutil.rmtree(folder)


def run_of(method: Method, seed: int, sizes: dict[str, Any], store: ResultStore) -> Result | None:
    """Return the result of a run that is done, with any budget of seconds and the epochs that fit into it."""
    options = settings_of(method, seed, method.seconds, sizes)
    options |= {"lbfgs_epochs": ENDLESS} if method.optimizer == "lbfgs" else {}
    wanted = make_settings(method.problem, method.chosen.profile, **options).model_dump(exclude={"epochs", "seconds"})
    for record in store.table("runs").records.values():
        given = record["settings"]
        candidate = (given["problem"], given["engine"], given["seed"]) == (method.problem, method.engine, seed)
        limited = candidate and given.get("seconds") is not None
        if limited and Settings(**given).model_dump(exclude={"epochs", "seconds"}) == wanted:
            return record["result"]
    return None


def error_at(seconds: float, curve: Sequence[Sequence[float]]) -> float | None:
    """Return the last error before a time; None before the first evaluation, or if the run ended long before."""
    seen = [error for spent, _, error in curve if spent <= seconds]
    return seen[-1] if seen and curve[-1][0] > 0.95 * seconds else None


def curves_of(runs: Sequence[Result]) -> list[list[list[float]]]:
    """Return the errors over time."""
    return [run["curve"].tolist() for run in runs]


def estimates(runs: Sequence[Result]) -> str:
    """Return the range of the ratios of estimated to true final errors."""
    ratios = sorted(run["estimate"]["relative_l2"] / run["l2_relative"] for run in runs if run.get("estimate"))
    return f"{ratios[0]:.2f} to {ratios[-1]:.2f}" if ratios else "-"


def median_at(seconds: float, curves: Sequence[Sequence[Sequence[float]]]) -> float | None:
    """Return the median over the runs; None while one of them has no evaluation yet."""
    errors = [error_at(seconds, curve) for curve in curves]
    found = [error for error in errors if error is not None]
    return statistics.median(found) if found and len(found) == len(errors) else None


def show(runs: Runs, marks: Sequence[float], out: Path) -> None:
    """Print the table of each problem, and write all of them to a file."""
    console, lines = Console(), []
    for name in dict.fromkeys(method.problem for method in runs):
        table = Table(title=f"{name}: relative L2, median over the runs")
        headings = ["optimizer", "engine", "runs", *(f"{mark:g} s" for mark in marks), "estimate / error"]
        lines += [f"## {name}", "", f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
        for heading in headings:
            table.add_column(heading)
        for method, mine in runs.items():
            if method.problem == name and (curves := curves_of(mine)):
                errors = [median_at(mark, curves) for mark in marks]
                texts = ["-" if error is None else percent(error) for error in errors]
                row = [method.optimizer, engine_label(method.engine), str(len(curves)), *texts]
                row.append(estimates(mine))
                table.add_row(*row)
                lines.append(f"| {' | '.join(row)} |")
        lines.append("")
        console.print(table)
    file_formats.write_text(out / "table.md", "\n".join(lines))


def draw(runs: Runs, out: Path) -> None:
    """Draw the error against the seconds, both logarithmic; one panel per problem."""
    names = list(dict.fromkeys(method.problem for method in runs))
    order = list(dict.fromkeys((method.optimizer, method.engine) for method in runs))
    with figure(out / "time_to_accuracy.png", len(names), (5.2 * len(names), 4.2)) as axes:
        for ax, name in zip(axes, names, strict=True):
            for method, mine in runs.items():
                curves = curves_of(mine) if method.problem == name else []
                if not curves:
                    continue
                times = sorted({row[0] for curve in curves for row in curve})
                pairs = [(time, error) for time in times if (error := median_at(time, curves)) is not None]
                colour = COLOURS[order.index((method.optimizer, method.engine)) % len(COLOURS)]
                label = f"{method.optimizer}, {engine_label(method.engine)}"
                ax.loglog(*zip(*pairs, strict=True), method.chosen.line, color=colour, label=label)
            ax.set(xlabel="CPU seconds of training", ylabel="relative L2 error", title=name)
            ax.legend(fontsize=7)


def main() -> None:
    """Run what is missing, then show all runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--problems", nargs="+", default=["poisson", "burgers", "heat"])
    parser.add_argument("--optimizers", nargs="+", default=list(OPTIMIZERS), choices=list(OPTIMIZERS))
    parser.add_argument("--engines", nargs="+", choices=list(engines_in_order()), help="with every optimizer")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, help="instead of those of each optimizer")
    parser.add_argument(
        "--results", type=Path, help="folder of the table of runs; results/cpu, with --smoke that of --out"
    )
    parser.add_argument("--out", type=Path, default=Path("results/accuracy"), help="folder of the table of medians")
    parser.add_argument("--shown", action="store_true", help="run nothing, show the existing runs")
    parser.add_argument("--smoke", action="store_true", help="a second each, of networks that learn nothing")
    chosen = parser.parse_args()
    sizes: dict[str, Any] = {}
    seconds, marks = chosen.seconds, list(MARKS)
    if chosen.smoke:
        sizes = SIZES
        seconds, marks = 0.3, [0.1, 0.3]
    file_formats.make_folder(chosen.out)
    store = ResultStore(chosen.results or (chosen.out if chosen.smoke else Path("results/cpu")))
    methods = [
        Method(name, optimizer, engine)
        for name in chosen.problems
        for optimizer in chosen.optimizers
        for engine in chosen.engines or (ENGINES if optimizer == "lm" else ENGINES[:1])
    ]
    runs: dict[Method, list[Result]] = {method: [] for method in methods}
    # One seed of every method before the next seed, so that work which is stopped early compares the methods.
    for seed in range(chosen.seeds):
        for method in methods:
            if not chosen.shown and run_of(method, seed, sizes, store) is None:
                measure(method, seed, seconds or method.seconds, sizes, store)
            if (found := run_of(method, seed, sizes, store)) is not None:
                runs[method].append(found)
    show(runs, marks, chosen.out)
    draw(runs, chosen.out)


if __name__ == "__main__":
    main()
