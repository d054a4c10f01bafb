"""The comparison of error estimates with true errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import estimates
from benchmarks.bad_natured import CASES
from benchmarks.estimates import Case, cases, row_of, table_of


def test_a_network_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stated = CASES["layer_2"]()
    case = Case(stated.problem, stated.solution, 1.0)
    row = row_of("layer_2", lambda: case, tmp_path)
    assert row["estimate"] > 0
    assert row["reason"] is None

    def trained(*args: Any, **settings: Any) -> None:
        raise AssertionError("the network is trained again")

    monkeypatch.setattr(estimates, "solve", trained)
    again = row_of("layer_2", lambda: replace(case), tmp_path)
    assert {**again, "seconds": 0} == {**row, "seconds": 0}


def test_scores() -> None:
    row = {"open": False, "reason": None, "seconds": 1.0, "true": 0.1}
    rows = [
        {**row, "name": "right", "estimate": 0.2},
        {**row, "name": "low", "estimate": 0.01},
        {**row, "name": "silent", "estimate": None, "reason": "it is not unique"},
        {**row, "name": "open", "open": True, "estimate": None, "reason": "it is not unique"},
        {"name": "broken", "failed": "no reference"},
    ]
    text = table_of(rows)
    assert "| right | 10 % | 20 % | 2 |" in text
    assert "| silent | 10 % | none | - |" in text
    assert "Of 2 estimates on problems with one solution 1 (50 %) are within a factor of 3, 1 are below 0.2" in text
    assert "1 of 1 problems with several solutions have no estimate, and 1 of the others." in text


@pytest.mark.parametrize("name", ["layer_3", "open_outlet", "jump_plane"])
def test_a_solution_has_all_functions(name: str) -> None:
    stated = cases()[name]()
    x, true = estimates.reference_values(stated.reference, None, stated.problem)
    assert true.shape == (len(x), stated.problem.outputs)
