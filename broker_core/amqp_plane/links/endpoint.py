"""Our end of a link: its peer, and whether frames can still be sent on it. Base of both kinds of links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...amqp.states import LinkState
from ...engine.columns.states import Cause

if TYPE_CHECKING:
    from ...amqp import Link, Session
    from ...amqp.performatives import Error
    from ..connections.containers import Key
    from ..ports import Host, LinkPeer, Loop
    from .termini import Terminus


class LinkEnd:
    """Our end of one link.

    `ended`: it takes no more messages, and those that it held were given back. `queue`: its messages go there or come from
    there; "" if that is not one queue, or not made yet.
    """

    link: Link
    terminus: Terminus
    queue = ""
    opened = False  # its attach is carried out: what it names is there
    ended = False
    end_cause = Cause.LINK_LOST  # another one where the broker ends it for a reason of its own: see `Consuming.end`
    closed = False  # its peer has detached it for good
    detached = False  # it has lived on, for a while at least
    attached_again = False  # on the same session: without unsettled maps
    stolen = False  # by another of its name: its session does not know its deliveries any more
    successor: LinkEnd | None = None  # who goes on with its deliveries, on the same session
    incomplete = False  # one of the unsettled maps of both attaches names not all: nothing new is sent
    kept: Any = None  # the detached link whose name it has, until its attach is carried out
    detach_error: Error | None = None  # what our answer to that says
    _held: tuple[Any, float] | None = None  # the oldest unsettled delivery, and since when it is known to be that
    _still: tuple[Any, int, float] | None = None  # the newest one, how many there are, and since when both are so

    @property
    def keeps(self) -> bool:
        """Return True if it may outlive its link: see `detached`."""
        return True

    def note_held(self, now: float) -> None:
        """Note when the oldest unsettled delivery was first seen to be that, and when one was last seen to come or go. `now`: the
        plane's clock, seconds."""
        unsettled = self.link.unsettled
        oldest = next(iter(unsettled.values()), None)  # not its tag: what comes again has the same
        if self._held is None or self._held[0] is not oldest:
            self._held = None if oldest is None else (oldest, now)
        newest, count = next(reversed(unsettled.values()), None), len(unsettled)
        if self._still is None or self._still[0] is not newest or self._still[1] != count:
            self._still = None if newest is None else (newest, count, now)

    def held_for(self, now: float) -> float:
        """Return for how many seconds its oldest unsettled delivery is known to be unsettled; 0 without one."""
        return 0.0 if self._held is None else now - self._held[1]

    def still_for(self, now: float) -> float:
        """Return for how many seconds nothing was sent or settled while deliveries are unsettled; 0 without one."""
        return 0.0 if self._still is None else now - self._still[2]

    def __init__(self, peer: LinkPeer) -> None:
        self.peer = peer
        self.loop: Loop = peer.loop
        self.host: Host = peer.host

    @property
    def session(self) -> Session:
        """Return the session that the link is on, or was on before it was detached."""
        return self.link.session

    @property
    def may_tell(self) -> bool:
        """Return True if outcomes can be sent.

        That is so until we have answered the peer's end of the link, its session or the connection; and for deliveries of a
        detached link, while its session lives.
        """
        there = self.link.state in (LinkState.ATTACHED, LinkState.VIOLATED, LinkState.DETACH_RCVD) or self.detached
        return there and self.link.session.may_send

    @property
    def key(self) -> Key:
        """The link's name among all containers. The user is in it, so that nobody steals links by another's container id."""
        return self.peer.user, self.peer.container, self.link.role, self.link.name

    @property
    def _alive(self) -> bool:
        return not self.ended and self.link.state is LinkState.ATTACHED and self.link.session.may_send
