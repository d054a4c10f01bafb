"""Tables of the gallery page agree with the results."""

from __future__ import annotations

import json
import shutil
import statistics
from pathlib import Path

from examples import run_gallery as gallery

ROOT = Path(__file__).parents[2]
PROBLEMS, RESULTS = ROOT / "examples" / "gallery", ROOT / "results" / "gallery"


def rows_of(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]


def test_the_tables_are_made_of_the_data(tmp_path: Path) -> None:
    for file in RESULTS.glob("*.json"):
        shutil.copy(file, tmp_path)
    gallery.write_table(PROBLEMS, tmp_path)
    made = tmp_path / "README.md"
    assert (RESULTS / "README.md").read_text(encoding="utf-8") == made.read_text(encoding="utf-8")
    shown = [line.replace("](", "](../results/gallery/", 1) for line in rows_of(made)]
    page = ROOT / "docs" / "gallery.md"
    assert shown == rows_of(page)
    counts = next(line for line in made.read_text(encoding="utf-8").splitlines() if " below " in line)
    assert counts.partition(": ")[2].partition(". ")[0] in page.read_text(encoding="utf-8")


def test_every_picture_is_shown() -> None:
    shown = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    for picture in RESULTS.glob("*.png"):
        assert f":::{{figure}} ../results/gallery/{picture.name}\n" in shown


def test_every_result_is_of_the_file_as_it_is_and_has_a_picture() -> None:
    for file in RESULTS.glob("*.json"):
        row = json.loads(file.read_text(encoding="utf-8"))
        assert row["name"] == file.stem
        assert "failed" in row or (RESULTS / f"{file.stem}.png").exists()
        assert row["lines"] == gallery.lines_of(PROBLEMS / f"{file.stem}.py")


def test_problems_are_short() -> None:
    lines = [gallery.lines_of(PROBLEMS / f"{name}.py") for name in gallery.names_in(PROBLEMS)]
    assert statistics.median(lines) <= 15
