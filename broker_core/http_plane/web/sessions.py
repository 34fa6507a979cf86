"""Sessions: logins of the page. They are kept in this process, so they end with it, and with the broker.

A session has two secrets. The cookie goes with every request by itself, also with one that a foreign page makes the browser
send; the other must stand in a header of whatever changes something, and a foreign page cannot read it. Both are new at each
login, so that nobody can lay out a cookie beforehand.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

RENEW_S = 600.0  # age of a broker's token, which holds for an hour, at which another one is asked for


@dataclass
class PageSession:
    """Login of one browser."""

    user: str
    token: str  # of the broker, for this user
    begun: float
    used: float
    renewed: float
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    def proves(self, header: str | None) -> bool:
        """Say whether a header shows that the request's page could read the session's second secret."""
        return header is not None and header.isascii() and hmac.compare_digest(header, self.csrf)


class Sessions:
    """All sessions, at most so many, and of one user at most `most_of_one`. `clock`: monotonic, seconds."""

    def __init__(
        self, most: int, most_of_one: int, idle_s: float, longest_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._idle_s, self._longest_s, self._clock = idle_s, longest_s, clock
        self._sessions: OrderedDict[str, PageSession] = OrderedDict()  # by the cookie's value; the one used last is the last

    def begin(self, user: str, token: str) -> tuple[str, PageSession]:
        """Begin a session: its cookie's value, and what is known of it. With one too many of this user, or of all, the one of
        these that was idle for the longest ends."""
        now = self._clock()
        name, session = secrets.token_urlsafe(32), PageSession(user, token, now, now, now)
        self._sessions[name] = session
        own = [each for each, known in self._sessions.items() if known.user == user]
        for each in own[: -self._most_of_one]:
            self.end(each)
        while len(self._sessions) > self._most:
            self._sessions.popitem(last=False)
        return name, session

    def find(self, name: str | None) -> PageSession | None:
        """Return the session of a cookie; None where it has ended, or never was."""
        session = None if name is None else self._sessions.get(name)
        if name is None or session is None:
            return None
        now = self._clock()
        if now - session.used > self._idle_s or now - session.begun > self._longest_s:
            self.end(name)
            return None
        session.used = now
        self._sessions.move_to_end(name)
        return session

    def wants_renewal(self, session: PageSession) -> bool:
        """Say whether it is time for another token; once, for all requests of this moment."""
        due = self._clock() - session.renewed > RENEW_S
        if due:
            session.renewed = self._clock()
        return due

    def end(self, name: str | None) -> None:
        """End a session, if there is one."""
        if name is not None:
            self._sessions.pop(name, None)
