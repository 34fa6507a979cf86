"""Duplicate detection: the message ids that a queue remembers, within a window of count and time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..columns.series import Ints

ID_BYTES = 16  # of the digest of a typed message id; all zero: the message has none
_NO_ID = b""  # what numpy makes of sixteen zero bytes
#: Ids that are looked up at once to be forgotten: who looks for the first of a dict walks over all that were deleted.
_AHEAD = 1 << 14


class DuplicateWindow:
    """Digest → when the message came, oldest first. It costs a Python object an id, which the window's limit bounds."""

    __slots__ = ("_oldest", "_times")

    def __init__(self, ids: Ints | None = None, times: Ints | None = None) -> None:
        self._times: dict[bytes, int] = {}
        self._oldest: list[tuple[bytes, int]] = []  # derived: the next to be forgotten, the oldest last
        if ids is not None and times is not None:
            self._times.update(zip(ids.tolist(), times.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self._times)

    def fresh(self, ids: Ints, since: int) -> npt.NDArray[np.bool_]:
        """By message, whether its id is neither remembered since `since` (milliseconds) nor that of an earlier one of these."""
        return np.fromiter(self._fresh(ids, since), np.bool_, len(ids))

    def _fresh(self, ids: Ints, since: int) -> Iterator[bool]:
        seen: set[bytes] = set()
        for one in ids.tolist():
            known = one in seen or self._times.get(one, -1) >= since
            if one != _NO_ID:
                seen.add(one)
            yield not known

    def remember(self, ids: Ints, time: int, most: int) -> None:
        """These came at `time`; at most so many ids are kept. They are fresh: what is known already came earlier than `time`."""
        times = self._times
        for one in ids.tolist():
            if one != _NO_ID:
                times.pop(one, None)  # so that it stands at the end
                times[one] = time
        while len(times) > most:
            if not self._oldest:
                self._oldest = list(itertools.islice(times.items(), _AHEAD))[::-1]
            one, came = self._oldest.pop()
            if times.get(one) == came:  # else it has come again since
                del times[one]

    def persisted(self) -> dict[str, Any]:
        """Return ids and times, as a snapshot has them."""
        times, count = self._times, len(self._times)
        return {"ids": np.fromiter(times, f"S{ID_BYTES}", count), "times": np.fromiter(times.values(), np.int64, count)}
