"""Our end of a link and its terminus: the bases of all of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...amqp import Link, Session, Source, Target
from ...amqp.deliveries import Delivery
from ...amqp.performatives import Attach, DeliveryState, Error
from ...amqp.states import LinkState
from ...engine import commands as c
from ...engine.columns.states import Cause
from ...security.rights import Right
from ...service.turn import Turn
from .. import queue_reads
from .activity import Activity

if TYPE_CHECKING:
    from ..connections.peer import Peer

#: Events after which a link may live on.
DETACHED, SESSION_ENDED, CONNECTION_ENDED = range(3)
_BEGINS_AT = {"link-detach": DETACHED, "session-end": SESSION_ENDED, "connection-close": CONNECTION_ENDED}
NEVER = "never"

Key = tuple[str, str, bool, str]  # user, container (see `Peer.scope_of`), direction, name of a link
Unsettled = Mapping[bytes, DeliveryState | None]


class Expiry(NamedTuple):
    """Expiry of a terminus (3.5.6): `timeout` seconds after the moment that its policy names."""

    policy: str = "session-end"
    timeout: int = 0

    @classmethod
    def granted(cls, asked: Source | Target, longest: int) -> Expiry:
        """Grant an expiry. `longest`: seconds."""
        if asked.expiry_policy == NEVER:
            return cls("connection-close", longest)
        return cls(asked.expiry_policy, min(asked.timeout, longest))

    def begins(self, moment: int) -> bool:
        """`moment`: DETACHED, SESSION_ENDED or CONNECTION_ENDED."""
        return moment >= _BEGINS_AT[self.policy]

    def ends(self, moment: int) -> bool:
        return self.begins(moment) and not self.timeout


class Terminus:
    """`queue`: of its messages; "" for an exchange or the anonymous terminus. `named`: the node on which the user needs a right;
    None if each message names one.
    """

    receives = makes = False
    owned = True  # only its connection receives from a node that is made for it
    lasts = False  # a node was made for it, to which its link may come back
    lifetime: str | None = None  # of a dynamic node
    expiry = Expiry()

    def __init__(self, peer: Peer, queue: str, named: str | None) -> None:
        self.peer = peer
        self.queue = queue
        self.named = named
        self._links: list[tuple[str, int]] = []

    def granted(self, asked: object) -> Expiry:
        """Grant an expiry within limits. A node that belongs to its connection ends with it."""
        if not isinstance(asked, (Source, Target)):
            return Expiry()
        granted = Expiry.granted(asked, self.peer.context.settings.amqp_max_expiry_timeout_s)
        if self.lasts and self.owned and granted.policy == "connection-close":
            return granted._replace(timeout=0)
        return granted

    def is_same(self, asked: Terminus) -> bool:
        """Return True if another attach, which is not open, asks for this terminus."""
        return type(self) is type(asked) and self.queue == asked.queue and self.named == asked.named

    def open(self, turn: Turn) -> None:
        """Make the nodes of the terminus. Raises Refusal, PenstockError."""
        if self.queue:
            self._enter(turn, self.queue, makes=self.makes)

    def _enter(self, turn: Turn, node: str, *, makes: bool = False) -> None:
        """Count the link for the lifetime of a node. Raises PenstockError if another connection owns it."""
        if queue_reads.lifetime(turn, node) != "permanent":
            owner = self.peer.identifier if self.owned or not makes else None
            link, _ = turn.execute(c.OpenLink(node, makes, self.receives, owner))
            self._links.append((node, link))

    def close(self, turn: Turn, *, closed: bool) -> Error | None:
        """Close after the link's end. `closed`: by a closing detach. Returns an error for our detach."""
        for node, link in self._links:
            turn.execute(c.CloseLink(node, link))
        return None


