"""Table of results on disk: rows are appended, and the last row of a key is valid."""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass, fields
from pathlib import Path

#: Status: "ok"; "differs", "failed"; "not supported", "not installed"; "skipped" as too slow or too large.
FINAL = ("ok", "differs", "failed", "not supported", "skipped")


@dataclass(frozen=True)
class Row:
    """One subject on one case. Milliseconds are of a full training step; `base` is AD's median in the same rounds."""

    problem: str
    width: int
    batch: int
    threads: int
    subject: str
    status: str
    reason: str = ""
    residual_error: float = float("nan")
    gradient_error: float = float("nan")
    first: float = float("nan")
    median: float = float("nan")
    best: float = float("nan")
    base: float = float("nan")
    repeats: int = 0
    megabytes: float = float("nan")

    @property
    def key(self) -> tuple[str, int, int, int, str]:
        return self.problem, self.width, self.batch, self.threads, self.subject


class Results:
    """Rows of a file, with appending."""

    def __init__(self, path: Path, fresh: bool = False):
        self.path = path
        self.rows: dict[tuple[str, int, int, int, str], Row] = {}
        if fresh:
            path.unlink(missing_ok=True)
        if path.exists():
            with path.open(newline="", encoding="utf-8") as file:
                for row in map(_parsed, csv.DictReader(file)):
                    self.rows[row.key] = row

    def add(self, row: Row) -> None:
        """Append a row unless an equal one exists."""
        if self.rows.get(row.key) == row:
            return
        self.rows[row.key] = row
        is_new = not self.path.exists()
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [f.name for f in fields(Row)])
            if is_new:
                writer.writeheader()
            writer.writerow(asdict(row))

    def smaller(self, row: Row) -> Row | None:
        """Return the row of the same subject with the largest smaller batch of the case."""
        same = [r for r in self.rows.values() if (*r.key[:2], *r.key[3:]) == (*row.key[:2], *row.key[3:])]
        return max((r for r in same if r.batch < row.batch), key=lambda r: r.batch, default=None)


def _parsed(text: dict[str, str]) -> Row:
    kinds = {"int": int, "float": float, "str": str}
    return Row(**{f.name: kinds[str(f.type)](text[f.name]) for f in fields(Row)})
