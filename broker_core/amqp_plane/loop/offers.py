"""*Immediate* messages: offered to the links that can take messages, and stored only if one of them does.

The engine decides. While a link awaits an evaluation for earlier messages, the decision waits.

The sender receives *accepted* for a message that a link acquired, also if it comes back later, and *released* for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from ... import selectors
from ...engine import commands as c
from ...engine.columns.series import Ints
from ...messages.encoding.arriving import ArrivedMessages
from ...selectors import Selector
from .parties import Parts, ReceiverLink

QUANTUM_MESSAGES = 512  # of one acquisition: large ones are cheap, and small ones are fair


class ImmediateMessages:
    """Messages of one commit for one queue, at least one; not stored."""

    def __init__(self, queue: str, parts: Parts, arrived: ArrivedMessages) -> None:
        self.queue, self.parts, self.arrived = queue, parts, arrived
        self._matches: dict[Selector, npt.NDArray[np.bool_]] = {}

    def evaluate(self, chosen: Iterable[Selector]) -> None:
        for selector in chosen:
            self.matches(selector)

    def matches(self, selector: Selector) -> npt.NDArray[np.bool_]:
        known = self._matches.get(selector)
        if known is None:
            known = self._matches[selector] = selectors.matches(selector, self.arrived.batch)
        return known


class Offers:
    """Offers in the order in which they are made. `count`: arriving messages.

    `grouped`: the queue has message groups, so that a link may be able to take only some of the messages.
    """

    def __init__(self, count: int, matches: Callable[[Selector], Ints], *, grouped: bool) -> None:
        self.offers: list[c.Offer] = []
        self.budgets: list[int] = []  # limits of connections and sessions
        self.links: dict[int, ReceiverLink] = {}  # by holder
        self._count, self._matches = count, matches
        self._grouped = grouped
        self._indexes: dict[object, int] = {}  # of offer budget, by the connection's capacity or the session
        self._spare: list[int] = []  # the rest of each budget after certain offers
        self._left = count  # messages that are not certain to be taken

    def add(self, links: Iterable[ReceiverLink]) -> None:
        """Add the offers of links of one priority, unless earlier ones are certain to take all messages."""
        offers = []
        for link in links:
            if self._left <= 0:
                break
            capacity = min(link.capacity(), self._count)
            if capacity > 0:
                offers.append(self._offer(link, capacity))
        while offers:
            self.offers += [offer._replace(messages=min(offer.messages, QUANTUM_MESSAGES)) for offer in offers]
            rest = [offer._replace(messages=offer.messages - QUANTUM_MESSAGES) for offer in offers]
            offers = [offer for offer in rest if offer.messages > 0]

    def _offer(self, link: ReceiverLink, capacity: int) -> c.Offer:
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
