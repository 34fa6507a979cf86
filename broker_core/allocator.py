"""Memory that is free goes back to the system: a burst of large batches must not weigh on a broker that idles with full queues.

The C library keeps what was freed between two things still in use, one heap for each thread, and Arrow's pool keeps pages for its
next buffers. Both take up what they need again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pyarrow as pa


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
