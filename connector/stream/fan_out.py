"""One query over several sources: the queues of one broker, or several brokers.

A batch of Spark contains a batch of each source that had messages. Each trigger starts with another source, by the rotation in
the offset. A crash between two sources leaves unfinished batches, which a source returns unchanged. These alone are then the next
batch of Spark. So the planner first looks for unfinished batches, unless the previous trigger has shown that all are finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from .credit import Credit

_Offset = TypeVar("_Offset")
_Source = TypeVar("_Source")
_Part = TypeVar("_Part")
_Item = TypeVar("_Item")


class FanOut(Generic[_Offset, _Source, _Part]):
    """The order of a trigger's steps. Each returns the next offset's part of every source that has a batch."""

    _answered: _Offset | None = None  # the previous answer: everything before it is finished, and no other batch is unfinished

    def _next(self, known: _Offset, credit: Credit, wait_ms: int) -> dict[_Source, _Part]:
        is_new, self._answered = known != self._answered, None
        taken = self._unfinished(known) if is_new else {}
        taken = taken or self._arrived(known, credit, is_new)
        return taken if taken or credit.spent else self._acquire(known, credit, wait_ms)

    def _unfinished(self, known: _Offset) -> dict[_Source, _Part]:
        """Settle up to `known` at every source, and return unfinished batches."""
        raise NotImplementedError

    def _arrived(self, known: _Offset, credit: Credit, is_new: bool) -> dict[_Source, _Part]:
        """Return batches of earlier requests. Settle sources that no other request of this trigger settles."""
        raise NotImplementedError

    def _acquire(self, known: _Offset, credit: Credit, wait_ms: int) -> dict[_Source, _Part]:
        """Settle up to `known`, and acquire new batches within the credit."""
        raise NotImplementedError


def no_credit() -> Credit:
    return Credit(0, 0)


def rotated(items: Sequence[_Item], rotation: int) -> list[_Item]:
    first = rotation % max(1, len(items))
    return [*items[first:], *items[:first]]


def added_counts(counts: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Add the counts of a queue at two brokers."""
    total = dict(counts)
    for name, value in more.items():
        if name == "oldestSeconds":
            total[name] = max((age for age in (total.get(name), value) if age is not None), default=None)
        else:
            total[name] = total.get(name, 0) + value
    return total
