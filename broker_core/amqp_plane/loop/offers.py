"""Offers: the links that can take arriving messages immediately, as the engine needs them for its decision."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...engine import commands as c

if TYPE_CHECKING:
    from ..links.outgoing import Outgoing
    from .immediate import ImmediateBatch

QUANTUM_MESSAGES = 512  # one acquisition: a large one is cheap, and a small one lets the next link have its share soon


class Offers:
    """Offers in the order in which they are made. `links`: by holder; `budgets`: limits of connections and sessions."""

    def __init__(self, messages: ImmediateBatch, *, grouped: bool) -> None:
        """`grouped`: the queue has message groups, so that a link may be able to take some of the messages only."""
        self.offers: list[c.Offer] = []
        self.budgets: list[int] = []
        self.links: dict[int, Outgoing] = {}
        self._messages = messages
        self._grouped = grouped
        self._indexes: dict[object, int] = {}  # of each budget, by the connection's capacity or the session
        self._spare: list[int] = []  # budgets less what is certain to be taken
        self._left = messages.count  # messages less what is certain to be taken

    def add(self, links: Iterable[Outgoing]) -> None:
        """Add the offers of links of one priority. Leaves out links that no message can reach."""
        offers = []
        for link in links:
            if self._left <= 0:
                break
            capacity = min(link.capacity(), self._messages.count)
            if capacity > 0:
                offers.append(self._offer(link, capacity))
        while offers:
            self.offers += [each._replace(messages=min(each.messages, QUANTUM_MESSAGES)) for each in offers]
            rest = [each._replace(messages=each.messages - QUANTUM_MESSAGES) for each in offers]
            offers = [each for each in rest if each.messages > 0]

    def _offer(self, link: Outgoing, capacity: int) -> c.Offer:
        self.links[link.holder] = link
        shared = link.peer.capacity.budgets(link.link.session)
        budgets = tuple(self._index(key, free) for key, free in shared)
        if link.selector is None and not self._grouped:
            certain = min(capacity, *(self._spare[index] for index in budgets))
            self._left -= certain
            for index in budgets:
                self._spare[index] -= certain
        matches = None if link.selector is None else self._messages.matches(link.selector)
        return c.Offer(link.holder, capacity, budgets, link.known_matches(), matches)

    def _index(self, key: object, free: int) -> int:
        if key not in self._indexes:
            self._indexes[key] = len(self.budgets)
            self.budgets.append(free)
            self._spare.append(free)
        return self._indexes[key]
