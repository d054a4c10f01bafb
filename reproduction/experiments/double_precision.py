"""Open question: how much accuracy each engine gains, and how much time it loses, in double precision."""

from __future__ import annotations

import statistics
from typing import Any

from dudx.errors import percent
from reproduction.analysis.statistics import compare
from reproduction.analysis.tables import Table, times
from reproduction.experiment import Experiment, ExperimentResults, Measurement
from reproduction.experiments import methods
from reproduction.measurements import short_training
from reproduction.measurements.compared_methods import METHODS
from reproduction.profile import Profile

DTYPES = ("float32", "float64")
TRAINED = ("ad", "taylor", "fd", "efd", "sfd", "efd-inside")
SOLVED = ("poisson", "burgers", "plate")


def _measurements(profile: Profile) -> list[Measurement]:
    plan = short_training.plan(profile)
    return [
        methods.training(problem, method, seed, {**plan, "dtype": dtype})
        for seed in range(profile.methods.seeds)
        for problem in short_training.some(SOLVED, profile.methods.problems)
        for method in short_training.some(TRAINED, profile.methods.methods)
        for dtype in DTYPES
    ]


def _tables(results: ExperimentResults) -> list[Table]:
    rows = methods.rows(results)
    return [_table(rows, problem) for problem in SOLVED]


def _table(rows: list[dict[str, Any]], problem: str) -> Table:
    lines = []
    for method in TRAINED:
        mine = [row for row in rows if row["problem"] == problem and row["method"] == method and row["status"] == "ok"]
        errors = {dtype: methods.by_seed(mine, dtype=dtype) for dtype in DTYPES}
        seconds = {dtype: [row["seconds"] for row in mine if row["dtype"] == dtype] for dtype in DTYPES}
        if not all(errors.values()):
            lines.append([METHODS[method].label, "-", "-", "-", "-"])
            continue
        single, double = (statistics.fmean(errors[dtype].values()) for dtype in DTYPES)
        found = compare(errors["float64"], errors["float32"])
        slower = statistics.median(seconds["float64"]) / statistics.median(seconds["float32"])
        verdict = (
            "-" if found is None else str(found) if found.significant else f"{times(found.ratio)}, within the noise"
        )
        lines.append([METHODS[method].label, percent(single), percent(double), verdict, times(slower)])
    columns = ["method", "error in FP32", "error in FP64", "FP64 / FP32, error", "CPU seconds"]
    return Table(f"{methods.PROBLEMS[problem]}: mean relative L2 error over the seeds.", columns, lines, name=problem)


EXPERIMENT = Experiment(
    "double-precision",
    "Double precision: what each engine gains and loses",
    measurements=_measurements,
    tables=_tables,
    note="A question that the paper leaves open.",
    position=22,
)
