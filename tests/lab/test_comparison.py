from __future__ import annotations

import csv
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Said

from dudx.errors import InputError
from dudx.lab import file_formats, make_settings, train
from dudx.lab.run.metrics import percent
from dudx.lab.sweep import comparison

TINY = {"epochs": 4, "batch": 16, "boundary_batch": 8, "width": 4, "depth": 1, "evaluate_every": 2}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two widths, two seeds each, in a folder as sweeps have it, and one of another engine beside it."""
    folder = tmp_path_factory.mktemp("runs")
    for width in (4, 5):
        for seed in (0, 1):
            options = {**TINY, "width": width, "seed": seed}
            train(make_settings("poisson", "smoke", engine="taylor", **options), folder / "many" / f"{width}-{seed}")
    train(make_settings("poisson", "smoke", engine="ad", **TINY), folder / "one")
    return folder


def test_runs_are_told_apart_by_what_they_differ_in(runs: Path) -> None:
    found = comparison.found_in([runs / "many", runs / "one"])
    assert len(found) == 5
    keys = comparison.differing([outcome for _, outcome in found])
    assert keys == ["problem", "engine", "width"]
    headings, rows = comparison.table(found, keys)
    assert headings[:4] == ["problem", "engine", "width", "relative L2"]
    assert [row[:3] for row in rows] == [["poisson", "taylor", "4"], ["poisson", "taylor", "5"], ["poisson", "ad", "4"]]
    errors = [file_formats.read_json(runs / "many" / f"5-{seed}" / "result.json")["l2_relative"] for seed in (0, 1)]
    assert rows[1][3] == percent(statistics.median(errors))
    assert rows[1][4] == f"{percent(min(errors))} to {percent(max(errors))}"
    assert [row[-2:] for row in rows] == [["2", "-"], ["2", "-"], ["1", "-"]]


def test_a_run_that_was_stopped_is_counted_and_not_averaged(runs: Path, tmp_path: Path) -> None:
    train(make_settings("poisson", "smoke", engine="ad", seed=1, **TINY), tmp_path / "stopped")
    (tmp_path / "stopped" / "result.json").unlink()
    found = comparison.found_in([runs / "one", tmp_path / "stopped"])
    (row,) = comparison.table(found, ["problem", "engine"])[1]
    assert row[2] == percent(file_formats.read_json(runs / "one" / "result.json")["l2_relative"])
    assert row[-2:] == ["1", "1 interrupted"]


def test_the_command_prints_a_table_and_leaves_a_picture_and_a_line_a_run(
    dudx: Callable[..., Said], runs: Path, tmp_path: Path
) -> None:
    picture, lines = tmp_path / "all.png", tmp_path / "all.csv"
    folders = [str(runs / "many"), str(runs / "one")]
    code, out, said = dudx("compare", *folders, "--out", str(picture), "--csv", str(lines))
    assert code == 0, said
    assert "width" in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    with lines.open(newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == ["4-0", "4-1", "5-0", "5-1", "one"]


def test_what_is_no_run_is_said(dudx: Callable[..., Said], runs: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no run in"):
        comparison.found_in([tmp_path])
    with pytest.raises(InputError, match="named twice"):
        comparison.found_in([runs / "many", runs / "many" / "4-0"])
    code, out, said = dudx("compare", str(runs / "one"), "--out", str(tmp_path / "missing" / "all.png"))
    assert (code, out) == (1, "")
    assert "there is no folder" in said
