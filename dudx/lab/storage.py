"""A run's folder: every file is written whole or not at all, and a damaged one is named in one clear sentence."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import pickle
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dudx.errors import DudxError, InputError


class StorageError(DudxError, OSError):
    """A file of a run cannot be written."""


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place once it is complete; a failure leaves the old file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise StorageError(
            f"Cannot write {str(path)!r}: {error.strerror or error}; what was there before is unharmed."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless they are there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"Cannot make the folder {str(folder)!r}: {error.strerror or error}.") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: object) -> None:
    """Write a JSON file; NaN and infinity are not JSON, so they become null."""
    write_text(path, json.dumps(_jsonable(value), indent=2) + "\n")


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_jsonable(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"There is no file {str(path)!r}; is {str(path.parent)!r} the folder of a run?") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} cannot be read: {error}.") from error


def write_arrays(path: Path, **arrays: np.ndarray) -> None:
    """Write a compressed npz file."""
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read an npz file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except FileNotFoundError as error:
        raise InputError(f"There is no file {str(path)!r}; has the run finished?") from error
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"{str(path)!r} is damaged: {error}.") from error


def write_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint."""
    # In memory first: on a full disk torch.save raises an error that hides the reason.
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    with atomic(path) as temporary:
        temporary.write_bytes(buffer.getvalue())


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint; only tensors and plain values are ever unpickled."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise InputError(
            f"There is no checkpoint {str(path)!r} to resume from; start the run without --resume."
        ) from error
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise InputError(
            f"The checkpoint {str(path)!r} is damaged and cannot be resumed; start again in another folder."
        ) from error


class GrowingTable:
    """A CSV file that grows row by row and can be cut back to what a checkpoint has seen."""

    def __init__(self, path: Path, columns: Sequence[str], keep: int | None = None):
        self.path, self.columns = path, list(columns)
        rows = [] if keep is None else read_table(path)[:keep]
        with atomic(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self.columns)
            writer.writeheader()
            writer.writerows(rows)
        self.rows = len(rows)

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row and hand it to the system at once."""
        try:
            with self.path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, self.columns).writerow(row)
        except OSError as error:
            raise StorageError(f"Cannot write {str(self.path)!r}: {error.strerror or error}.") from error
        self.rows += 1


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from error
