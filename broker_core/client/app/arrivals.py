"""Messages of one consumer that wait to be taken."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Arrivals(Generic[K, V]):
    """A queue for each link. The links take turns."""

    def __init__(self) -> None:
        self._waiting: dict[K, deque[V]] = {}
        self._turns: deque[K] = deque()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __bool__(self) -> bool:
        return bool(self._turns)

    def waiting(self, link: K) -> int:
        return len(self._waiting.get(link, ()))

    def add(self, link: K, items: list[V]) -> None:
        queue = self._waiting.setdefault(link, deque())
        if not queue and items:
            self._turns.append(link)
        queue += items

    def take(self) -> tuple[K, V] | None:
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
        items = [item for queue in self._waiting.values() for item in queue]
        self._waiting.clear()
        self._turns.clear()
        return items
