"""What the two kinds of links have in common: whose they are, and whether anything can still be said on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.amqp.states import LinkState

if TYPE_CHECKING:
    from broker_core.amqp import Link, Session
    from broker_core.amqp.performatives import Error
    from broker_core.amqp_plane.peer import Peer
    from broker_core.amqp_plane.termini import Terminus


class LinkEnd:
    """Our end of one link. `ended`: nothing more is taken from it or for it; what it held is given back. `queue`: what its
    messages go to or come from, "" where that is not one queue, or not made yet."""

    peer: Peer
    link: Link
    terminus: Terminus
    queue = ""
    opened = False  # its attach is carried out: what it names is there
    ended = False
    closed = False  # its peer has detached it for good
    detach_error: Error | None = None  # what our answer to that says

    @property
    def session(self) -> Session:
        return self.link.session

    @property
    def may_tell(self) -> bool:
        """Also when the peer has ended the link, its session or the connection, until we have answered that."""
        return self.link.state in (LinkState.ATTACHED, LinkState.DETACH_RCVD) and self.link.session.may_send

    @property
    def _alive(self) -> bool:
        return not self.ended and self.link.state is LinkState.ATTACHED and self.link.session.may_send
