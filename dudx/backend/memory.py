"""Allocator setting of the C library: keep freed memory for the next slice of a batch."""

from __future__ import annotations

import ctypes
import os
import sys

# Names and values of <malloc.h>. Blocks above the first size are mapped and unmapped; up to the second size of freed
# memory is kept.
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1
_MAPPED, _KEPT = 2**25, 2**28
_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Let the process keep up to 256 MiB of freed memory for the next slice or training step.

    By default glibc returns the activations of a layer to the system when they are freed, and thousands of page faults
    bring them back in the next slice. This is a setting of the whole process; only this call changes it. Settings in
    the environment take precedence, and C libraries other than glibc are left unchanged.

    Returns:
        True if the setting was applied.

    >>> kept = dudx.keep_freed_memory()  # once, before training
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _SETTINGS):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MAPPED)) and bool(mallopt(_M_TRIM_THRESHOLD, _KEPT))
