"""Tables of records on disk: text and numbers in a CSV file, arrays in an npz file beside it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dudx.lab import atomic_files, file_formats
from dudx.lab.atomic_files import DamagedError

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class RecordTable:
    """Nested dictionaries by name, stored as `NAME.csv` and, where they hold lists of numbers, `NAME.npz`.

    A column `result/status` holds `record["result"]["status"]`; an empty cell means that there is no such entry.
    Lists come back as arrays. Reading compares the files with the checksums of their folder.
    """

    def __init__(self, folder: Path, name: str):
        self.folder = folder
        self.csv, self.npz = folder / f"{name}.csv", folder / f"{name}.npz"

    @property
    def files(self) -> list[Path]:
        """The files that exist."""
        return [path for path in (self.csv, self.npz) if path.exists()]

    @cached_property
    def records(self) -> Mapping[str, dict[str, Any]]:
        """All records by name."""
        return self._read() if self.csv.exists() else {}

    def update(self, records: Mapping[str, Mapping[str, Any]]) -> None:
        """Add records or replace those with the same names; files that would not change are left alone."""
        merged = {**self.records, **{name: _nested(_flat(record)) for name, record in records.items()}}
        flat = {name: _flat(merged[name]) for name in sorted(merged)}
        cells = {name: {k: v for k, v in row.items() if not isinstance(v, np.ndarray)} for name, row in flat.items()}
        arrays = {f"{n}/{k}": v for n, row in flat.items() for k, v in row.items() if isinstance(v, np.ndarray)}
        contents = {self.csv.name: _csv(cells)}
        if arrays:
            buffer = io.BytesIO()
            np.savez_compressed(buffer, allow_pickle=False, **arrays)  # type: ignore[arg-type]
            contents[self.npz.name] = buffer.getvalue()
        write_files(self.folder, contents)
        self.__dict__["records"] = merged

    def _read(self) -> dict[str, dict[str, Any]]:
        rows: dict[str, dict[str, Any]] = {}
        for line, row in enumerate(file_formats.read_table(self.csv), 2):
            name = row.pop("name", "")
            if not name:
                raise DamagedError(f"{str(self.csv)!r} is damaged: line {line} has no 'name'.")
            rows[name] = {key: _parsed(text) for key, text in row.items() if text}
        if not rows:
            raise DamagedError(f"{str(self.csv)!r} is damaged: it has no rows.")
        for key, values in file_formats.read_arrays(self.npz).items() if self.npz.exists() else ():
            name, _, path = key.partition("/")
            if name in rows:
                rows[name][path] = values
        return {name: _nested(row) for name, row in rows.items()}


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files of a folder and their checksums; those that hold the same content already are left alone."""
    changed = {name: content for name, content in contents.items() if not holds(folder / name, content)}
    if changed:
        file_formats.make_folder(folder)
        others = [path.name for path in folder.iterdir() if path.suffix in (".csv", ".npz", ".json")]
        atomic_files.seal(folder, set(others) - set(changed), coming=changed)
        for name, content in changed.items():
            atomic_files.write_bytes(folder / name, content)


def holds(path: Path, content: bytes) -> bool:
    """Return whether a file exists and has this content."""
    return path.is_file() and path.read_bytes() == content


def _flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Entries of nested dictionaries by their path; lists as arrays, entries that are None left out."""
    found: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}/")
        elif isinstance(value, list | tuple | np.ndarray):
            found[prefix + key] = value if isinstance(value, np.ndarray) else np.array(value, dtype=np.float64)
        elif value is not None:
            found[prefix + key] = value
    return found


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, key = path.split("/")
        inner = found
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[key] = value
    return found


def _csv(rows: Mapping[str, Mapping[str, Any]]) -> bytes:
    paths = list(dict.fromkeys(path for row in rows.values() for path in row))
    groups = list(dict.fromkeys(path.partition("/")[0] for path in paths))
    paths.sort(key=lambda path: groups.index(path.partition("/")[0]))  # entries of one dictionary side by side
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["name", *paths])
    writer.writerows(
        [name, *("" if row.get(path) is None else row[path] for path in paths)] for name, row in rows.items()
    )
    return text.getvalue().encode()


def _parsed(text: str) -> Any:
    """Value of a CSV cell: a truth value, a number, or the text itself."""
    if text in ("True", "False"):
        return text == "True"
    if not _NUMBER.fullmatch(text):
        return text
    return int(text) if text.lstrip("+-").isdigit() else float(text)
