"""Holds of readers that use positions from before a drop of segments. The files stay until the readers release them. All readers
between two drops share one object.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence

from .segments import Segment


class Hold:
    """Object that a reader keeps while it uses positions."""

    __slots__ = ("__weakref__",)


class Holds:
    """Dropped segments, each with the holds older than its drop. For one thread at a time, but `hold`, `since` and `segments` for
    any.
    """

    def __init__(self) -> None:
        self._current = Hold()
        self._waiting: deque[tuple[weakref.ref[Hold], Sequence[Segment]]] = deque()

    def hold(self) -> Hold:
        return self._current

    def dropped(self, segments: Sequence[Segment]) -> None:
        """Readers with an earlier hold may still read the segments."""
        self._waiting.append((weakref.ref(self._current), segments))
        self._current = Hold()

    def since(self, hold: Hold) -> list[Segment]:
        """Return the segments that a hold keeps on the disk."""
        waiting = list(self._waiting)
        first = next((index for index, (drop, _) in enumerate(waiting) if drop() is hold), len(waiting))
        return [segment for _, segments in waiting[first:] for segment in segments]

    @property
    def segments(self) -> list[Segment]:
        return [segment for _, segments in list(self._waiting) for segment in segments]

    def released(self) -> list[Segment]:
        """Remove and return the segments that no reader holds."""
        segments: list[Segment] = []
        while self._waiting and self._waiting[0][0]() is None:
            segments += self._waiting.popleft()[1]
        return segments
