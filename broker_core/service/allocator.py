"""Return free memory to the system: after a burst of large batches an idle broker should be small again.

The C library keeps free memory between two blocks in use, in one heap for each thread. Arrow's pool keeps pages for its next
buffers. Both allocate again on demand.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pyarrow as pa

TRIM_BYTES = 8 << 20  # free bytes at the end of a heap; more are returned to the system
MMAP_BYTES = 32 << 20  # larger buffers have a mapping of their own, which is returned with them; the most that glibc allows
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def keep_heaps_short() -> None:
    """Fix glibc's thresholds, which it otherwise raises. glibc returns the end of a thread's heap only when memory is freed
    there, and `malloc_trim` does not. Without this the thread that writes a snapshot would keep its memory for ever."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return  # not glibc
    mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES)
    mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)


def _find_trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None  # not glibc


_trim = _find_trim()


def give_back() -> None:
    """Return free memory to the system: about 1 ms for 10 MB. ctypes lets other threads run meanwhile."""
    pa.default_memory_pool().release_unused()
    if _trim is not None:
        _trim(0)
