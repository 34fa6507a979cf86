"""What `Connection.receive_data` returns: one dataclass per thing that happened, in the order in which it happened.

A frame that opens, begins or attaches is to be answered by the method of the same name on what the event carries; one that
closes, ends or detaches likewise, unless we were first. Nothing here needs to be sent back at once, and nothing is answered for
you except what the text leaves no choice about: headers, flows with `echo`, and the peer's errors (`Violated`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .deliveries import Delivery
    from .errors import RemoteProtocolError
    from .links import Link
    from .performatives import Attach, Begin, DeliveryState, Error, Flow, Open
    from .sessions import Session


@dataclass(slots=True)
class Authenticated:
    """SASL has succeeded: the server learns the user, the client that it is let in."""

    user: str | None
    mechanism: str


@dataclass(slots=True)
class AuthenticationFailed:
    """SASL has failed and the connection is finished. `reason` is for the log, never for the peer; `code` is the outcome's."""

    code: int
    reason: str


@dataclass(slots=True)
class Opened:
    """The peer's open. Answer with `Connection.open` unless that was first."""

    open: Open


@dataclass(slots=True)
class Closed:
    """The peer's close: it will send nothing more. Answer with `Connection.close` unless that was first."""

    error: Error | None


@dataclass(slots=True)
class Begun:
    """The peer's begin. Answer with `Session.begin` unless it answers ours."""

    session: Session
    begin: Begin


@dataclass(slots=True)
class Ended:
    """The peer's end. What its links held unsettled is in their `unsettled`. Answer with `Session.end` unless that was first."""

    session: Session
    error: Error | None


@dataclass(slots=True)
class Attached:
    """The peer's attach. Answer with `Link.attach`, or `Link.refuse`, unless it answers ours."""

    link: Link
    attach: Attach


@dataclass(slots=True)
class Detached:
    """The peer's detach. Answer with `Link.detach` unless that was first. `closed`: the link is to be forgotten."""

    link: Link
    closed: bool
    error: Error | None


@dataclass(slots=True)
class Stolen:
    """A second attach has taken the name of this link; we have detached it with amqp:link:stolen (2.6.1)."""

    link: Link


@dataclass(slots=True)
class Flowed:
    """The peer's flow: `link` is None for one of the session only. All numbers have been applied already."""

    session: Session
    link: Link | None
    flow: Flow


@dataclass(slots=True)
class Delivered:
    """Complete deliveries of one link, in their order. How many share an event depends on how the octets came in."""

    link: Link
    deliveries: list[Delivery]


@dataclass(slots=True)
class Aborted:
    """The sender has given up in the middle of a delivery; what had come of it is discarded (2.6.14)."""

    link: Link
    delivery: Delivery


@dataclass(slots=True)
class Disposed:
    """The peer's disposition, with those deliveries of its range that were unsettled here; settled ones are forgotten now.

    Neighbouring dispositions that say the same may share an event. `ranges` are the delivery ids that they name, first and last.
    """

    session: Session
    deliveries: list[Delivery]
    state: DeliveryState | None
    settled: bool
    ranges: Sequence[tuple[int, int]]


@dataclass(slots=True)
class Named:
    """The peer has named a transaction that is open here (`Connection.coordinated`), for so many messages or outcomes.

    It comes before the events of the same frames, also where these are refused, dropped, or concern deliveries that are gone, and
    there are none. `count` is less than 0 for a message that was aborted.
    """

    txn_id: bytes
    count: int


@dataclass(slots=True)
class Violated:
    """The peer broke the protocol. The answer (close, end or detach with `error.condition`) is in what is to be sent."""

    error: RemoteProtocolError
    session: Session | None = None
    link: Link | None = None


@dataclass(slots=True)
class TimedOut:
    """Nothing came for twice our idle time-out; a close is in what is to be sent."""


@dataclass(slots=True)
class Lost:
    """The transport ended without a close."""


Event: TypeAlias = (
    Authenticated
    | AuthenticationFailed
    | Opened
    | Closed
    | Begun
    | Ended
    | Attached
    | Detached
    | Stolen
    | Flowed
    | Delivered
    | Aborted
    | Disposed
    | Named
    | Violated
    | TimedOut
    | Lost
)
