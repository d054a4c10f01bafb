"""The page on optimizers shows what the data say."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_tables_of_the_page_are_made_of_the_data(tmp_path: Path) -> None:
    data = tmp_path / "accuracy"
    shutil.copytree(ROOT / "results" / "accuracy", data)
    (data / "table.md").unlink()
    script = ROOT / "benchmarks" / "time_to_accuracy.py"
    done = subprocess.run(
        [sys.executable, script, "--shown", "--out", data], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    made = [line for line in (data / "table.md").read_text(encoding="utf-8").splitlines() if line.startswith("| lm")]
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8").splitlines()
    assert made == [line for line in page if line.startswith("| lm")]
