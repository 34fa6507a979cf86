"""Memory that is free goes back to the system: a burst of large batches must not weigh on a broker that idles with full queues.

The C library keeps what was freed between two things still in use, one heap for each thread, and Arrow's pool keeps pages for its
next buffers. Both take up what they need again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pyarrow as pa

TRIM_BYTES = 8 << 20  # free at the end of a heap, beyond which it is given back
MMAP_BYTES = 32 << 20  # from here on a buffer is mapped by itself, and given back with it; the most that glibc allows
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def keep_heaps_short() -> None:
    """Of a thread's heap glibc gives the end back only when something is freed there, and only beyond a threshold that it raises
    as it likes; `malloc_trim` leaves it alone. A snapshot, which its own thread takes, would weigh on the broker for ever."""
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
        return None  # not glibc: its allocator has its own ways


_trim = _find_trim()


def give_back() -> None:
    """Takes a millisecond for some ten megabytes; ctypes lets other threads run meanwhile."""
    pa.default_memory_pool().release_unused()
    if _trim is not None:
        _trim(0)
