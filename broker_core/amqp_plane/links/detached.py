"""Links that are detached and live on: what is kept of them, by whom, and for how long (2.6.3 to 2.6.5, 2.6.13, 3.5.3, 3.5.4).

A link ends by a closing detach, or by an error. Otherwise its terminus outlives it as its expiry policy says: time begins to run
at the detach (*link-detach*), at the end of its last session (*session-end*, the default) or of its last connection
(*connection-close*), and runs for `timeout` seconds, 0 by default. *never* is granted to durable subscriptions alone, whose queue
is kept by the engine: for others nobody would promise to come back, so they get *connection-close* and the longest timeout. A
node that belongs to its connection ends with it. What holds is in our attach. A link that is stolen goes on in the one that has
its name now.

| state | who keeps it |
|---|---|
| acquired messages that the receiver has not settled | the engine, for the link's holder, which acquires no more |
| their deliveries | the library's link, while its session lives; by their ids they can be settled, in transactions too |
| deliveries received that are not settled at both ends, and their outcomes | the library's link: our unsettled map |
| nodes made for the link, a subscription of its own | the engine, as long as the terminus does not close them |
| who may come back | here: by user, container, direction and name |

What was acquired and has not left goes back at the detach. A link of which nothing is unsettled and for which nothing was made is
not kept: there is nothing to come back to. Who attaches the same name again, with the same terminus, has it back: on the same
session without an unsettled map its deliveries go on (2.6.4); else both maps are compared, and each delivery is resumed, or goes
back to its queue and comes as a new one (see `resuming`). With another terminus what was kept ends first.

Nothing of this is journaled: a restart ends all links, and gives back what they held. One user's detached links are at most
`amqp_max_detached_links_per_user`, with `amqp_max_detached_deliveries_per_user` deliveries whose session is gone (those of
a session that lives count there); one that would be more ends. Nobody keeps anything longer than `amqp_max_expiry_timeout_s`.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from . import attaching
from .consuming import Consuming
from .expiry import CONNECTION_ENDED, DETACHED, SESSION_ENDED
from .incoming import Incoming

if TYPE_CHECKING:
    import asyncio

    from ...amqp import Session
    from ...service.turn import Turn
    from ..connections.containers import Key
    from ..loop.limits import Limits
    from ..ports import Endpoint, Kept, LinkPeer


class Detached:
    """The detached links of a plane. Used in the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits) -> None:
        self._loop = loop
        self._limits = limits
        self._links: dict[Key, Kept] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._of_user: Counter[str] = Counter()
        self._deliveries: Counter[str] = Counter()
        self._counted: dict[Key, int] = {}  # deliveries of a link whose session is gone

    def __len__(self) -> int:
        return len(self._links)

    # --- going

    def leave(self, endpoint: Endpoint, moment: int) -> None:
        """Keep or end an attached link that has lost its handle, its session or its connection, and that no error has ended.
        `moment`: one of `expiry`'s."""
        peer, loop = endpoint.peer, endpoint.loop
        peer.forget(endpoint)
        if not isinstance(endpoint, (Incoming, Consuming)) or not endpoint.keeps or endpoint.terminus.expiry.ends(moment):
            loop.in_pass(partial(attaching.end, endpoint=endpoint))
            return
        if self._of_user[peer.user] >= self._limits.detached_links_per_user:
            peer.log(f"{endpoint} ends: {self._limits.detached_links_per_user} detached links a user are kept")
            loop.in_pass(partial(attaching.end, endpoint=endpoint))
            return
        key = endpoint.key
        endpoint.detached = True
        self._links[key] = endpoint
        self._of_user[peer.user] += 1
        peer.detached[endpoint.link] = endpoint
        loop.in_pass(partial(self._suspend, endpoint=endpoint))
        self._pass(endpoint, moment)

    def session_ended(self, peer: LinkPeer, session: Session) -> None:
        """Begin the time of a session's detached links, or end them, as their expiry policies say."""
        for endpoint in [each for each in peer.detached.values() if each.link.session is session]:
            self._pass(endpoint, SESSION_ENDED)

    def connection_ended(self, peer: LinkPeer) -> None:
        """Begin the time of a connection's detached links, or end them, as their expiry policies say."""
        for endpoint in list(peer.detached.values()):
            self._pass(endpoint, CONNECTION_ENDED)

    def _pass(self, endpoint: Kept, moment: int) -> None:
        """Begin the time of a link that is here, if its policy does so at this moment."""
        key = endpoint.key
        if self._links.get(key) is not endpoint:
            return
        if moment > DETACHED:
            endpoint.session_ended()
        if endpoint.terminus.expiry.ends(moment) or (moment > DETACHED and not self._count(endpoint)):
            self.expire(endpoint)
        elif endpoint.terminus.expiry.begins(moment) and key not in self._timers:
            self._timers[key] = self._loop.call_later(endpoint.terminus.expiry.timeout, self._expired, endpoint)

    def _count(self, endpoint: Kept) -> bool:
        """Count a link's deliveries: no session does any more. Returns False where they are too many."""
        key, user = endpoint.key, endpoint.peer.user
        if key in self._counted:
            return True
        count = endpoint.unsettled
        if self._deliveries[user] + count > self._limits.detached_deliveries_per_user:
            endpoint.peer.log(
                f"{endpoint} ends: {self._limits.detached_deliveries_per_user} deliveries of detached links are kept"
            )
            return False
        self._counted[key] = count
        self._deliveries[user] += count
        return True

    def _suspend(self, turn: Turn, endpoint: Kept) -> None:
        if not endpoint.ended:
            endpoint.suspend(turn)
        if endpoint.ended or endpoint.idle:
            self.end(turn, endpoint)

    # --- the end

    def look(self, endpoint: Kept) -> None:
        """Look at a detached link of which something was settled: perhaps that was all there was to be kept."""
        if self._links.get(endpoint.key) is endpoint and endpoint.idle:
            endpoint.loop.in_pass(partial(self._end_idle, endpoint=endpoint))

    def _end_idle(self, turn: Turn, endpoint: Kept) -> None:
        if self._links.get(endpoint.key) is endpoint and endpoint.idle:
            self.end(turn, endpoint)

    def _expired(self, endpoint: Kept) -> None:
        if self._links.get(endpoint.key) is endpoint:
            endpoint.peer.log(f"{endpoint} was detached for {endpoint.terminus.expiry.timeout} s: it ends")
            self.expire(endpoint)

    def end(self, turn: Turn, endpoint: Kept) -> None:
        """End a detached link: what it held goes back, and its terminus is closed."""
        self._remove(endpoint)
        endpoint.peer.detached.pop(endpoint.link, None)
        if endpoint.successor is None:
            attaching.end(turn, endpoint)
            endpoint.link.session.forget(endpoint.link)

    def expire(self, endpoint: Kept) -> None:
        """End it in the next pass: its time is over."""
        endpoint.loop.in_pass(partial(self.end, endpoint=endpoint))

    def links(self) -> list[Kept]:
        """List the detached links."""
        return list(self._links.values())

    # --- coming back

    def take(self, newer: Endpoint) -> Kept | None:
        """Take out the link whose name a newer one has, if it is here. It is the newer one's to resume, or to end; until
        then what its peer says of its deliveries still finds it."""
        found = self._links.get(newer.key)
        if found is not None:
            self._remove(found)
        return found

    def _remove(self, endpoint: Kept) -> None:
        key, user = endpoint.key, endpoint.peer.user
        if self._links.get(key) is not endpoint:
            return
        del self._links[key]
        self._of_user[user] -= 1
        if not self._of_user[user]:
            del self._of_user[user]
        self._deliveries[user] -= self._counted.pop(key, 0)
        if not self._deliveries[user]:
            del self._deliveries[user]
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
