"""Files that are written whole or not at all, and that are read only if they are still what was written.

A folder may hold the sums of its files, in the format of `sha256sum`, which can check them too. Whatever is read goes
through `read_bytes`, which compares; a file without a sum, of a run that is older than the sums, is taken as it is.
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
    """A file is not what was written."""


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


def remove_unfinished(folder: Path) -> None:
    """Remove what processes left behind that were killed in the middle of writing; to be called by who holds a lock."""
    for path in folder.glob(".*.[0-9]*"):
        if re.fullmatch(r"\..+\.\d+", path.name):
            path.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless they are there."""
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
    """The content of a file, if it is still what was written; `missing` is what to say where there is no file."""
    try:
        content = path.read_bytes()
        expected = _sums(path.parent).get(path.name)
    except FileNotFoundError as error:
        raise InputError(missing or f"There is no file {str(path)!r}.") from error
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {_why(error)}.") from error
    if expected is not None and digest(content) != expected:
        raise DamagedError(
            f"{str(path)!r} is damaged: it is not what was written, by its sum in {SUMS!r}; take it from a copy, or "
            "make it again in another folder."
        )
    return content


def read_text(path: Path, missing: str | None = None) -> str:
    """The content of a text file."""
    try:
        text = read_bytes(path, missing).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedError(f"{str(path)!r} is damaged: byte {error.start} is not text in UTF-8.") from error
    if "\0" in text:
        raise DamagedError(f"{str(path)!r} is damaged: a NUL stands in its text, at character {text.index(chr(0))}.")
    return text


def digest(content: bytes) -> str:
    """The sum of some bytes."""
    return hashlib.sha256(content).hexdigest()


def seal(folder: Path, names: Iterable[str], coming: dict[str, bytes] | None = None) -> None:
    """Write down the sums of those of these files that a folder has, and of files to come; of others it has none then.

    A file that has a sum already is compared with it, so that damage is not sealed.
    """
    contents = {name: read_bytes(folder / name) for name in names if (folder / name).exists()} | (coming or {})
    write_text(folder / SUMS, sums(contents))


def sums(contents: Mapping[str, bytes]) -> str:
    """What the file of sums says of some files."""
    lines = "".join(f"{digest(content)}  {name}\n" for name, content in sorted(contents.items()))
    # A first line of our own, a comment to `sha256sum`: sums that are damaged themselves must not go unnoticed.
    return f"# {digest(lines.encode())}\n{lines}"


def sealed(path: Path) -> bool:
    """Whether the sum of a file is known."""
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
            f"{str(folder / SUMS)!r} is damaged, so that the other files cannot be checked; take it from a copy, or "
            "delete it to use them unchecked."
        )
    return {name: expected for expected, name in (line.split("  ", 1) for line in lines.splitlines())}


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
