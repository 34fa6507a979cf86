"""Offers: the links that can take arriving messages immediately, as the engine needs them for its decision."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ...engine import commands as c

if TYPE_CHECKING:
    from ...engine.columns.series import Ints
    from ...engine.model.search import Matching
    from ...selectors import Selector

QUANTUM_MESSAGES = 512  # one acquisition: a large one is cheap, and a small one lets the next link have its share soon


class Taker(Protocol):
    """A link that takes messages."""

    holder: int
    selector: Selector | None

    def capacity(self) -> int:
        """Count the messages that it could take now."""

    def budgets(self) -> tuple[tuple[object, int], ...]:
        """Return the limits that it shares with other links: what shares each limit, and how many messages are left."""

    def known_matches(self) -> Matching | None:
        """Return the known matches of its selector in the queue."""


L = TypeVar("L", bound=Taker)


class Offers(Generic[L]):
    """Offers in the order in which they are made. `links`: by holder; `budgets`: limits of connections and sessions."""

    def __init__(self, count: int, matches: Callable[[Selector], Ints], *, grouped: bool) -> None:
        """`count`: arriving messages; `matches`: by message, whether a selector matches; `grouped`: the queue has message groups,
        so that a link may be able to take some of the messages only."""
        self.offers: list[c.Offer] = []
        self.budgets: list[int] = []
        self.links: dict[int, L] = {}
        self._count, self._matches = count, matches
        self._grouped = grouped
        self._indexes: dict[object, int] = {}  # of each budget, by the connection's capacity or the session
        self._spare: list[int] = []  # budgets less what is certain to be taken
        self._left = count  # messages less what is certain to be taken

    def add(self, links: Iterable[L]) -> None:
        """Add the offers of links of one priority, except for links that get nothing because earlier ones take all messages."""
        offers = []
        for link in links:
            if self._left <= 0:
                break
            capacity = min(link.capacity(), self._count)
            if capacity > 0:
                offers.append(self._offer(link, capacity))
        while offers:
            self.offers += [each._replace(messages=min(each.messages, QUANTUM_MESSAGES)) for each in offers]
            rest = [each._replace(messages=each.messages - QUANTUM_MESSAGES) for each in offers]
            offers = [each for each in rest if each.messages > 0]

    def _offer(self, link: L, capacity: int) -> c.Offer:
        self.links[link.holder] = link
        budgets = tuple(self._index(key, free) for key, free in link.budgets())
        if link.selector is None and not self._grouped:
            certain = min(capacity, *(self._spare[index] for index in budgets))
            self._left -= certain
            for index in budgets:
                self._spare[index] -= certain
        matches = None if link.selector is None else self._matches(link.selector)
        return c.Offer(link.holder, capacity, budgets, link.known_matches(), matches)

    def _index(self, key: object, free: int) -> int:
        if key not in self._indexes:
            self._indexes[key] = len(self.budgets)
            self.budgets.append(free)
            self._spare.append(free)
        return self._indexes[key]
