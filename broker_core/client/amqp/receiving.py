"""Common part of links that receive."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ... import amqp
from ...amqp.deliveries import Delivery
from ...amqp.performatives import SND_SETTLED, SND_UNSETTLED, Received
from ...amqp.states import LinkState
from ...amqp.types import Described, Symbol
from ...messages.annotations import REPORTS
from ...selectors import is_blank
from .links import ClientLink, LinkConnection

#: Default number of messages on the way or waiting here.
DEFAULT_CREDIT = 1000

_SELECTOR = Symbol("apache.org:selector-filter:string")
_RECEIVED = Received(section_number=0, section_offset=0)


class ReceivingTerms(NamedTuple):
    """Terms of a link, as of `Connection.receiver`."""

    credit: int
    limit: int | None = None
    browse: bool = False
    presettled: bool = False
    selector: str | None = None
    properties: Mapping[str, Any] | None = None

    def source(self, address: str) -> amqp.Source:
        selects = self.selector is not None and not is_blank(self.selector)
        return amqp.Source(
            address=address,
            distribution_mode="copy" if self.browse else None,
            filter={_SELECTOR: Described(_SELECTOR, self.selector)} if selects else None,
        )


class SteppedConnection(LinkConnection, Protocol):
    """A connection that reads in the caller's thread."""

    timeout_s: float

    def step(self, timeout_s: float) -> bool: ...


class ReceivingLink(ClientLink):
    """A link that receives. When it ends, its messages return to their queue.

    Attributes:
        received: Number of messages that have come.
        credit: Largest number of messages on the way or waiting here.
    """

    link: amqp.Receiver
    connection: SteppedConnection
    _can_report = False

    def __init__(self, connection: SteppedConnection, session: amqp.Session, address: str, terms: ReceivingTerms) -> None:
        super().__init__(connection, address)
        self.received = 0
        self.credit = terms.credit
        self._limit = terms.limit
        self._waiting: list[Any] = []  # deliveries, or blocks of them
        self._draining = False
        self.link = session.receiver(connection.new_link_name())
        reports = self._can_report and not (terms.browse or terms.presettled)
        self._attach(
            source=terms.source(address),
            target=amqp.Target(),
            snd_settle_mode=SND_SETTLED if terms.presettled else SND_UNSETTLED,
            properties=with_reports(connection, terms.properties) if reports else terms.properties,
        )
        self._renew()
        connection.flush()

    def _take(self, most: int | None, timeout_s: float | None) -> list[Any]:
        """Wait at most `timeout_s` for the first item, then return up to `most`."""
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
            taken, self._waiting = self._waiting, []
        else:
            taken, self._waiting = self._waiting[:most], self._waiting[most:]
        if taken:
            self._before_return(taken)
        else:
            self.check()
        self._renew()  # sent with the next write: a busy application takes no messages from other consumers
        return taken

    def _before_return(self, taken: list[Any]) -> None:
        """Report the messages that the application is about to have, if the broker wants reports."""

    @property
    def selects(self) -> bool:
        """True if the broker has confirmed the selector. Otherwise it may send every message."""
        source = self.link.source
        return source is not None and _SELECTOR in (getattr(source, "filter", None) or {})

    @property
    def exhausted(self) -> bool:
        """True if as many messages have come as `limit` allows."""
        return self._limit is not None and self.received >= self._limit

    def drain(self, limit_s: float | None = None) -> None:
        """Take the credit back, after the messages that the broker has for it.

        `receive` returns messages that come meanwhile, and grants new credit.

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
                self._wait_until(lambda: self.link.link_credit == 0, f"it does not drain {self.address!r}", limit_s)
            finally:
                self._draining = False

    def _renew(self) -> None:
        """Grant new credit once half of it is used. If `credit` was lowered, take back credit beyond twice its value."""
        if self._draining or self.link.state is not LinkState.ATTACHED:
            return
        capacity = self.credit - self._count()
        if self._limit is not None:
            capacity = min(capacity, self._limit - self.received)
        if self.link.link_credit > 2 * max(capacity, 0):
            self.link.grant(max(capacity, 0))
        elif capacity > self.link.link_credit and self.link.link_credit <= self.credit // 2:
            self.link.grant(capacity)

    def _count(self) -> int:
        return len(self._waiting)


# Reports of the deliveries that the application has, for which the broker counts an attempt when the link is lost. A report
# covers all earlier deliveries. Only a broker that grants the link property gets reports: others use the state *received* for
# resumed links.


def with_reports(connection: LinkConnection, properties: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return {**(properties or {}), REPORTS: True} if connection.is_penstock else properties


def wants_reports(link: amqp.Receiver) -> bool:
    attach = link.remote_attach
    return attach is not None and (attach.properties or {}).get(REPORTS) is True


def report(delivery: Delivery) -> None:
    """Report that the application is about to have a delivery. The caller flushes. Raises LocalProtocolError."""
    delivery.link.session.dispose([delivery], _RECEIVED, settled=False)
