"""Paths that CONTRIBUTING.md gives to contributors exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_path_of_the_table_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("## Where would I change …?")[2].partition("\n## ")[0]
    paths = re.findall(r"^\| .+ \| `([^`]+)` \|$", section, re.MULTILINE)
    assert len(paths) == 10
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert not missing
    assert all((ROOT / path).is_dir() == path.endswith("/") for path in paths)
