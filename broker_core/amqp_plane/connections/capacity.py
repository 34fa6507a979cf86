"""Limits on unsettled deliveries, of a session and of a connection: what they leave to its links, and who waits for that.

A link at a limit waits in a line: the session's, or the connection's. When deliveries are settled, no more links are woken than
there is capacity for, and those first that took something longest ago: so a peer with many links that settles one delivery has
one link asked, and none takes all the capacity again and again. Who is woken may have nothing to take. So after the pass in which
they were asked, the next are woken if capacity is left, twice as many each time.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections import Counter

from ...amqp import Connection, Session
from ..context import PeerLimits
from ..loop.commit_loop import CommitLoop
from ..loop.interest import AWAITS, NOTIFIED
from ..loop.parties import MessageReceiver

Place = tuple[int, int, MessageReceiver]  # when it took something last, a number of its own, the link


class Capacity:
    """Counts of what the links of one connection hold, and may still take."""

    def __init__(self, connection: Connection, loop: CommitLoop, limits: PeerLimits) -> None:
        self._connection, self._loop, self._limits = connection, loop, limits
        self.underway: Counter[Session] = Counter()  # messages acquired for links of a session that have not left
        self._underway = 0  # in all
        self._takes = 0  # how often a link took something
        self._numbers = itertools.count()
        self._places: dict[MessageReceiver, tuple[Session | None, Place]] = {}  # of links that wait: in which line, and where
        self._lines: dict[Session | None, list[Place]] = {}  # in order; None: the connection's
        self._woken = 0  # links that were woken for the connection's capacity, and are asked in the next pass
        self._again: dict[Session, None] = {}  # sessions from whose lines links were woken, and where others wait

    # --- what there is

    @property
    def held(self) -> int:
        """Count the messages that the peer has, or is about to get."""
        return self._connection.unsettled_sent + self._underway

    def held_in(self, session: Session) -> int:
        """Count those of one session."""
        return len(session.outgoing) + self.underway.get(session, 0)

    def add_underway(self, session: Session, change: int) -> None:
        """Add to the number of messages that are acquired for links of a session and have not left."""
        count = self.underway.get(session, 0) + change
        if count:
            self.underway[session] = count
        else:
            self.underway.pop(session, None)  # which would keep the session
        self._underway += change

    def free(self, session: Session) -> int:
        """Count the messages that links of a session may take."""
        return min(self._free(None), self._free(session))

    def budgets(self, session: Session) -> tuple[tuple[object, int], ...]:
        """Return the limits on what links of a session may take: what shares each limit, and how many messages are left."""
        return (self, self._free(None)), (session, self._free(session))

    def _free(self, line: Session | None) -> int:
        if line is None:
            return self._limits.unsettled_per_connection - self.held
        return self._limits.unsettled_per_session - self.held_in(line)

    # --- who waits

    def wait(self, link: MessageReceiver) -> None:
        """Have a link wait that could take messages, were it not for a limit."""
        if link not in self._places:
            session = link.session
            self._stand(session if self._free(session) <= 0 else None, (link.took_at, next(self._numbers), link))

    def took(self, link: MessageReceiver) -> int:
        """Note that a link has taken something: others come first now. Returns when that was, in a count of such moments."""
        self.leave(link)
        self._takes += 1
        return self._takes

    def leave(self, link: MessageReceiver) -> None:
        """Take a link out of its line: it has ended, or has what it waits for."""
        line, place = self._places.pop(link, (None, None))
        if place is not None:
            places = self._lines[line]
            del places[bisect_left(places, place)]
            if not places:
                del self._lines[line]

    def gained(self, session: Session) -> None:
        """Wake those that wait for a limit: deliveries of this session were settled, or will not leave."""
        if self._places:
            self._let_on(session)
            self._wake()

    def _stand(self, line: Session | None, place: Place) -> None:
        self._places[place[-1]] = line, place
        insort(self._lines.setdefault(line, []), place)

    def _first(self, line: Session | None) -> Place | None:
        """Take the first of a line out of it."""
        places = self._lines.get(line)
        if places is None:
            return None
        place = places[0]
        self.leave(place[-1])
        return place

    def _let_on(self, session: Session, least: int = 0) -> None:
        """Have links that have waited for their session wait for their connection, among the others, by when they took last."""
        free = self._free(session)
        for _ in range(max(free, least) if free > 0 else 0):
            place = self._first(session)
            if place is None:
                break
            self._stand(None, place)
            self._again[session] = None

    def _wake(self, least: int = 0) -> None:
        """Wake as many links as there is capacity for, those that are woken already among them, or `least`."""
        free, before = self._free(None), self._woken
        most = max(free, least) if free > 0 else 0
        while self._woken < most and (place := self._first(None)) is not None:
            link = place[-1]
            self._loop.has_capacity(link)
            self._woken += link.standing in (NOTIFIED, AWAITS)  # else it waits for something else, or for its session
        if self._woken and not before:
            self._loop.after_all(self._look_again)

    def _look_again(self) -> None:
        """Wake the next if those that were woken have left something: they have been asked."""
        woken, self._woken = self._woken, 0
        again, self._again = self._again, {}
        for session in again:
            self._let_on(session, 2 * woken)
        self._wake(2 * woken)

    # --- the end

    def forget(self, session: Session) -> None:
        """Forget a session that has ended; what it held is for others."""
        self.add_underway(session, -self.underway.get(session, 0))
        self.gained(session)

    def clear(self) -> None:
        """Forget all: the connection has gone."""
        self.underway.clear()
        self._underway = 0
        self._places.clear()
        self._lines.clear()
        self._again.clear()
