"""Yardsticks: the disk, and a Flight server that discards its input."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from zlib import crc32

from harness import MIB, Stopwatch

_fdatasync = getattr(os, "fdatasync", os.fsync)


def write_and_sync(path: Path, total: int) -> float:
    """Seconds to write `total` bytes in pieces of 1 MiB, each followed by fdatasync.

    The file stays, as the journal does: a disk may be several times quicker where another file has just been deleted.
    """
    piece = os.urandom(MIB)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with Stopwatch() as watch:
            written = 0
            while written < total:
                written += os.write(descriptor, piece[: total - written])
                _fdatasync(descriptor)
    finally:
        os.close(descriptor)
    return watch.seconds


def read_and_checksum(data: Path) -> float:
    """Seconds to read every byte of a journal's segments once, in pieces of 1 MiB, and compute their CRC-32."""
    with Stopwatch() as watch:
        for path in sorted(data.glob("*.seg")):
            checksum = 0
            with open(path, "rb", buffering=0) as file:
                while piece := file.read(MIB):
                    checksum = crc32(piece, checksum)
    return watch.seconds


def discarding_server() -> AbstractContextManager[str]:
    """The url of a Flight server, in a process of its own, that acknowledges batches and throws them away."""
    return _served("discarding_server.py")


def proton_peer() -> AbstractContextManager[str]:
    """The url of a peer on python-qpid-proton, in a process of its own, without a queue and a disk."""
    return _served("proton_peer.py")


@contextmanager
def _served(program: str) -> Iterator[str]:
    """Return the line that a program of this folder prints when it listens. The program ends with its stdin."""
    command = [sys.executable, str(Path(__file__).with_name(program))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()
