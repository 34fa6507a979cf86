"""Holds: readers that still use positions from before segments were dropped. Until they let go, the files stay.

All readers between two drops share one object, so that a hold costs nothing. It is gone when the last of them has let go of it,
and then the files that were dropped after it was given out may be unlinked, those of earlier drops first.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence

from .segments import Segment


class Hold:
    """Object that a reader keeps as long as it uses positions that it has found; it has no methods."""

    __slots__ = ("__weakref__",)


class Holds:
    """Dropped segments, each with the holds older than its drop. `hold`, `since` and `segments` are for any thread, the rest for
    one at a time."""

    def __init__(self) -> None:
        self._current = Hold()
        self._waiting: deque[tuple[weakref.ref[Hold], Sequence[Segment]]] = deque()

    def hold(self) -> Hold:
        """Return an object for a reader to keep."""
        return self._current

    def dropped(self, segments: Sequence[Segment]) -> None:
        """Note segments that were dropped: whoever has a hold by now may still read them."""
        self._waiting.append((weakref.ref(self._current), segments))
        self._current = Hold()

    def since(self, hold: Hold) -> list[Segment]:
        """Return the segments that were dropped since a hold was given out, and that it keeps on the disk."""
        waiting = list(self._waiting)
        first = next((index for index, (drop, _) in enumerate(waiting) if drop() is hold), len(waiting))
        return [segment for _, segments in waiting[first:] for segment in segments]

    @property
    def segments(self) -> list[Segment]:
        """The dropped segments that wait, oldest drop first."""
        return [segment for _, segments in list(self._waiting) for segment in segments]

    def released(self) -> list[Segment]:
        """Remove and return the segments that no reader holds any more."""
        found: list[Segment] = []
        while self._waiting and self._waiting[0][0]() is None:
            found += self._waiting.popleft()[1]
        return found
