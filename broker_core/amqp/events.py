"""Events that `Connection.receive_data` returns: one dataclass per kind, in the order in which they happened.

Answer an open, begin or attach with the method of the same name on the object that the event carries; a close, end or detach
likewise, unless ours was first. No answer has to be sent at once. The library itself answers only what the specification leaves
no choice about: headers, flows with `echo`, and the peer's errors (`Violated`). An application that answers each event before it
takes the next one (`Connection.events_in`) answers the same frames in the same way, however TCP splits them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .deliveries import Block, Delivery
    from .errors import RemoteProtocolError
    from .links import Link
    from .performatives import Attach, Begin, DeliveryState, Error, Flow, Open
    from .sessions import Session


@dataclass(slots=True)
class Authenticated:
    """Success of SASL. The server learns the user, the client that it is admitted."""

    user: str | None
    mechanism: str


@dataclass(slots=True)
class AuthenticationFailed:
    """Failure of SASL; the connection is finished. `reason` is for the log, never for the peer; `code` is the outcome's."""

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
    """The peer's end. Unsettled deliveries are in its links' `unsettled`. Answer with `Session.end` unless that was first."""

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
    """Loss of a link's name to a second attach; we have detached the link with amqp:link:stolen (2.6.1)."""

    link: Link


@dataclass(slots=True)
class Flowed:
    """The peer's flow: `link` is None for one of the session only. All numbers have been applied already.

    `completed`: the link whose delivery had waited for the window, and left in whole with this flow.
    """

    session: Session
    link: Link | None
    flow: Flow
    completed: Link | None = None


@dataclass(slots=True)
class Delivered:
    """Complete deliveries of one link, in their order. How many share an event depends on how the octets came in."""

    link: Link
    deliveries: list[Delivery]


@dataclass(slots=True)
class Arrived:
    """Complete messages of one link that takes them in blocks (`Receiver.in_blocks`)."""

    link: Link
    block: Block


@dataclass(slots=True)
class Aborted:
    """A delivery that its sender has aborted; what had come of it is discarded (2.6.14)."""

    link: Link
    delivery: Delivery


@dataclass(slots=True)
class Disposed:
    """The peer's disposition, with those deliveries of its range that were unsettled here and that it changes; settled ones are
    forgotten now.

    One that does not settle changes what has no outcome yet, if it brings one, or what is not in that state of a transaction.
    Of *received* only the last delivery of a range is there, unless it settles. Neighbouring dispositions that say the same may
    share an event. `ranges` are the delivery ids that they name, first and last.
    """

    session: Session
    deliveries: list[Delivery]
    state: DeliveryState | None
    settled: bool
    ranges: Sequence[tuple[int, int]]


@dataclass(slots=True)
class Named:
    """Mention of a transaction that is open here (`Connection.coordinated`), for `count` messages or outcomes.

    It comes before the events of the same frames, even if these are refused or dropped, or concern deliveries that are gone and
    cause no event. `count` is negative for a message that was aborted.
    """

    txn_id: bytes
    count: int


@dataclass(slots=True)
class Violated:
    """A violation of the protocol by the peer, which ends the link, the session, or the connection if both are None.

    The answer is a detach, end or close with `error.condition`. The library sends it, after our own attach, begin or open. With
    `Settings.answers_violations` set to False the application has to call `Connection.answer`.
    """

    error: RemoteProtocolError
    session: Session | None = None
    link: Link | None = None


@dataclass(slots=True)
class TimedOut:
    """Silence for twice our idle time-out; a close waits in `data_to_send`."""


@dataclass(slots=True)
class Lost:
    """End of the transport without a close."""


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
    | Arrived
    | Aborted
    | Disposed
    | Named
    | Violated
    | TimedOut
    | Lost
)
