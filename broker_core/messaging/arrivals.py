"""What has come over the links of one consumer and was not taken yet: one queue of arrivals, fair between the links."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Arrivals(Generic[K, V]):
    """First in, first out for each link; the links take turns. Bounded by the credit that their owner gives."""

    def __init__(self) -> None:
        self._waiting: dict[K, deque[V]] = {}
        self._turns: deque[K] = deque()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __bool__(self) -> bool:
        return bool(self._turns)

    def waiting(self, link: K) -> int:
        """How many of one link's."""
        return len(self._waiting.get(link, ()))

    def add(self, link: K, items: list[V]) -> None:
        queue = self._waiting.setdefault(link, deque())
        if not queue and items:
            self._turns.append(link)
        queue += items

    def take(self) -> tuple[K, V] | None:
        """The next, of the link whose turn it is."""
        if not self._turns:
            return None
        link = self._turns.popleft()
        queue = self._waiting[link]
        item = queue.popleft()
        if queue:
            self._turns.append(link)
        else:
            del self._waiting[link]
        return link, item

    def clear(self) -> list[V]:
        """Everything, taken at once; each link's in its order."""
        found = [item for queue in self._waiting.values() for item in queue]
        self._waiting.clear()
        self._turns.clear()
        return found
