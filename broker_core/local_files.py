"""Files that must survive a power cut: their bytes and their names."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

_SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h: start to write the dirty pages


def sync(path: Path | str) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(folder: Path, mode: int = 0o777) -> None:
    """Create a folder and its missing parents, on the disk."""
    if folder.is_dir():
        return
    make_folders(folder.parent, mode)
    folder.mkdir(mode, exist_ok=True)
    sync(folder.parent)


def start_sync(descriptor: int, offset: int = 0) -> None:
    """Let the system start to write bytes from `offset` on, so that a later sync takes less time."""
    if _sync_file_range is not None:
        _sync_file_range(descriptor, offset, 0, _SYNC_FILE_RANGE_WRITE)


def _find_sync_file_range() -> Callable[[int, int, int, int], int] | None:
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError):
        return None  # only Linux has it
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return cast("Callable[[int, int, int, int], int]", function)


_sync_file_range = _find_sync_file_range()
