"""Memory that one slice frees and the next one needs: the C library can be told not to hand it back in between."""

from __future__ import annotations

import ctypes
import os
import sys

# The names and numbers of <malloc.h>; a size above the first is mapped and unmapped, the second is kept when freed.
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1
_MAPPED, _KEPT = 2**25, 2**28
_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Let the process keep up to 256 MiB of freed memory from now on, for the next slice or step that needs it.

    With its defaults glibc returns a layer's activations to the system when they are freed, and thousands of page
    faults bring them back in the next slice. It is a setting of the whole process, so nothing but this call changes it.
    Who has set the allocator up in the environment is not overruled, and other C libraries are left alone.

    Returns:
        Whether that was possible.

    >>> kept = dudx.keep_freed_memory()  # once, before training
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _SETTINGS):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MAPPED)) and bool(mallopt(_M_TRIM_THRESHOLD, _KEPT))
