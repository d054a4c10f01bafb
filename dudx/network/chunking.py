"""Whether a batch is being taken slice by slice at the moment, and how large the whole is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

CHUNKED_ROWS: ContextVar[int] = ContextVar("dudx_slicing", default=0)


@contextlib.contextmanager
def in_chunks(count: int) -> Iterator[None]:
    """While a batch of so many rows is taken slice by slice."""
    token = CHUNKED_ROWS.set(count)
    try:
        yield
    finally:
        CHUNKED_ROWS.reset(token)


def chunked_rows() -> int:
    """The rows of the batch that is being taken apart at the moment; 0 where none is."""
    return CHUNKED_ROWS.get()
