"""Write files whole or not at all, and refuse to read files that have changed since.

A folder may hold the checksums of its files, in the format of `sha256sum`. `read_bytes` compares every file it reads
with its checksum; a file without one, of a run older than the checksums, is read unchecked.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from dudx.errors import DudxError, InputError

SUMS = "SHA256SUMS"


class StorageError(DudxError, OSError):
    """A file of a run cannot be written."""


class DamagedError(InputError):
    """A file has changed since it was written."""


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` on success; a failure leaves the old file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise StorageError(
            f"Cannot write {str(path)!r}: {error.strerror or error}; the previous file is unchanged."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove temporary files of processes that were killed while writing; the caller must hold the folder's lock."""
    for path in folder.glob(".*.[0-9]*"):
        if re.fullmatch(r"\..+\.\d+", path.name):
            path.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents if they do not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # the latter for a NUL in its name
        raise StorageError(f"Cannot make the folder {str(folder)!r}: {_why(error)}.") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file."""
    with atomic(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    write_bytes(path, text.encode("utf-8"))


def read_bytes(path: Path, missing: str | None = None) -> bytes:
    """Return the content of a file after comparing its checksum; `missing` is the message if there is no file."""
    try:
        content = path.read_bytes()
        expected = _sums(path.parent).get(path.name)
    except FileNotFoundError as error:
        raise InputError(missing or f"There is no file {str(path)!r}.") from error
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {_why(error)}.") from error
    if expected is not None and digest(content) != expected:
        raise DamagedError(
            f"{str(path)!r} is damaged: its checksum is not that in {SUMS!r}; restore it from a copy, or run "
            "again in another folder."
        )
    return content


def read_text(path: Path, missing: str | None = None) -> str:
    """Return the content of a text file."""
    try:
        text = read_bytes(path, missing).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedError(f"{str(path)!r} is damaged: byte {error.start} is not text in UTF-8.") from error
    if "\0" in text:
        raise DamagedError(f"{str(path)!r} is damaged: a NUL stands in its text, at character {text.index(chr(0))}.")
    return text


def digest(content: bytes) -> str:
    """Return the SHA-256 checksum of some bytes."""
    return hashlib.sha256(content).hexdigest()


def seal(folder: Path, names: Iterable[str], coming: dict[str, bytes] | None = None) -> None:
    """Write the checksums of the files that exist in a folder and of files about to be written (`coming`).

    Files that have a checksum are compared with it first, so that damage is not sealed.
    """
    contents = {name: read_bytes(folder / name) for name in names if (folder / name).exists()} | (coming or {})
    write_text(folder / SUMS, sums(contents))


def sums(contents: Mapping[str, bytes]) -> str:
    """Return the content of the checksum file for some files."""
    lines = "".join(f"{digest(content)}  {name}\n" for name, content in sorted(contents.items()))
    # The first line, a comment to `sha256sum`, detects damage to the checksums themselves.
    return f"# {digest(lines.encode())}\n{lines}"


def sealed(path: Path) -> bool:
    """Return whether the checksum of a file is known."""
    return path.name in _sums(path.parent)


def _sums(folder: Path) -> dict[str, str]:
    try:
        text = (folder / SUMS).read_bytes().decode("ascii")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except UnicodeDecodeError:
        text = ""
    first, _, lines = text.partition("\n")
    if first != f"# {digest(lines.encode())}":
        raise DamagedError(
            f"{str(folder / SUMS)!r} is damaged, so the other files cannot be checked; restore it from a copy, or "
            "delete it to use them unchecked."
        )
    return {name: expected for expected, name in (line.split("  ", 1) for line in lines.splitlines())}


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
