"""One source of a consumer: a receiving link with its share of the consumer's credit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp import LocalProtocolError, events
from penstock.broker_core.amqp.deliveries import Delivery
from penstock.broker_core.amqp.performatives import SND_SETTLED, SND_UNSETTLED
from penstock.broker_core.amqp.states import LinkState
from penstock.broker_core.amqp.types import Described, Int, Symbol, ULong, Value
from penstock.broker_core.amqp_client.links import ClientLink

if TYPE_CHECKING:
    from penstock.broker_core.messaging.wire import Wire

SELECTOR, NO_LOCAL = "apache.org:selector-filter:string", "apache.org:no-local-filter:list"
_SELECTOR_CODE, _NO_LOCAL_CODE = ULong(0x0000468C00000004), ULong(0x0000468C00000003)


class Terms(NamedTuple):
    """What a consumer asks for at each of its sources."""

    selector: str | None = None
    no_local: bool = False
    browse: bool = False
    exclusive: bool = False
    priority: int | None = None

    def filter(self) -> dict[str, Value]:
        wanted: dict[str, Value] = {}
        if self.selector is not None:
            wanted[Symbol(SELECTOR)] = Described(_SELECTOR_CODE, self.selector)
        if self.no_local:
            wanted[Symbol(NO_LOCAL)] = Described(_NO_LOCAL_CODE, [])
        return wanted

    def properties(self) -> dict[str, Value]:
        """Of the link; the core specification has no names for these, brokers have."""
        wanted: dict[str, Value] = {}
        if self.priority is not None:
            wanted[Symbol("priority")] = Int(self.priority)
        if self.exclusive:
            wanted[Symbol("exclusive")] = True
        return wanted


class SourceLink(ClientLink):
    """Attached when made. `share` is its credit when nothing waits; `arrived(link, deliveries)` and `failed(error)` are called
    by the pump, under the lock."""

    link: amqp.Receiver

    def __init__(
        self,
        wire: Wire,
        session: amqp.Session,
        address: str,
        terms: Terms,
        share: int,
        arrived: Callable[[SourceLink, list[Delivery]], None],
        failed: Callable[[errors.PenstockError], None],
    ) -> None:
        super().__init__(wire, address)
        self._share = share
        self._arrived, self._failed = arrived, failed
        self._stopped = False
        self.link = session.receiver(wire.link_name())
        wanted = terms.filter()
        self._attach(
            source=amqp.Source(address=address, distribution_mode="copy" if terms.browse else None, filter=wanted or None),
            target=amqp.Target(),
            snd_settle_mode=SND_SETTLED if terms.browse else SND_UNSETTLED,
            properties=terms.properties() or None,
        )
        heeded = getattr(self.link.source, "filter", None) or {}
        if missing := [name for name in wanted if name not in heeded]:
            self.close()
            raise errors.InvalidRequest(
                f"the broker does not heed {missing[0]} at {address!r}: it would send everything; leave the filter out"
            )

    @property
    def usable(self) -> bool:
        return self.link.state is LinkState.ATTACHED and self._failure is None

    # --- credit

    def renew(self, waiting: int) -> None:
        """Credit for what may still come, once half of the share is used; `waiting` have come and were not taken."""
        room = self._share - waiting
        if self.usable and not self._stopped and room > self.link.link_credit and self.link.link_credit <= self._share // 2:
            self._grant(room)

    def ask(self, *, drain: bool) -> None:
        """One message, if there is one (`drain`), or when there is one."""
        if self.usable:
            self._grant(1, drain)

    def stop(self) -> None:
        """Take the credit back: what the broker has for it comes first. Asks only; see `stopped`."""
        self._stopped = True
        if self.usable and self.link.link_credit:
            self._grant(self.link.link_credit, drain=True)

    def _grant(self, credit: int, drain: bool = False) -> None:
        with suppress(LocalProtocolError):  # the connection has just ended
            self.link.grant(credit, drain=drain)

    def go_on(self) -> None:
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether nothing is under way any more."""
        return not self.usable or self.link.link_credit == 0

    def leave(self) -> None:
        """Detach for good, without waiting for the answer."""
        if self.usable:
            with suppress(LocalProtocolError):
                self.link.detach(closed=True)
            self._failure = errors.PeerError(f"this consumer of {self.address!r} is closed")

    # --- for the connection

    def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Delivered):
            self._arrived(self, event.deliveries)
            return
        before = self._failure
        super().on_event(event)
        if isinstance(event, events.Detached | events.Violated):
            self.connection.ends.pop(self.link, None)
            if before is None and self._failure is not None:
                self._failed(self._failure)
