"""Limits on the unsettled deliveries of a session and of a connection, and the links that wait for capacity.

A link waits in the line of its session or of its connection. When deliveries are settled, as many links are woken as there is
capacity for, the least recently served first. A woken link may take nothing. So if capacity is left after the next commit,
twice as many links are woken each time.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections import Counter

from ...amqp import Connection, Session
from ...settings.keys import Settings
from ..loop.commit_loop import CommitLoop
from ..loop.interest import AWAITS, NOTIFIED
from ..loop.parties import ReceiverLink

Place = tuple[int, int, ReceiverLink]  # when it last took messages, a unique number, the link


class Capacity:
    """The limits of one connection."""

    def __init__(self, connection: Connection, loop: CommitLoop, settings: Settings) -> None:
        self._connection, self._loop, self._settings = connection, loop, settings
        self.underway: Counter[Session] = Counter()  # messages acquired for links of a session that have not left
        self._underway = 0  # in all
        self._takes = 0  # the number of times that a link took messages
        self._numbers = itertools.count()
        self._places: dict[ReceiverLink, tuple[Session | None, Place]] = {}  # of waiting links: their line and place
        self._lines: dict[Session | None, list[Place]] = {}  # in order; None: the connection's
        self._woken = 0  # links that were woken for the connection's capacity, and are asked in the next commit
        self._again: dict[Session, None] = {}  # sessions with waiting links, after others were woken

    # --- capacity

    @property
    def held(self) -> int:
        return self._connection.unsettled_sent + self._underway

    def held_in(self, session: Session) -> int:
        return len(session.outgoing) + self.underway.get(session, 0)

    def add_underway(self, session: Session, change: int) -> None:
        count = self.underway.get(session, 0) + change
        if count:
            self.underway[session] = count
        else:
            self.underway.pop(session, None)  # an entry would keep the session in memory
        self._underway += change

    def free(self, session: Session) -> int:
        return min(self._free(None), self._free(session))

    def budgets(self, session: Session) -> tuple[tuple[object, int], ...]:
        """Return the limits that links of a session share, each with the number of messages that is left."""
        return (self, self._free(None)), (session, self._free(session))

    def _free(self, line: Session | None) -> int:
        if line is None:
            return self._settings.amqp_max_unsettled_per_connection - self.held
        return self._settings.amqp_max_unsettled_per_session - self.held_in(line)

    # --- who waits

    def wait(self, link: ReceiverLink) -> None:
        if link not in self._places:
            session = link.session
            self._stand(session if self._free(session) <= 0 else None, (link.took_at, next(self._numbers), link))

    def took(self, link: ReceiverLink) -> int:
        """Note that a link has taken messages, so that others come first. Returns the number of this event."""
        self.leave(link)
        self._takes += 1
        return self._takes

    def leave(self, link: ReceiverLink) -> None:
        line, place = self._places.pop(link, (None, None))
        if place is not None:
            places = self._lines[line]
            del places[bisect_left(places, place)]
            if not places:
                del self._lines[line]

    def gained(self, session: Session) -> None:
        """Deliveries of this session were settled, or will not leave."""
        if self._places:
            self._let_on(session)
            self._wake()

    def _stand(self, line: Session | None, place: Place) -> None:
        self._places[place[-1]] = line, place
        insort(self._lines.setdefault(line, []), place)

    def _first(self, line: Session | None) -> Place | None:
        places = self._lines.get(line)
        if places is None:
            return None
        place = places[0]
        self.leave(place[-1])
        return place

    def _let_on(self, session: Session, least: int = 0) -> None:
        free = self._free(session)
        for _ in range(max(free, least) if free > 0 else 0):
            place = self._first(session)
            if place is None:
                break
            self._stand(None, place)
            self._again[session] = None

    def _wake(self, least: int = 0) -> None:
        free, before = self._free(None), self._woken
        most = max(free, least) if free > 0 else 0
        while self._woken < most and (place := self._first(None)) is not None:
            link = place[-1]
            self._loop.has_capacity(link)
            self._woken += link.standing in (NOTIFIED, AWAITS)  # otherwise it waits for something else, or for its session
        if self._woken and not before:
            self._loop.after_all(self._look_again)

    def _look_again(self) -> None:
        woken, self._woken = self._woken, 0
        again, self._again = self._again, {}
        for session in again:
            self._let_on(session, 2 * woken)
        self._wake(2 * woken)

    # --- the end

    def forget(self, session: Session) -> None:
        self.add_underway(session, -self.underway.get(session, 0))
        self.gained(session)

    def clear(self) -> None:
        self.underway.clear()
        self._underway = 0
        self._places.clear()
        self._lines.clear()
        self._again.clear()
