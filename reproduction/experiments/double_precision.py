"""An open question: what each engine gains in accuracy and loses in time in double precision."""

from __future__ import annotations

import statistics
from typing import Any

from reproduction.experiments import methods, small
from reproduction.experiments.base import CsvRows, Experiment, Found, Measurement
from reproduction.experiments.data import Data
from reproduction.experiments.profile import Profile
from reproduction.experiments.statistics import compare
from reproduction.experiments.tables import Table, percent, times
from reproduction.experiments.ways import WAYS

DTYPES = ("float32", "float64")
TRAINED = ("ad", "taylor", "fd", "efd", "sfd", "efd-inside", "can", "cloud", "spectral")
SOLVED = ("poisson", "burgers", "plate")


def _measurements(profile: Profile) -> list[Measurement]:
    plan = small.plan(profile)
    return [
        methods.training(problem, method, seed, {**plan, "dtype": dtype})
        for seed in range(profile.methods.seeds)
        for problem in small.some(SOLVED, profile.methods.problems)
        for method in small.some(TRAINED, profile.methods.methods)
        for dtype in DTYPES
    ]


def _collect(found: Found) -> dict[str, CsvRows]:
    return {"trainings.csv": methods.rows(found)}


def _tables(data: Data) -> list[Table]:
    rows = methods.read(data)
    return [_table(rows, problem) for problem in SOLVED]


def _table(rows: list[dict[str, Any]], problem: str) -> Table:
    lines = []
    for method in TRAINED:
        mine = [row for row in rows if row["problem"] == problem and row["method"] == method and row["status"] == "ok"]
        errors = {dtype: methods.by_seed(mine, dtype=dtype) for dtype in DTYPES}
        seconds = {dtype: [row["seconds"] for row in mine if row["dtype"] == dtype] for dtype in DTYPES}
        if not all(errors.values()):
            lines.append([WAYS[method].label, "-", "-", "-", "-"])
            continue
        single, double = (statistics.fmean(errors[dtype].values()) for dtype in DTYPES)
        found = compare(errors["float64"], errors["float32"])
        slower = statistics.median(seconds["float64"]) / statistics.median(seconds["float32"])
        verdict = (
            "-" if found is None else str(found) if found.significant else f"{times(found.ratio)}, within the noise"
        )
        lines.append([WAYS[method].label, percent(single), percent(double), verdict, times(slower)])
    columns = ["method", "error in FP32", "error in FP64", "FP64 / FP32, error", "CPU seconds"]
    return Table(f"{methods.PROBLEMS[problem]}: mean relative L2 error over the seeds.", columns, lines, name=problem)


EXPERIMENT = Experiment(
    "double-precision",
    "Double precision: what each engine gains and loses",
    _collect,
    measurements=_measurements,
    tables=_tables,
    note="A question that the paper leaves open.",
    place=22,
)
