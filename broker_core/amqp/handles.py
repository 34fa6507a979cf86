"""Handles of a session, ours and the peer's (2.6.2)."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

FREED = 1024
"""Handles of one session, or channels, that are remembered as freed: detaches that cross follow each other closely."""


class Freed:
    """Numbers that the peer has freed last and not used again: at most `FREED`."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: dict[int, None] = {}  # in the order in which they were freed

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    def add(self, number: int) -> None:
        self._numbers.pop(number, None)
        if len(self._numbers) >= FREED:
            del self._numbers[next(iter(self._numbers))]
        self._numbers[number] = None

    def discard(self, number: int) -> None:
        self._numbers.pop(number, None)

    def clear(self) -> None:
        self._numbers.clear()


class NamedLink(Protocol):
    """A link."""

    name: str
    handle: int | None

    @property
    def role(self) -> bool:
        """Our role."""


L = TypeVar("L", bound=NamedLink)


class Handles(Generic[L]):
    """`links` are by our handle, `remote_links` by the peer's. `named` holds the same links as `links`, by our role and the name."""

    __slots__ = ("_freed", "_left", "links", "named", "remote_links")

    def __init__(self) -> None:
        self.links: dict[int, L] = {}
        self.remote_links: dict[int, L] = {}
        self.named: dict[tuple[bool, str], list[L]] = {}
        self._freed: list[int] = []  # free handles of ours below the highest, a heap
        self._left = Freed()  # the peer's

    @property
    def lowest(self) -> int:
        return self._freed[0] if self._freed else len(self.links)

    @property
    def all_links(self) -> list[L]:
        """Links with a handle of ours or of the peer's; some occur twice."""
        return [*self.links.values(), *self.remote_links.values()]

    def take(self, link: L) -> None:
        self.links[heappop(self._freed) if self._freed else len(self.links)] = link
        self.named.setdefault((link.role, link.name), []).append(link)

    def release(self, link: L) -> None:
        if link.handle is not None and self.links.get(link.handle) is link:
            del self.links[link.handle]
            heappush(self._freed, link.handle)
            same = self.named[link.role, link.name]
            same.remove(link)
            if not same:
                del self.named[link.role, link.name]

    def attached(self, handle: int, link: L) -> None:
        self.remote_links[handle] = link
        self._left.discard(handle)

    def detached(self, handle: int) -> None:
        del self.remote_links[handle]
        self._left.add(handle)

    def was_left(self, handle: int) -> bool:
        return handle in self._left

    def clear(self) -> None:
        for collection in (self.links, self.remote_links, self.named, self._freed, self._left):
            collection.clear()
