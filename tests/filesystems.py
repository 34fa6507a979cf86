"""A small file system of its own, for what happens when it is full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_BLOCK = 4096


class SmallDisk:
    """A mounted tmpfs at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    @property
    def free(self) -> int:
        """Free bytes."""
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Be the other program that fills the disk, up to `leave` bytes; 0 until it is full at one moment."""
        with open(self._filler, "ab", buffering=0) as file:
            while self.free > leave:
                try:
                    file.write(bytes(max(_BLOCK, min(1 << 20, self.free - leave))))
                except OSError:
                    return

    def give_back(self) -> None:
        """Remove the file of `fill`."""
        self._filler.unlink()


def mounted(path: Path, size: str) -> Iterator[SmallDisk]:
    """Mount a tmpfs of this size for a test; the test is skipped where mounting is not permitted."""
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"needs the right to mount a tmpfs (root with CAP_SYS_ADMIN): {done.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
