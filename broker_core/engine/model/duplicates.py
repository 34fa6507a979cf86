"""Duplicate detection: the message ids that a queue remembers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from ..columns.series import Ints

ID_BYTES = 16  # length of the digest of a typed message id; zeros: no id
_NO_ID = b""  # sixteen zero bytes, as numpy returns them
#: Oldest ids that are listed together: to find its first key, a dict passes over all deleted ones.
_AHEAD = 1 << 14


class DuplicateWindow:
    """Digests and arrival times, oldest first. An id costs a Python object."""

    __slots__ = ("_oldest", "_times")

    def __init__(self, ids: Ints | None = None, times: Ints | None = None) -> None:
        self._times: dict[bytes, int] = {}
        self._oldest: list[tuple[bytes, int]] = []  # derived: next to forget, the oldest last
        if ids is not None and times is not None:
            self._times.update(zip(ids.tolist(), times.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self._times)

    def fresh(self, ids: Ints, since: int) -> npt.NDArray[np.bool_]:
        """Return by message whether its id is new: not remembered since `since` (milliseconds), nor that of an earlier one."""
        seen: set[bytes] = set()
        are_new = []
        for digest in ids.tolist():
            are_new.append(digest not in seen and self._times.get(digest, -1) < since)
            if digest != _NO_ID:
                seen.add(digest)
        return np.array(are_new, np.bool_)

    def remember(self, ids: Ints, time: int, most: int) -> None:
        """The ids are fresh."""
        times = self._times
        for digest in ids.tolist():
            if digest != _NO_ID:
                times.pop(digest, None)  # it moves to the end
                times[digest] = time
        while len(times) > most:
            if not self._oldest:
                self._oldest = list(itertools.islice(times.items(), _AHEAD))[::-1]
            digest, came = self._oldest.pop()
            if times.get(digest) == came:  # otherwise it has arrived again
                del times[digest]

    def persisted(self) -> dict[str, Any]:
        times, count = self._times, len(self._times)
        return {"ids": np.fromiter(times, f"S{ID_BYTES}", count), "times": np.fromiter(times.values(), np.int64, count)}
