"""Estimate of the time until the disk of an archive is full: free space divided by growth.

Retention limits the archive to the messages of the retention time and of one more day, because days are removed as a whole. Files
that vacuum has not removed yet come on top.
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

KNOWN_AFTER_S = 600.0  # of growth before the rate is meaningful
LOOK_S = 60.0  # between two checks of the disk,
MEASURE_S = 3600.0  # and between two counts of the archive's files
DAY_S = 86400.0
VACUUM_S = DAY_S  # between two vacuums


class Growth:
    """The growth of one archive. For an object store it estimates nothing."""

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
        self._has, self._measured = 0, -math.inf  # bytes of the archive, and the time of the count
        self._began = self._looked = monotonic()
        self.added_bytes = 0  # of new files
        self.replaced_bytes = 0  # of files that compaction has replaced; they stay until the next vacuum
        self.full_in_s: float | None = None  # None: the disk will not fill up, or nothing is known

    def change(self, settings: Settings) -> None:
        self._keeps_s, self._mark = settings.archive_retention_age_s, settings.free_space_mark_bytes
        self._stays_s = settings.archive_vacuum_after_s + VACUUM_S  # of a removed file on the disk

    def warning(self) -> str | None:
        """Describe a disk that will be full before retention limits the archive."""
        left_s = self.full_in_s
        if self._keeps_s is None or left_s is None:
            return None
        return (
            f"the disk of the archive {self._folder} is full in about {left_s / DAY_S:.1f} days at this rate, before retention "
            f"limits it: messages stay for {self._keeps_s / DAY_S:.1f} days, and their files up to "
            f"{(DAY_S + self._stays_s) / DAY_S:.1f} days longer; shorten archive_retention_age_s, or give it a larger disk"
        )

    def look(self) -> None:
        up = self._monotonic()
        if self._folder is None or up < self._looked + LOOK_S:
            return
        self._looked = up
        passed = up - self._began
        if passed < KNOWN_AFTER_S or not self.added_bytes:
            return
        try:
            free = self._free_bytes(self._folder) - self._mark
        except OSError:
            return  # the writer reports it
        left_s, most = max(0, free) * passed / self.added_bytes, self._most(passed)
        # The files are counted only if the result depends on it.
        is_enough = free >= most or (most < math.inf and free >= most - self._size(up))
        self.full_in_s = None if is_enough else left_s

    def _most(self, passed: float) -> float:
        if self._keeps_s is None:
            return math.inf
        return (self.added_bytes * (self._keeps_s + DAY_S + self._stays_s) + self.replaced_bytes * self._stays_s) / passed

    def _size(self, up: float) -> int:
        if self._folder is not None and up >= self._measured + MEASURE_S:
            self._measured, self._has = up, self._size_of(self._folder)
        return self._has


def bytes_below(folder: Path) -> int:
    """Return the size of all files in a folder, without files that disappear meanwhile."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(path, name)).st_size
    return total
