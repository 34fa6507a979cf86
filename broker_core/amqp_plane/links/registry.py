"""All links of a plane by name, and detached links that live on (2.6.1 to 2.6.5, 2.6.13, 3.5).

A link's name is unique for its user, container and direction. The second attach of a name *steals* it from the first, on any
connection, and continues with its deliveries.

Unless a link ends by a closing detach or an error, its terminus outlives it by its expiry policy. The time begins at the detach
(*link-detach*), at the end of its session (*session-end*, the default) or of its connection (*connection-close*), and runs for
`timeout` seconds, 0 by default. Only durable subscriptions get *never*: the engine keeps their queue. Other links get
*connection-close* with the longest timeout, since they may never come back.

| state | place |
|---|---|
| acquired messages that the receiver has not settled | in the engine, by the link's holder, which acquires no more |
| their deliveries | in the library's link, while its session lives; their ids can still be settled |
| received deliveries that are not settled at both ends | in the library's link: our unsettled map |
| nodes made for the link, a subscription of its own | in the engine, until the terminus closes them |

A link without unsettled deliveries or nodes of its own is not kept. A restart ends all links, and returns their messages.
Deliveries of a living session count in that session, others for their user. A detached link refers to its session and
connection, so these are emptied at their end (`forget_all`).
"""

from __future__ import annotations

import asyncio
from collections import Counter

from ...engine.columns.states import Cause
from ...service.turn import Turn
from ...settings.keys import Settings
from .endpoint import DETACHED, Key, LinkEnd, Resumable


class LinkRegistry:
    """Attached and detached links. For the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, settings: Settings) -> None:
        self._loop = loop
        self._settings = settings
        self._attached: dict[Key, LinkEnd] = {}
        self._links: dict[Key, Resumable] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._of_user: Counter[str] = Counter()
        self._deliveries: Counter[str] = Counter()
        self._counted: dict[Key, int] = {}  # deliveries of a link whose session has ended

    def __len__(self) -> int:
        return len(self._links)

    # --- names (2.6.1)

    def claim(self, endpoint: LinkEnd) -> LinkEnd | None:
        """Give a link its name. Returns the link that had it, which the caller detaches."""
        key = endpoint.key
        older = self._attached.get(key)
        self._attached[key] = endpoint
        return older

    def release(self, endpoint: LinkEnd) -> None:
        key = endpoint.key
        if self._attached.get(key) is endpoint:
            del self._attached[key]

    # --- going

    def leave(self, endpoint: LinkEnd, moment: int) -> None:
        """Keep or end a link that has lost its handle, its session or its connection without an error.

        `moment`: DETACHED, SESSION_ENDED or CONNECTION_ENDED.
        """
        peer, loop = endpoint.peer, endpoint.loop
        peer.forget(endpoint)
        if not isinstance(endpoint, Resumable) or not endpoint.keeps or endpoint.terminus.expiry.ends(moment):
            loop.in_commit(endpoint.finish)
            return
        if self._of_user[peer.user] >= self._settings.amqp_max_detached_links_per_user:
            peer.log(f"{endpoint} ends: {self._settings.amqp_max_detached_links_per_user} detached links a user are kept")
            loop.in_commit(endpoint.finish)
            return
        key = endpoint.key
        endpoint.detached = True
        self._links[key] = endpoint
        self._of_user[peer.user] += 1
        peer.detached[endpoint.link] = endpoint
        loop.in_commit(lambda turn: self._suspend(turn, endpoint))
        self.start_expiry(endpoint, moment)

    def start_expiry(self, endpoint: Resumable, moment: int) -> None:
        """Start the timeout of a detached link, or end the link, if its policy names this moment."""
        key = endpoint.key
        if self._links.get(key) is not endpoint:
            return
        if moment > DETACHED:
            endpoint.session_ended()
        if endpoint.terminus.expiry.ends(moment) or (moment > DETACHED and not self._count(endpoint)):
            self.expire(endpoint)
        elif endpoint.terminus.expiry.begins(moment) and key not in self._timers:
            self._timers[key] = self._loop.call_later(endpoint.terminus.expiry.timeout, self._expired, endpoint)

    def _count(self, endpoint: Resumable) -> bool:
        """Count a link's deliveries for its user, since its session has ended. Returns False if they are too many."""
        key, user = endpoint.key, endpoint.peer.user
        if key in self._counted:
            return True
        count, most = endpoint.unsettled, self._settings.amqp_max_detached_deliveries_per_user
        if self._deliveries[user] + count > most:
            endpoint.peer.log(f"{endpoint} ends: {most} deliveries of detached links are kept")
            return False
        self._counted[key] = count
        self._deliveries[user] += count
        return True

    def _suspend(self, turn: Turn, endpoint: Resumable) -> None:
        if not endpoint.ended:
            endpoint.suspend(turn)
        if endpoint.ended or endpoint.idle:
            self.end(turn, endpoint)

    # --- the end

    def look(self, endpoint: Resumable) -> None:
        """End a detached link if nothing is left to resume."""
        if self._links.get(endpoint.key) is endpoint and endpoint.idle:
            endpoint.loop.in_commit(lambda turn: self._end_idle(turn, endpoint))

    def _end_idle(self, turn: Turn, endpoint: Resumable) -> None:
        if self._links.get(endpoint.key) is endpoint and endpoint.idle:
            self.end(turn, endpoint)

    def _expired(self, endpoint: Resumable) -> None:
        if self._links.get(endpoint.key) is endpoint:
            endpoint.peer.log(f"{endpoint} was detached for {endpoint.terminus.expiry.timeout} s: it ends")
            self.expire(endpoint)

    def check_rights(self) -> None:
        """End detached links without a valid login or permission."""
        for endpoint in self.links():
            if not endpoint.peer.has_valid_login or not endpoint.peer.may_use(endpoint):
                endpoint.peer.log(f"{endpoint} ends: its permission was withdrawn")
                endpoint.end_cause = Cause.LINK_CLOSED
                self.expire(endpoint)

    def end(self, turn: Turn, endpoint: Resumable) -> None:
        self._remove(endpoint)
        endpoint.peer.detached.pop(endpoint.link, None)
        if endpoint.successor is None:
            endpoint.finish(turn)

    def expire(self, endpoint: Resumable) -> None:
        endpoint.loop.in_commit(lambda turn: self.end(turn, endpoint))

    def links(self) -> list[Resumable]:
        return list(self._links.values())

    # --- coming back

    def take(self, newer: LinkEnd) -> Resumable | None:
        """Remove the detached link of this name, for a newer link that resumes or ends it."""
        former = self._links.get(newer.key)
        if former is not None:
            self._remove(former)
        return former

    def _remove(self, endpoint: Resumable) -> None:
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
