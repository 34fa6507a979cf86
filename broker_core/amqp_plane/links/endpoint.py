"""Our end of a link and its terminus: the bases of all links and of all termini, and the lifetime of a terminus."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...amqp import Link, Session, Source, Target
from ...amqp.deliveries import Delivery
from ...amqp.performatives import Attach, DeliveryState, Error
from ...amqp.states import LinkState
from ...engine import commands as c
from ...engine.columns.states import Cause
from ...service.turn import Turn
from ..loop.transport import Transport

if TYPE_CHECKING:
    from ..connections.peer import Peer

#: Events of a link that is not ended permanently.
DETACHED, SESSION_ENDED, CONNECTION_ENDED = range(3)
_BEGINS_AT = {"link-detach": DETACHED, "session-end": SESSION_ENDED, "connection-close": CONNECTION_ENDED}
NEVER = "never"

Key = tuple[str, str, bool, str]  # user, container, direction, name of a link
Unsettled = Mapping[bytes, DeliveryState | None]


class Expiry(NamedTuple):
    """Expiry of a terminus (3.5.6): `timeout` seconds after the moment that its policy names."""

    policy: str = "session-end"
    timeout: int = 0

    @classmethod
    def granted(cls, asked: Source | Target, longest: int) -> Expiry:
        """Grant the expiry that a terminus asks for, within limits. `longest`: seconds."""
        if asked.expiry_policy == NEVER:
            return cls("connection-close", longest)
        return cls(asked.expiry_policy, min(asked.timeout, longest))

    def of_owned_node(self) -> Expiry:
        """Return the expiry of a node that belongs to its connection, and ends with it."""
        return self._replace(timeout=0) if self.policy == "connection-close" else self

    def begins(self, moment: int) -> bool:
        """Return True if the timeout begins at this moment: DETACHED, SESSION_ENDED or CONNECTION_ENDED."""
        return moment >= _BEGINS_AT[self.policy]

    def ends(self, moment: int) -> bool:
        """Return True if the terminus ends at this moment: its timeout begins, and is 0."""
        return self.begins(moment) and not self.timeout


class Terminus:
    """Terminus of a link.

    `queue`: the queue of its messages; "" for an exchange or the anonymous terminus. `named`: the queue or other node on which
    the user needs a right; None if each message names a node.
    """

    receives = makes = False
    owned = True  # only its connection receives from a node that is made for it
    lasts = False  # a node was made for it, to which its link may come back
    expiry = Expiry()

    def __init__(self, peer: Peer, queue: str, named: str | None) -> None:
        self.peer = peer
        self.queue = queue
        self.named = named
        self._links: list[tuple[str, int]] = []

    def granted(self, asked: object) -> Expiry:
        """Grant the expiry that an attach asks for, within limits."""
        if not isinstance(asked, (Source, Target)):
            return Expiry()
        granted = Expiry.granted(asked, self.peer.context.settings.amqp_max_expiry_timeout_s)
        return granted.of_owned_node() if self.lasts and self.owned else granted

    def is_same(self, asked: Terminus) -> bool:
        """Return True if another attach, which is not open, asks for this terminus."""
        return type(self) is type(asked) and self.queue == asked.queue and self.named == asked.named

    def open(self, turn: Turn) -> None:
        """Make the nodes that it needs. Raises Refusal, PenstockError."""
        if self.queue:
            self._enter(turn, self.queue, makes=self.makes)

    def _enter(self, turn: Turn, node: str, *, makes: bool = False) -> None:
        """Count the link for the lifetime of a node. Raises PenstockError if the node belongs to another connection."""
        if turn.view.lifetime(node) != "permanent":
            owner = self.peer.identifier if self.owned or not makes else None
            link, _ = turn.execute(c.OpenLink(node, makes, self.receives, owner))
            self._links.append((node, link))

    def close(self, turn: Turn, *, closed: bool) -> Error | None:
        """Close the terminus of an ended link; `closed`: its detach is a closing one. Returns an error for our detach."""
        for node, link in self._links:
            turn.execute(c.CloseLink(node, link))
        return None


class LinkEnd:
    """Our end of one link.

    `ended`: it takes no more messages, and its messages were given back. `queue`: the queue of its messages; "" if there is no
    single queue, or not yet.
    """

    link: Link
    terminus: Terminus
    queue = ""
    opened = False  # its attach is carried out, so its nodes exist
    ended = False
    end_cause = Cause.LINK_LOST  # another cause if the broker ends it for its own reasons: see `ConsumerLink.end`
    closed = False  # its peer has sent a closing detach
    detached = False  # it lives on detached, or did
    attached_again = False  # on the same session: without unsettled maps
    stolen = False  # by another link of its name: its session does not have its deliveries any more
    incomplete = False  # an unsettled map of either attach is incomplete: nothing new is sent
    former: Resumable | None = None  # the detached link of its name, until its attach is carried out
    detach_error: Error | None = None  # the error of our detach
    _held: tuple[Any, float] | None = None  # the oldest unsettled delivery, and when it was first seen
    _still: tuple[Any, int, float] | None = None  # the newest one, their number, and when both were first seen

    def note_held(self, now: float) -> None:
        """Note when the oldest unsettled delivery was first seen, and when a delivery last came or went. `now`: the plane's
        clock, seconds.
        """
        unsettled = self.link.unsettled
        oldest = next(iter(unsettled.values()), None)  # not its tag: a message that comes again has the same
        if self._held is None or self._held[0] is not oldest:
            self._held = None if oldest is None else (oldest, now)
        newest, count = next(reversed(unsettled.values()), None), len(unsettled)
        if self._still is None or self._still[0] is not newest or self._still[1] != count:
            self._still = None if newest is None else (newest, count, now)

    def held_for(self, now: float) -> float:
        """Return the seconds for which its oldest unsettled delivery is known to be unsettled; 0 without one."""
        return 0.0 if self._held is None else now - self._held[1]

    def still_for(self, now: float) -> float:
        """Return the seconds without a sent or settled delivery, while deliveries are unsettled; 0 without one."""
        return 0.0 if self._still is None else now - self._still[2]

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.loop = peer.loop
        self.context = peer.context

    @property
    def session(self) -> Session:
        """The session of the link, or its last one if it is detached."""
        return self.link.session

    @property
    def transport(self) -> Transport:
        """The transport of its connection."""
        return self.peer.transport

    @property
    def may_tell(self) -> bool:
        """Return True if outcomes can be sent.

        They can until we have answered the end of the link, its session or the connection, and for a detached link while its
        session lives.
        """
        is_attached = self.link.state in (LinkState.ATTACHED, LinkState.VIOLATED, LinkState.DETACH_RCVD) or self.detached
        return is_attached and self.link.session.may_send

    @property
    def key(self) -> Key:
        """The link's name among all containers. The user is a part, so that other users cannot steal links by its container
        id.
        """
        return self.peer.user, self.peer.container, self.link.role, self.link.name

    @property
    def _alive(self) -> bool:
        return not self.ended and self.link.state is LinkState.ATTACHED and self.link.session.may_send

    @abstractmethod
    def disposed(self, deliveries: list[Delivery], state: DeliveryState | None, settled: bool) -> None:
        """Carry out the peer's delivery state for some deliveries of this link."""

    @abstractmethod
    def asked(self) -> None:
        """Note the requests of the peer's flow for this link, which it names. `flowed` comes after that."""

    @abstractmethod
    def flowed(self) -> None:
        """Continue with changed credit, or another window of the session."""

    @abstractmethod
    def known_unsettled(self, theirs: Attach) -> dict[bytes, DeliveryState | None]:
        """Return the deliveries of a resumed link, for our unsettled map."""

    @abstractmethod
    def name_only(self, named: Unsettled, known: Unsettled) -> None:
        """Leave out of our unsettled map the deliveries that it has no room for."""

    @abstractmethod
    def end(self, turn: Turn) -> None:
        """End the link: its messages go back, and its capacity is for others."""

    def finish(self, turn: Turn) -> None:
        """End the link, and close its terminus, in the commit of its end."""
        self.loop.behind_all(turn, self.forget_deliveries)
        if not self.ended:
            self.end(turn)
            self.detach_error = self.terminus.close(turn, closed=self.closed)

    def forget_deliveries(self) -> None:
        """Forget the link's deliveries, although its peer may never answer the detach. Others may have that capacity."""
        self.link.forget_all()
        self.peer.capacity.gained(self.link.session)


class Resumable(LinkEnd):
    """A link that may live on when it is detached: see `registry`."""

    successor: Resumable | None = None  # the link that has its deliveries now, on the same session

    @property
    def keeps(self) -> bool:
        """Return True if it may outlive its link now."""
        return True

    @property
    @abstractmethod
    def unsettled(self) -> int:
        """Count the deliveries that are kept for a peer that may come back."""

    @property
    def idle(self) -> bool:
        """Return True if there is nothing to resume."""
        return not (self.unsettled or self.terminus.lasts)

    def is_there(self, turn: Turn) -> bool:
        """Return True if its queue still has it as a consumer."""
        return True

    @abstractmethod
    def suspend(self, turn: Turn) -> None:
        """Live on without a link."""

    def session_ended(self) -> None:
        """Note that its session has ended, so its deliveries no longer have ids."""

    @abstractmethod
    def go_on(self, turn: Turn, former: Any) -> None:
        """Continue with the deliveries of the former link of this type, on the same session."""

    @abstractmethod
    def resume(self, turn: Turn, former: Any, theirs: Attach) -> None:
        """Resume the deliveries of the former link of this type by both unsettled maps."""
