"""The data of an experiment: small files that say everything its tables and pictures are made of."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from dudx.errors import InputError
from dudx.lab import file_formats

CONFIGS, ENVIRONMENT = "configs.json", "environment.json"


class Data:
    """Reads an experiment's data; what is missing or damaged is named in one sentence."""

    def __init__(self, folder: Path):
        self.folder = folder

    @property
    def there(self) -> bool:
        """Whether there are data at all."""
        return self.folder.is_dir() and any(self.folder.iterdir())

    @property
    def files(self) -> list[Path]:
        """The data files, in order."""
        return sorted(path for path in self.folder.iterdir() if not path.name.startswith("."))

    def rows(self, name: str, words: Sequence[str], numbers: Sequence[str]) -> list[dict[str, Any]]:
        """The rows of a CSV file; an empty field among the numbers is None."""
        path = self.folder / name
        if not path.exists():
            raise InputError(f"There is no file {str(path)!r}; run the experiment again to collect it.")
        rows: list[dict[str, Any]] = list(file_formats.read_table(path))
        if not rows:
            raise InputError(f"{str(path)!r} is damaged: it has no rows.")
        for line, row in enumerate(rows, 2):
            for key in (*words, *numbers):
                if row.get(key) is None:
                    raise InputError(f"{str(path)!r} is damaged: line {line} has no {key!r}.")
            for key in numbers:
                try:
                    row[key] = float(row[key]) if row[key] else None
                except ValueError as error:
                    raise InputError(f"{str(path)!r} is damaged: {row[key]!r} in line {line} is no number.") from error
        return rows

    def arrays(self, name: str, keys: Iterable[str]) -> dict[str, np.ndarray]:
        """The arrays of an npz file."""
        found = file_formats.read_arrays(self.folder / name)
        for key in keys:
            if key not in found:
                raise InputError(f"{str(self.folder / name)!r} is damaged: it has no array {key!r}.")
        return found

    def configs(self) -> dict[str, dict[str, Any]]:
        """The settings of every run, or the arguments of every measurement, by name."""
        return _dictionaries(self.folder / CONFIGS)

    def environments(self) -> list[dict[str, Any]]:
        """The different machines and versions at work, and how often."""
        return list(_dictionaries(self.folder / ENVIRONMENT).values())


def _dictionaries(path: Path) -> dict[str, dict[str, Any]]:
    found = file_formats.read_json(path)
    if not isinstance(found, dict) or not all(isinstance(value, dict) for value in found.values()):
        raise InputError(f"{str(path)!r} is damaged: it should map names to settings.")
    return found


# -- writing ---------------------------------------------------------------------------------------------------------


def write(path: Path, content: bytes) -> bool:
    """Write a file, unless it says just that already; tells whether it did."""
    with suppress(FileNotFoundError):
        if path.read_bytes() == content:
            return False
    path.parent.mkdir(parents=True, exist_ok=True)
    with file_formats.atomic(path) as temporary:
        temporary.write_bytes(content)
    return True


def write_data(path: Path, content: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> bool:
    """Write rows as .csv, arrays as .npz, anything plain as .json, by the name of the file."""
    if path.suffix == ".csv":
        assert not isinstance(content, Mapping)
        return write(path, csv_text(content).encode())
    if path.suffix == ".npz":
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **content)  # type: ignore[arg-type]
        return write(path, buffer.getvalue())
    return write(path, (json.dumps(content, indent=1) + "\n").encode())


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
