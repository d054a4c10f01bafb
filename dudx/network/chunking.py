"""State of a chunked evaluation: the size of the batch that is being evaluated in chunks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

CHUNKED_ROWS: ContextVar[int] = ContextVar("dudx_chunked_rows", default=0)


@contextlib.contextmanager
def in_chunks(count: int) -> Iterator[None]:
    """Declare that a batch of this many rows is evaluated in chunks inside the block."""
    token = CHUNKED_ROWS.set(count)
    try:
        yield
    finally:
        CHUNKED_ROWS.reset(token)


def chunked_rows() -> int:
    """Number of rows of the batch that is being evaluated in chunks; 0 if none is."""
    return CHUNKED_ROWS.get()
