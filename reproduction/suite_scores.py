"""Scores on the paper's footing: at the nodes of the benchmark suite PINNacle, against its own data files.

The suite's files are its users'; none is stored here. Given their folder, the networks in finished run folders are
evaluated at the files' nodes and the scores are kept with the results, in the table `suite_scores`. Runs whose folders
are gone have no network any more and get no such scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dudx.errors import InputError
from dudx.lab.atomic_files import digest
from dudx.lab.problems import Problem
from dudx.lab.problems import problem as problem_named
from dudx.lab.problems.comsol import read_comsol
from dudx.lab.run.folder import stored_settings
from dudx.lab.run.metrics import l2_relative, scores
from dudx.lab.run.records import RESULT, read_result
from dudx.lab.run.trainer import Trainer

#: The suite's data file of each problem.
FILES = {"poisson": "poisson1_cg_data.dat", "burgers": "burgers1d.dat", "heat": "heat_complex.dat"}
TABLE = "suite_scores"
#: Largest relative difference between a network's score and the score in its result: rounding.
_SAME = 1e-3


@dataclass(frozen=True)
class SuiteData:
    """Data file of the suite for one problem."""

    problem: Problem
    path: Path

    @cached_property
    def nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """Points (N, d) and values (N, 1)."""
        return read_comsol(self.path, len(self.problem.inputs), self.problem.outputs)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Number of nodes, share of zeros among the values, and the error of our reference by this file."""
        points, values = self.nodes
        assert self.problem.solution is not None
        ours = self.problem.solution()(points)
        return {
            "nodes": len(points),
            "zeros": float(np.mean(values == 0)),
            "reference": l2_relative(np.reshape(ours, -1), values.reshape(-1)),
            # With a letter in front, so that no digest reads as a number.
            "file": f"s{digest(self.path.read_bytes())[:12]}",
        }


def suite_data(folder: Path) -> dict[str, SuiteData]:
    """Return the suite's data by problem, for the files that are in a folder."""
    if not folder.is_dir():
        raise InputError(f"There is no folder {str(folder)!r}.")
    found = {n: SuiteData(problem_named(n), folder / name) for n, name in FILES.items() if (folder / name).exists()}
    if not found:
        raise InputError(
            f"There is none of the suite's data files in {str(folder)!r}: {', '.join(FILES.values())}. They are in the "
            "folder `ref` of PINNacle."
        )
    return found


def score(folder: Path, data: SuiteData) -> dict[str, Any]:
    """Evaluate the network of a finished run at the suite's nodes; return its scores and the facts of the file."""
    settings, result = stored_settings(folder), read_result(folder)
    trainer = Trainer(data.problem, settings, folder)
    trainer.checkpoint.load()
    again = trainer.evaluation.scores()["l2_relative"]
    if not math.isclose(again, result["l2_relative"], rel_tol=_SAME):
        raise InputError(
            f"The checkpoint in {str(folder)!r} is not the network of its result: its error is {again:.4g}, not "
            f"{result['l2_relative']:.4g}."
        )
    points, values = data.nodes
    return {"status": "ok", **scores(trainer.evaluation.predict(points), values), **data.facts}


def missing_scores(
    folders: Mapping[str, Path], known: Mapping[str, Mapping[str, Any]], data: Mapping[str, SuiteData]
) -> Iterable[tuple[str, dict[str, Any]]]:
    """Score the networks in run folders that are not scored yet, or were by another file.

    Args:
        folders: folder of each run by its name in the result tables.
        known: records of the table `suite_scores`.
        data: the suite's data by problem.
    """
    for name, folder in folders.items():
        mine = data.get(stored_settings(folder).problem)
        if mine is None or not (folder / RESULT).exists() or read_result(folder)["status"] != "finished":
            continue
        if name not in known or known[name]["result"]["file"] != mine.facts["file"]:
            yield name, {"result": score(folder, mine)}
