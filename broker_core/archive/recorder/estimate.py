"""Estimate of when the disk of an archive is full: its free space against the rate at which the archive has grown.

It is not full when as much goes as comes. The archive then has what came within its retention and the day that goes as a whole
after it; and, until vacuum has removed them, the files of older days and those that compaction has replaced.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from ...settings.keys import Settings
from ...stores.folders import is_local, local_path

KNOWN_AFTER_S = 600.0  # for which the archive has to have grown before its rate says something
LOOK_S = 60.0  # between two looks at the disk,
MEASURE_S = 3600.0  # and at the size of every file of the archive
DAY_S = 86400.0
VACUUM_S = DAY_S  # between two looks for files that nobody needs


class Growth:
    """The growth of one archive. Of an object store nothing is known, and nothing is said."""

    def __init__(
        self,
        url: str,
        settings: Settings,
        monotonic: Callable[[], float] = time.monotonic,
        free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
        size_of: Callable[[Path], int] | None = None,
    ) -> None:
        self._folder = Path(local_path(url)) if is_local(url) else None
        self.change(settings)
        self._monotonic, self._free_bytes, self._size_of = monotonic, free_bytes, size_of or bytes_below
        self._has, self._measured = 0, -math.inf  # bytes of the archive, and when they were counted
        self._began = self._looked = monotonic()
        self._bytes = self._replaced = 0
        self._full_in_s: float | None = None

    def change(self, settings: Settings) -> None:
        """Take over settings that were read again."""
        self._keeps_s, self._mark = settings.archive_retention_age_s, settings.free_space_mark_bytes
        self._stays_s = settings.archive_vacuum_after_s + VACUUM_S  # of a file that is in the table no more

    def grew(self, count: int) -> None:
        """Note bytes of files that were added."""
        self._bytes += count

    def compacted(self, replaced: int) -> None:
        """Note bytes of files whose rows are in others now. They stay until vacuum comes."""
        self._replaced += replaced

    def full_in_s(self) -> float | None:
        """Seconds until the disk is full, if that is before as much goes as comes; None: it is not, as far as can be known."""
        return self._full_in_s

    def warning(self) -> str | None:
        """Say so in a sentence, where there is a time after which messages go."""
        left_s = self._full_in_s
        if self._keeps_s is None or left_s is None:
            return None
        return (
            f"the disk of the archive {self._folder} is full in about {left_s / DAY_S:.1f} days at this rate, before as much "
            f"goes as comes: messages stay for {self._keeps_s / DAY_S:.1f} days, and their files up to "
            f"{(DAY_S + self._stays_s) / DAY_S:.1f} days longer; shorten archive_retention_age_s, or give it a larger disk"
        )

    def look(self) -> None:
        """Look at the disk, at most once a minute."""
        up = self._monotonic()
        if self._folder is None or up < self._looked + LOOK_S:
            return
        self._looked = up
        passed = up - self._began
        if passed < KNOWN_AFTER_S or not self._bytes:
            return
        try:
            free = self._free_bytes(self._folder) - self._mark
        except OSError:
            return  # who writes there says so
        left_s, most = max(0, free) * passed / self._bytes, self._most(passed)
        # The files are counted only where that matters.
        is_enough = free >= most or (most < math.inf and free >= most - self._size(up))
        self._full_in_s = None if is_enough else left_s

    def _most(self, passed: float) -> float:
        """Return the bytes that the archive has at most, once as much goes as comes."""
        if self._keeps_s is None:
            return math.inf
        return (self._bytes * (self._keeps_s + DAY_S + self._stays_s) + self._replaced * self._stays_s) / passed

    def _size(self, up: float) -> int:
        """Return the bytes that the archive has, as they were counted within the last hour."""
        if self._folder is not None and up >= self._measured + MEASURE_S:
            self._measured, self._has = up, self._size_of(self._folder)
        return self._has


def bytes_below(folder: Path) -> int:
    """Add up the files of a folder. Files that go meanwhile do not count."""
    found = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found += os.stat(os.path.join(path, name)).st_size
    return found
