"""Tables of the page on optimizers agree with the results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tables_of_the_page_are_made_of_the_data(script: Callable[..., str], tmp_path: Path) -> None:
    results = ROOT / "results" / "cpu"
    script(ROOT / "benchmarks" / "time_to_accuracy.py", "--shown", "--results", results, "--out", tmp_path)
    made = [
        line for line in (tmp_path / "table.md").read_text(encoding="utf-8").splitlines() if line.startswith("| lm")
    ]
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8").splitlines()
    assert made == [line for line in page if line.startswith("| lm")]
