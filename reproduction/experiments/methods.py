"""Every method on every problem: error, time, memory and rows, with one network, one set of points, one optimizer."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dudx
from dudx.errors import percent
from dudx.lab import plots
from reproduction.analysis.figures import panels, plain_log
from reproduction.analysis.statistics import compare
from reproduction.analysis.tables import Cell, Table, scientific
from reproduction.experiment import Experiment, ExperimentResults, Measurement
from reproduction.measurements import short_training
from reproduction.measurements.compared_methods import METHODS, NOTE, ComparedMethod
from reproduction.profile import Profile

PROBLEMS = {
    "poisson": "Poisson, square with holes",
    "burgers": "Burgers",
    "heat": "heat, plate with holes",
    "plate": "clamped plate, fourth order",
    "disc": "Poisson, undefined outside a disc",
}
#: Factor of the number of steps, where new points at each step slow the training down.
_LONGER = {"burgers": 1.5, "heat": 1.5}


def measure(
    problem: str, method: str, seed: int, steps: int, every: int, width: int, depth: int, dtype: str,
    **sizes: int,
) -> dict[str, Any]:  # fmt: skip
    """Train once, and measure the memory and the rows per point of the method."""
    torch.set_num_threads(1)
    compared, kind = METHODS[method], getattr(torch, dtype)
    task = short_training.task(problem, seed, sizes, kind)
    if reason := compared.unfit(task):
        return {"status": UNFIT, "reason": reason}

    def make() -> torch.nn.Module:
        return short_training.network(task, seed, width, depth, kind, separable=compared.separable)

    # Before anything is computed here: memory is measured in a fork of this process.
    space = short_training.megabytes(*_set(compared, task.large(), seed), make) if seed == 0 else None
    (task, engine), model = _set(compared, task, seed), make()
    found = short_training.train(
        task, model, engine, steps, every, at_conditions=dudx.AD() if compared.own_points else None
    )
    if found["status"] == "ok":
        found["rows"] = _rows(task, model, engine)
    return {**found, "megabytes": space}


def _set(method: ComparedMethod, task: short_training.Task, seed: int) -> tuple[short_training.Task, dudx.Engine]:
    """Return the task, at the engine's own points if it has any, and the engine."""
    engine = method.engine(task, torch.Generator().manual_seed(short_training.FRESH + seed))
    return (task.asked_at(engine.points) if method.own_points else task), engine  # type: ignore[attr-defined]


def _rows(task: short_training.Task, model: torch.nn.Module, engine: dudx.Engine) -> float:
    """Return the rows per point."""
    if isinstance(engine, dudx.Separated):  # the points of an axis are shared by a whole plane of the grid
        return sum(map(len, engine.axes)) / task.count
    equation = task.draw()[0]
    settled = engine.calibrated(task.ansatz(model), equation.points, equation.operators())
    return settled.rows(equation.points, equation.operators()).kept


def measurements(profile: Profile) -> list[Measurement]:
    """Return all trainings, every method of a seed before the next seed, to compare methods if stopped early."""
    plan, seeds = short_training.plan(profile), profile.methods.seeds
    return [
        training(problem, method, seed, plan)
        for seed in range(seeds)
        for problem in short_training.some(PROBLEMS, profile.methods.problems)
        for method in short_training.some(METHODS, profile.methods.methods)
    ]  # fmt: skip


def training(problem: str, method: str, seed: int, plan: Mapping[str, Any]) -> Measurement:
    """Return one training; experiments that need it too share it."""
    steps = round(plan["steps"] * _LONGER.get(problem, 1.0))
    arguments = {"problem": problem, "method": method, "seed": seed, **plan, "steps": steps}
    return Measurement(f"methods-{problem}-{method}-{plan['dtype']}-{seed}", f"{__name__}:measure", arguments)


# -- results -------------------------------------------------------------------------------------------------------


def rows(results: ExperimentResults) -> list[dict[str, Any]]:
    """Return one row per training."""
    keys = ("problem", "method", "dtype", "seed")
    empty = dict.fromkeys(("error", "seconds", "rows", "megabytes"))
    return [
        {**{key: arguments[key] for key in keys}, **empty, "reason": "", **result}
        for arguments, result in results.measured
        if "method" in arguments
    ]


def by_seed(rows: Sequence[Mapping[str, Any]], **chosen: Any) -> dict[int, float]:
    """Return the errors of the trainings that came to an end."""
    mine = [row for row in rows if all(row[key] == value for key, value in chosen.items())]
    return {row["seed"]: row["error"] for row in mine if row["status"] == "ok"}


# -- tables and figure ----------------------------------------------------------------------------------------------


#: Status of a method that was not run, and of one that does not apply to the problem.
_NOT_RUN, UNFIT = "not run", "does not apply"


