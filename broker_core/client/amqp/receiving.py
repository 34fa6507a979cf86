"""Common part of receivers: credit that is renewed as messages are taken, drains, and the wait for messages."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ... import amqp
from ...amqp.performatives import SND_SETTLED, SND_UNSETTLED
from ...amqp.states import LinkState
from ...amqp.types import Described, Symbol
from ...selectors import is_blank
from .links import ClientLink, LinkConnection
from .reports import with_reports

#: Default credit: messages on the way or waiting here.
DEFAULT_CREDIT = 1000

_SELECTOR = Symbol("apache.org:selector-filter:string")


def _filter(selector: str | None) -> Mapping[str, Any] | None:
    return None if selector is None or is_blank(selector) else {_SELECTOR: Described(_SELECTOR, selector)}


class ReceivingLink(ClientLink):
    """A link on which messages come, in the form that a subclass keeps them in. When it ends, they return to their queue.

    Attributes:
        received: Number of messages that have come.
    """

    link: amqp.Receiver
    _can_report = False  # which deliveries the application has

    def __init__(
        self,
        connection: LinkConnection,
        address: str,
        name: str,
        credit: int,
        limit: int | None,
        browse: bool,
        presettled: bool,
        selector: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(connection, address)
        self.received = 0
        self.credit = credit  # may be changed: what is granted next follows
        self._limit = limit
        self._waiting: list[Any] = []  # deliveries, or blocks of them
        self._draining = False
        self.link = connection.session.receiver(name)
        self._attach(
            source=amqp.Source(address=address, distribution_mode="copy" if browse else None, filter=_filter(selector)),
            target=amqp.Target(),
            snd_settle_mode=SND_SETTLED if presettled else SND_UNSETTLED,
            properties=with_reports(connection, properties) if self._can_report and not (browse or presettled) else properties,
        )
        self._renew()
        connection.flush()

    def _take(self, most: int | None, timeout_s: float | None) -> list[Any]:
        """Return what has come, `most` of it at most; wait for the first for `timeout_s` at most. Raises PenstockError."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._renew()
        self.connection.step(0.0) if not self._waiting else self.connection.flush()
        while not self._waiting and not self.exhausted:
            self.check()
            left = self.connection.timeout_s if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return []
            self.connection.step(left)
        if most is None or most >= len(self._waiting):
            found, self._waiting = self._waiting, []
        else:
            found, self._waiting = self._waiting[:most], self._waiting[most:]
        if found:
            self._hand_over(found)
        else:
            self.check()
        self._renew()  # leaves with the next write: an application that is busy now takes no more messages from other consumers
        return found

    def _hand_over(self, found: list[Any]) -> None:
        """Tell the broker what the application is about to have, if it is to know."""

    @property
    def selects(self) -> bool:
        """Say whether the broker has confirmed the selector; without its word it may send every message."""
        source = self.link.source
        return source is not None and _SELECTOR in (getattr(source, "filter", None) or {})

    @property
    def exhausted(self) -> bool:
        """True when as many messages have come as `limit` allows."""
        return self._limit is not None and self.received >= self._limit

    def drain(self, limit_s: float | None = None) -> None:
        """Wait until the broker has sent what it has for the credit, and take the rest of the credit back.

        Messages that came meanwhile are for `receive`, which grants new credit.

        Args:
            limit_s: Seconds to wait at most. None: the connection's time limit.

        Raises:
            PenstockError: The broker does not answer in time, or has ended the link.
        """
        self.check()
        if self.link.link_credit:
            self.link.grant(self.link.link_credit, drain=True)
            self._draining = True
            try:
                self.connection.wait_until(self._drained, f"it does not drain {self.address!r}", limit_s)
            finally:
                self._draining = False

    def _drained(self) -> bool:
        self.check()
        return self.link.link_credit == 0

    # --- credit

    def _renew(self) -> None:
        """Grant new credit once half of it is used: messages on the way and waiting are never more than `credit`.

        Where `credit` was lowered, they may be twice as many, and what the sender has not used beyond that is taken back.
        """
        if self._draining or self.link.state is not LinkState.ATTACHED:
            return
        capacity = self.credit - self._count()
        if self._limit is not None:
            capacity = min(capacity, self._limit - self.received)
        if self.link.link_credit > 2 * max(capacity, 0):  # `credit` was lowered
            self.link.grant(max(capacity, 0))
        elif capacity > self.link.link_credit and self.link.link_credit <= self.credit // 2:
            self.link.grant(capacity)

    def _count(self) -> int:
        """Return the number of messages that wait for `receive`."""
        return len(self._waiting)
