"""One source of a consumer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from ... import amqp, errors
from ...amqp import LocalProtocolError, events
from ...amqp.deliveries import Delivery
from ...amqp.performatives import SND_SETTLED, SND_UNSETTLED
from ...amqp.types import Described, Int, Symbol, ULong, Value
from ...selectors import is_blank
from ..amqp.links import ClientLink
from ..amqp.receiving import report, wants_reports, with_reports
from .server import ServerConnection

SELECTOR, NO_LOCAL = "apache.org:selector-filter:string", "apache.org:no-local-filter:list"
_SELECTOR_CODE, _NO_LOCAL_CODE = ULong(0x0000468C00000004), ULong(0x0000468C00000003)


class SourceOptions(NamedTuple):
    """`window` is a link's credit when no message waits."""

    window: int
    selector: str | None = None
    no_local: bool = False
    browse: bool = False
    exclusive: bool = False
    priority: int | None = None
    dynamic: bool = False  # a temporary queue, which only this connection receives from

    def source(self, address: str) -> amqp.Source:
        if self.dynamic:
            return amqp.Source(dynamic=True, capabilities=(Symbol("temporary-queue"),))
        mode = "copy" if self.browse else None
        return amqp.Source(address=address, distribution_mode=mode, filter=self.filter() or None)

    def filter(self) -> dict[str, Value]:
        filters: dict[str, Value] = {}
        if self.selector is not None and not is_blank(self.selector):
            filters[Symbol(SELECTOR)] = Described(_SELECTOR_CODE, self.selector)
        if self.no_local:
            filters[Symbol(NO_LOCAL)] = Described(_NO_LOCAL_CODE, [])
        return filters

    def properties(self) -> dict[str, Value]:
        properties: dict[str, Value] = {}
        if self.priority is not None:
            properties[Symbol("priority")] = Int(self.priority)
        if self.exclusive:
            properties[Symbol("exclusive")] = True
        return properties


class SourceLink(ClientLink):
    """A receiving link, attached when made. The pump calls `arrived(link, deliveries)` and `failed(error)` under the lock."""

    link: amqp.Receiver

    def __init__(
        self,
        server: ServerConnection,
        session: amqp.Session,
        address: str,
        options: SourceOptions,
        arrived: Callable[[SourceLink, list[Delivery]], None],
        failed: Callable[[errors.PenstockError], None],
    ) -> None:
        super().__init__(server, address)
        self._window = options.window
        self._arrived, self._failed = arrived, failed
        self._stopped = False
        self.link = session.receiver(server.new_link_name())
        filters = options.filter()
        self._attach(
            source=options.source(address),
            target=amqp.Target(),
            snd_settle_mode=SND_SETTLED if options.browse else SND_UNSETTLED,
            properties=options.properties() or None if options.browse else with_reports(server, options.properties()),
        )
        if options.dynamic:
            self.address = str(getattr(self.link.source, "address", None))
        self.reports = wants_reports(self.link)
        granted = getattr(self.link.source, "filter", None) or {}
        if missing := [name for name in filters if name not in granted]:
            self.close()
            raise errors.InvalidRequest(
                f"the broker does not support the filter {missing[0]} at {address!r} and would send everything; leave the"
                " filter out"
            )

    def report(self, delivery: Delivery) -> None:
        with suppress(LocalProtocolError):  # the connection has just ended: the broker delivers it again
            report(delivery)
        self.connection.flush()

    def renew(self, waiting: int) -> None:
        capacity = self._window - waiting
        if self.usable and not self._stopped and capacity > self.link.link_credit and self.link.link_credit <= self._window // 2:
            self._grant(capacity)

    def request_one(self, *, drain: bool) -> None:
        """`drain`: only a message that the broker has now."""
        if self.usable:
            self._grant(1, drain)

    def stop(self) -> None:
        """Drain the credit, without waiting. Messages that the broker has for it come first; see `stopped`."""
        self._stopped = True
        if self.usable and self.link.link_credit:
            self._grant(self.link.link_credit, drain=True)

    def _grant(self, credit: int, drain: bool = False) -> None:
        with suppress(LocalProtocolError):  # the connection has just ended
            self.link.grant(credit, drain=drain)

    def resume(self) -> None:
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """True if no message can be on its way any more."""
        return not self.usable or self.link.link_credit == 0

    def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Delivered):
            self._arrived(self, event.deliveries)
            return
        before = self.failure
        super().on_event(event)
        if isinstance(event, events.Detached | events.Violated):
            self.connection.links.pop(self.link, None)
            if before is None and self.failure is not None:
                self._failed(self.failure)
