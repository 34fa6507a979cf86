"""Returns free memory to the system, so that an idle broker is small again after large batches."""

from __future__ import annotations

import contextlib
import ctypes

import pyarrow as pa

TRIM_BYTES = 8 << 20  # free bytes at the end of a heap
MMAP_BYTES = 32 << 20  # larger buffers have their own mapping; the most that glibc allows
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def keep_heaps_short() -> None:
    """Fix glibc's thresholds, which it otherwise raises. glibc returns the end of a thread's heap only when memory is freed
    there, and `malloc_trim` does not: the thread that writes a snapshot would keep its memory."""
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)


def give_back() -> None:
    """Takes about 1 ms for 10 MB. Other threads run meanwhile."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
