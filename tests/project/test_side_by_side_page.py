"""The table of the page that compares packages agrees with the results."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = ROOT / "results" / "side_by_side"


@pytest.mark.slow
def test_the_table_is_made_of_the_data(tmp_path: Path) -> None:
    data = tmp_path / "side_by_side"
    data.mkdir()
    for file in DATA.glob("*.json"):
        shutil.copy(file, data)
    done = subprocess.run(
        [sys.executable, "-m", "side_by_side.run", "--shown", "--seeds", "3", "--out", data],
        cwd=ROOT / "benchmarks",
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (data / "table.md").read_text(encoding="utf-8") == (DATA / "table.md").read_text(encoding="utf-8")
    assert "results/side_by_side/table.md" in (ROOT / "docs" / "side_by_side.md").read_text(encoding="utf-8")