class LinkEnd:
    """Our end of one link."""

    link: Link
    terminus: Terminus
    queue: str  # of its messages; "" if there is no single queue, or not yet
    snd_settle_mode: int | None = None  # of our attach; None: as the peer asks
    right = Right.SEND  # the right that permits the link
    opened = False  # its attach is carried out, so its nodes exist
    ended = False  # it takes no more messages, and its messages were given back
    end_cause = Cause.LINK_LOST  # another cause if the broker ends it for its own reasons
    closed = False  # its peer has sent a closing detach
    detached = False  # it lives on detached, or did
    attached_again = False  # on the same session: without unsettled maps
    stolen = False  # by another link of its name: its session no longer has its deliveries
    incomplete = False  # an unsettled map of either attach is incomplete: nothing new is sent
    former: Resumable | None = None  # the detached link of its name, until its attach is carried out
    detach_error: Error | None = None
    sent = 0  # deliveries that have left

    def __init__(self, peer: Peer, link: Link, terminus: Terminus) -> None:
        self.peer, self.loop, self.context, self.transport = peer, peer.loop, peer.context, peer.transport
        self.link = link
        self.session: Session = link.session  # the last one, if the link is detached
        self.terminus = terminus
        self.queue = terminus.queue
        self.activity = Activity()

    @property
    def may_tell(self) -> bool:
        """True until we have answered the end of the link, or, if it is detached, of its session."""
        is_attached = self.link.state in (LinkState.ATTACHED, LinkState.VIOLATED, LinkState.DETACH_RCVD) or self.detached
        return is_attached and self.session.may_send

    @property
    def key(self) -> Key:
        """The key contains the user, so that other users cannot steal the link by its container id."""
        return self.peer.user, self.peer.scope_of(self.session), self.link.role, self.link.name

    @property
    def _alive(self) -> bool:
        return not self.ended and self.link.state is LinkState.ATTACHED and self.session.may_send

    def open(self, turn: Turn, answer: Callable[[Turn], None]) -> None:
        """Let the attach be answered. A dialect's link may wait before it calls `answer`."""
        answer(turn)

    @abstractmethod
    def disposed(self, deliveries: list[Delivery], state: DeliveryState | None, settled: bool) -> None:
        """Carry out the peer's delivery state for deliveries of this link."""

    def asked(self) -> None:
        """Note the requests of a flow that names this link. `flowed` comes after that."""

    def flowed(self) -> None:
        """Continue with changed credit, or another window of the session."""

    def known_unsettled(self, theirs: Attach) -> dict[bytes, DeliveryState | None]:
        """Return the deliveries of a resumed link, for our unsettled map."""
        return {}

    def name_only(self, named: Unsettled, known: Unsettled) -> None:
        """Leave out of our unsettled map the deliveries that it has no room for."""

    def _await_window(self) -> None:
        """Wait for the session's window. A flow for another link may open it."""
        self.peer.squeezed.setdefault(self.session, {})[self] = None

    def _leave_window(self) -> None:
        waiting = self.peer.squeezed.get(self.session, {})
        waiting.pop(self, None)
        if not waiting:
            self.peer.squeezed.pop(self.session, None)

    @abstractmethod
    def end(self, turn: Turn) -> None:
        """End the link: its messages go back."""

    def finish(self, turn: Turn) -> None:
        self.loop.behind_all(turn, self.forget_deliveries)
        if not self.ended:
            self.end(turn)
            self.detach_error = self.terminus.close(turn, closed=self.closed)

    def forget_deliveries(self) -> None:
        """Forget deliveries: the peer may never answer the detach."""
        self.link.forget_all()
        self.peer.capacity.gained(self.session)


class Resumable(LinkEnd):
    """A link that may live on when it is detached."""

    successor: Resumable | None = None  # the link that has its deliveries now, on the same session

    @property
    def keeps(self) -> bool:
        return True

    @property
    @abstractmethod
    def unsettled(self) -> int:
        """The deliveries that are kept for a peer that may come back."""

    @property
    def idle(self) -> bool:
        return not (self.unsettled or self.terminus.lasts)

    def is_there(self, turn: Turn) -> bool:
        return True

    @abstractmethod
    def suspend(self, turn: Turn) -> None:
        """Live on without a link."""

    def session_ended(self) -> None:
        """Note that its deliveries no longer have ids."""

    @abstractmethod
    def go_on(self, turn: Turn, former: Any) -> None:
        """Continue with the deliveries of a former link on the same session."""

    @abstractmethod
    def resume(self, turn: Turn, former: Any, theirs: Attach) -> None:
        """Resume the deliveries of a former link by both unsettled maps."""
