"""Read and write the files of a run: JSON, arrays, checkpoints and tables. Damage is reported in one sentence."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import pickle
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dudx.errors import InputError, first_line
from dudx.lab.atomic_files import (
    DamagedError,
    StorageError,
    atomic,
    digest,
    make_folder,
    read_bytes,
    read_text,
    write_bytes,
    write_text,
)

__all__ = [
    "DamagedError",
    "GrowingTable",
    "StorageError",
    "atomic",
    "json_text",
    "make_folder",
    "read_arrays",
    "read_checkpoint",
    "read_json",
    "read_table",
    "read_text",
    "refuse_changed",
    "write_arrays",
    "write_bytes",
    "write_checkpoint",
    "write_json",
    "write_text",
]


# -- JSON ------------------------------------------------------------------------------------------------------------


def write_json(path: Path, value: object) -> None:
    """Write a JSON file."""
    write_text(path, json_text(value))


def json_text(value: object) -> str:
    """Return a value as JSON; NaN and infinity become null."""
    return json.dumps(_jsonable(value), indent=2) + "\n"


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_jsonable(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value


def read_json(path: Path, kind: type = object, fields: Mapping[str, Any] | None = None) -> Any:
    """Read a JSON file.

    Args:
        path: the file.
        kind: the required type, dict or list.
        fields: required keys of the dictionary (or of each dictionary in the list) and their types.
    """
    text = read_text(path, f"There is no file {str(path)!r}; is {str(path.parent)!r} the folder of a run?")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{str(path)!r} cannot be read: {first_line(error)}.") from error
    if not isinstance(value, kind):
        raise DamagedError(f"{str(path)!r} is damaged: it should hold a {kind.__name__}, not {_shown(value)}.")
    for entry in value if isinstance(value, list) else [value]:
        for name, types in (fields or {}).items():
            # To Python a bool is a number; in a file it is not.
            if not isinstance(entry, dict) or name not in entry or not _fits(entry[name], types):
                found = _shown(entry.get(name) if isinstance(entry, dict) else entry)
                raise DamagedError(f"{str(path)!r} is damaged: {name!r} is {found}.")
    return value


def _fits(value: Any, types: Any) -> bool:
    if types == list[float]:
        return isinstance(value, list) and all(_fits(item, float | int | None) for item in value)
    return isinstance(value, types) and (not isinstance(value, bool) or types is bool)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"a {type(value).__name__}"


# -- arrays ----------------------------------------------------------------------------------------------------------


def write_arrays(path: Path, **arrays: np.ndarray) -> None:
    """Write a compressed npz file."""
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read an npz file."""
    content = read_bytes(path, f"There is no file {str(path)!r}; has the run finished?")
    with _read_carefully(f"{str(path)!r} is damaged"):
        _check_archive(content)
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return dict(file)


@contextlib.contextmanager
def _read_carefully(what: str, remedy: str = "") -> Iterator[None]:
    """Turn the exceptions that reading a damaged archive may raise into one sentence."""
    try:
        yield
    except InputError:
        raise
    except (
        *(OSError, RuntimeError, EOFError, ValueError, KeyError, TypeError, AttributeError, IndexError, MemoryError),
        *(zipfile.BadZipFile, zlib.error, pickle.UnpicklingError, SyntaxError, RecursionError, OverflowError),
        *(NotImplementedError, AssertionError, UnicodeError),
    ) as error:
        raise DamagedError(f"{what}{remedy or ': ' + first_line(error)}.") from error


def _check_archive(content: bytes) -> None:
    """Verify the checksum of every record of a zip archive, which neither torch nor numpy does completely."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for record in archive.infolist():
            with archive.open(record) as file:
                while file.read(2**20):
                    pass


# -- checkpoints -----------------------------------------------------------------------------------------------------


def write_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint."""
    # In memory first: on a full disk torch.save raises an error that hides the reason.
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    write_bytes(path, buffer.getvalue())


def read_checkpoint(path: Path, remedy: str = "start again in another folder") -> dict[str, Any]:
    """Read a checkpoint after verifying its checksums; only tensors and plain values are unpickled."""
    content = read_bytes(path, f"There is no checkpoint {str(path)!r} to resume from; start the run without --resume.")
    with _read_carefully(f"The checkpoint {str(path)!r} is damaged and cannot be resumed", f"; {remedy}"):
        _check_archive(content)
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        if not isinstance(state, dict):
            raise TypeError("it holds no dictionary")
        return state


# -- tables ----------------------------------------------------------------------------------------------------------


class GrowingTable:
    """A CSV file that grows row by row and can be truncated to the state of a checkpoint.

    Args:
        path: the file.
        columns: the header.
        seen: the `state` to truncate to; None starts an empty table.
    """

    def __init__(self, path: Path, columns: Sequence[str], seen: Mapping[str, Any] | None = None):
        self.path, self.columns = path, list(columns)
        content = self._header() if seen is None else self._cut(seen)
        write_bytes(path, content)
        self.rows, self._bytes, self._sum = (seen or {"rows": 0})["rows"], len(content), hashlib.sha256(content)

    def _header(self) -> bytes:
        return self._line(dict(zip(self.columns, self.columns, strict=True)))

    def _cut(self, seen: Mapping[str, Any]) -> bytes:
        if "bytes" in seen:
            return refuse_changed(self.path, seen)
        rows = read_table(self.path)  # of a checkpoint older than the checksums
        if len(rows) < seen["rows"]:
            raise DamagedError(f"{str(self.path)!r} is damaged: {len(rows)} of its {seen['rows']} rows are left.")
        return self._header() + b"".join(self._line(row) for row in rows[: seen["rows"]])

    def _line(self, row: Mapping[str, Any]) -> bytes:
        text = io.StringIO(newline="")
        csv.DictWriter(text, self.columns).writerow(row)
        return text.getvalue().encode()

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row and write it to the file at once."""
        line = self._line(row)
        try:
            with self.path.open("ab") as file:
                file.write(line)
        except OSError as error:
            raise StorageError(f"Cannot write {str(self.path)!r}: {error.strerror or error}.") from error
        self._sum.update(line)
        self._bytes += len(line)
        self.rows += 1

    @property
    def state(self) -> dict[str, Any]:
        """Return the length and checksum of the file, for a checkpoint."""
        return {"rows": self.rows, "bytes": self._bytes, "sha256": self._sum.hexdigest()}


def refuse_changed(path: Path, seen: Mapping[str, Any]) -> bytes:
    """Return the part of a growing table that a checkpoint has seen, or refuse if it has changed."""
    content = read_bytes(path)[: seen["bytes"]]
    if len(content) < seen["bytes"] or digest(content) != seen["sha256"]:
        raise DamagedError(
            f"{str(path)!r} is damaged: it differs from the state in the checkpoint; restore it from a copy, or start "
            "again in another folder."
        )
    return content


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True))
    except csv.Error as error:
        raise DamagedError(f"{str(path)!r} is damaged: {error}.") from error
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise DamagedError(f"{str(path)!r} is damaged: row {number} has not as many fields as the first.")
    return rows
