"""Tables of the report on other pages agree with the report."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from reproduction.analysis import power

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "from_report.py"


def test_the_tables_of_the_readme_and_the_docs_are_those_of_the_report() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert "| topic | held | held in part | did not hold | undecided |" in rows
    assert sum(row in (ROOT / "docs" / "report.md").read_text(encoding="utf-8").splitlines() for row in rows) >= 12


def test_seeds_are_computed_for_as_many_claims_as_the_largest_part_tests() -> None:
    report = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    assert max(int(count) for count in re.findall(r"among the (\d+) tests of this part", report)) == power._CLAIMS


def test_a_page_that_is_behind_is_noticed(tmp_path: Path) -> None:
    for name in ("README.md", "docs/measured.md", "docs/training.md", "docs/coupled.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("<!-- from data.md: Errors -->\n| old |\n<!-- end -->\n", encoding="utf-8")
    (tmp_path / "data.md").write_text("Errors of all.\n\n| new |\n| --- |\n\n| other |\n", encoding="utf-8")
    (tmp_path / "docs" / "from_report.py").write_text(SCRIPT.read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, tmp_path / "docs" / "from_report.py"]
    checked = subprocess.run([*command, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 1
    assert "Behind the data: README.md, docs/measured.md" in checked.stderr
    subprocess.run(command, check=True)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert page == "<!-- from data.md: Errors -->\n\n| new |\n| --- |\n\n<!-- end -->\n"
    assert subprocess.run([*command, "--check"], check=False).returncode == 0
