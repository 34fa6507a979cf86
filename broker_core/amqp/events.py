"""Events that `Connection.receive_data` returns, in the order in which they happened.

Answer an open, begin, attach, close, end or detach with the method of that name of the event's object, unless ours was first. An
answer may wait. The library itself sends only prescribed answers: headers, flows with `echo`, and answers to errors (`Violated`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .deliveries import Delivery, DeliveryBlock
    from .errors import RemoteProtocolError
    from .links import Link
    from .performatives import Attach, Begin, DeliveryState, Error, Flow, Open
    from .sessions import Session


class ConnectionEvent:
    """Base of all events."""

    __slots__ = ()


Event = ConnectionEvent


@dataclass(slots=True)
class Authenticated(ConnectionEvent):
    """Success of SASL. The server receives the user."""

    user: str | None
    mechanism: str


@dataclass(slots=True)
class AuthenticationFailed(ConnectionEvent):
    """Failure of SASL, which ends the connection. `reason` is for the log, never for the peer."""

    code: int
    reason: str


@dataclass(slots=True)
class Opened(ConnectionEvent):
    """The peer's open."""

    open: Open


@dataclass(slots=True)
class Closed(ConnectionEvent):
    """The peer's close."""

    error: Error | None


@dataclass(slots=True)
class Begun(ConnectionEvent):
    """The peer's begin."""

    session: Session
    begin: Begin


@dataclass(slots=True)
class Ended(ConnectionEvent):
    """The peer's end. Unsettled deliveries are in its links' `unsettled`."""

    session: Session
    error: Error | None


@dataclass(slots=True)
class Attached(ConnectionEvent):
    """The peer's attach. `Link.refuse` refuses it."""

    link: Link
    attach: Attach


@dataclass(slots=True)
class Detached(ConnectionEvent):
    """The peer's detach. With `closed` the link must be forgotten."""

    link: Link
    closed: bool
    error: Error | None


@dataclass(slots=True)
class Stolen(ConnectionEvent):
    """Loss of a link's name to a second attach (2.6.1). The link is detached."""

    link: Link


@dataclass(slots=True)
class Flowed(ConnectionEvent):
    """The peer's flow, whose numbers have been applied. A session's flow has no `link`.

    `completed` is the link whose delivery waited for the window and has now left.
    """

    session: Session
    link: Link | None
    flow: Flow
    completed: Link | None = None


@dataclass(slots=True)
class Delivered(ConnectionEvent):
    """Complete deliveries of one link, in order."""

    link: Link
    deliveries: list[Delivery]


@dataclass(slots=True)
class Arrived(ConnectionEvent):
    """Complete messages of a link with `Receiver.in_blocks`."""

    link: Link
    block: DeliveryBlock


@dataclass(slots=True)
class Aborted(ConnectionEvent):
    """A delivery that its sender has aborted (2.6.14)."""

    link: Link
    delivery: Delivery


@dataclass(slots=True)
class Disposed(ConnectionEvent):
    """The peer's disposition, with the unsettled deliveries of its `ranges` that it changes. Settled ones are forgotten.

    Without settling, it changes deliveries without an outcome, if it has one, or outside its transaction's state. For *received*
    it then includes only the last delivery of a range. Neighbouring dispositions with the same state may share an event.
    """

    session: Session
    deliveries: list[Delivery]
    state: DeliveryState | None
    settled: bool
    ranges: Sequence[tuple[int, int]]


@dataclass(slots=True)
class Named(ConnectionEvent):
    """Mention of an open transaction (`Connection.coordinated`), for `count` messages or outcomes; negative for an aborted
    message. It precedes the events of the same frames, even if these are refused or dropped, or concern ended deliveries.
    """

    txn_id: bytes
    count: int


@dataclass(slots=True)
class Violated(ConnectionEvent):
    """A violation by the peer. It ends the link or the session, or else the connection. The library answers it, unless
    `ConnectionSettings.answers_violations` is False.
    """

    error: RemoteProtocolError
    session: Session | None = None
    link: Link | None = None


@dataclass(slots=True)
class TimedOut(ConnectionEvent):
    """Silence for twice our idle time-out. A close waits in `data_to_send`."""


@dataclass(slots=True)
class Lost(ConnectionEvent):
    """End of the transport without a close."""