def _cell(rows: list[dict[str, Any]], problem: str, method: str) -> dict[str, Any]:
    mine = [row for row in rows if row["problem"] == problem and row["method"] == method]
    ok = [row for row in mine if row["status"] == "ok"]
    if not mine:
        return {"status": _NOT_RUN}
    if not ok:
        return {"status": mine[0]["status"], "reason": mine[0]["reason"]}
    space = [row["megabytes"] for row in ok if row["megabytes"] is not None]
    return {
        "status": "ok",
        "errors": [row["error"] for row in ok],
        "seconds": statistics.median(row["seconds"] for row in ok),
        "rows": ok[0]["rows"],
        "megabytes": space[0] if space else None,
        "lost": len(mine) - len(ok),
    }


def _table(rows: list[dict[str, Any]], problem: str) -> Table:
    found = {method: _cell(rows, problem, method) for method in METHODS}
    ran = {method: cell for method, cell in found.items() if cell["status"] == "ok"}
    best = {
        "error": min(statistics.fmean(cell["errors"]) for cell in ran.values()),
        "seconds": min(cell["seconds"] for cell in ran.values()),
    }
    lines: list[list[Cell | str]] = []
    for method, compared in METHODS.items():
        cell = found[method]
        if cell["status"] != "ok":
            lines.append([compared.label, cell["status"], "-", "-", "-"])
            continue
        error = statistics.fmean(cell["errors"])
        shown = percent(error) + (
            f" ({percent(min(cell['errors']))} to {percent(max(cell['errors']))})" if len(cell["errors"]) > 1 else ""
        )
        lines.append(
            [
                compared.label,
                Cell(shown + (f", {cell['lost']} lost" if cell["lost"] else ""), bold=error == best["error"]),
                Cell(f"{cell['seconds']:.1f}", bold=cell["seconds"] == best["seconds"]),
                scientific(cell["megabytes"]),
                f"{cell['rows']:.0f}",
            ]
        )
    columns = ["method", "relative L2 error (smallest to largest)", "CPU s", "MiB, 4096 points", "rows kept per point"]
    reasons = dict.fromkeys(f"{METHODS[m].label}: {c['reason']}" for m, c in found.items() if "reason" in c)
    return Table(f"{PROBLEMS[problem]}. {_verdict(rows, problem)}", columns, lines, list(reasons), name=problem)


def _verdict(rows: list[dict[str, Any]], problem: str) -> str:
    """Say in words which method wins."""
    found = {m: _cell(rows, problem, m) for m in METHODS}
    ran = {m: c for m, c in found.items() if c["status"] == "ok"}
    first = min(ran, key=lambda m: statistics.fmean(ran[m]["errors"]))
    errors = {m: by_seed(rows, problem=problem, method=m) for m in ran}
    beyond = [
        m for m in ran if m != first and (c := compare(errors[m], errors[first])) and c.significant and c.ratio > 1
    ]
    tied = [m for m in ran if m != first and m not in beyond]
    quick = min((m for m in (first, *tied)), key=lambda m: ran[m]["seconds"])
    words = [f"{METHODS[first].label} has the smallest mean error, {percent(statistics.fmean(ran[first]['errors']))}"]
    if tied:
        words.append(f"and {', '.join(METHODS[m].label for m in tied)} are not worse beyond the noise of the seeds")
    words.append(f"of these {METHODS[quick].label} is the fastest, {ran[quick]['seconds']:.1f} s")
    if lost := [METHODS[m].label for m, c in found.items() if "reason" in c and c["status"] != UNFIT]:
        words.append(f"{', '.join(lost)} did not come to an end")
    return "; ".join(words) + "."


def _tables(results: ExperimentResults) -> list[Table]:
    found = rows(results)
    there = [problem for problem in PROBLEMS if any(row["problem"] == problem for row in found)]
    return [_table(found, problem) for problem in there if by_seed(found, problem=problem)]


def _figure(results: ExperimentResults, path: Path) -> None:
    found = rows(results)
    marks = "os^DvPX<>pdh*8H1|"
    with panels(path, 2, 3, (13, 8)) as (_, axes):
        flat = [ax for line in axes for ax in line]
        for ax, (problem, title) in zip(flat, PROBLEMS.items(), strict=False):
            for number, (method, compared) in enumerate(METHODS.items()):
                cell = _cell(found, problem, method)
                if cell["status"] != "ok":
                    continue
                errors, style = 100 * np.array(cell["errors"]), plots.COLOURS[number % len(plots.COLOURS)]
                mean = float(np.exp(np.mean(np.log(errors))))
                ax.plot(cell["seconds"], mean, marks[number], color=style, label=compared.label, markersize=7)
                ax.plot([cell["seconds"]] * 2, [min(errors), max(errors)], color=style, linewidth=1)
            ax.set(title=title, xlabel="CPU seconds", ylabel="relative L2 error [%]")
            plain_log(ax)
        flat[-1].set_axis_off()
        handles = {label: handle for ax in flat for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        flat[-1].legend(handles.values(), handles.keys(), loc="center", fontsize=9)


EXPERIMENT = Experiment(
    "methods",
    "Every method on five problems, with the same small network, points and optimizer",
    measurements=measurements,
    tables=_tables,
    figure=_figure,
    note="Not in the paper. Levenberg-Marquardt, one thread; lines in the picture go from the best seed to the worst. "
    "On Burgers and heat all points are new at each step, and there are 1.5 times as many steps. " + NOTE,
    position=20,
)
