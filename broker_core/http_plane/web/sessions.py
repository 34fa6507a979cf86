"""Logins of the page, which end with this process.

A session has two secrets. Browsers add the cookie to every request, also from foreign pages. These cannot read the other secret,
which must be in a header of every change. Both are new at each login, so a cookie cannot be planted before it.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

RENEW_S = 600.0  # age at which a token is renewed; it is valid for an hour


@dataclass
class PageSession:
    """The login of one browser."""

    user: str
    token: str  # of the broker, for the user
    begun: float
    used: float
    renewed: float
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    def proves(self, header: str | None) -> bool:
        return header is not None and header.isascii() and hmac.compare_digest(header, self.csrf)


class Sessions:
    """At most `most` sessions, and `most_of_one` of one user. `clock`: monotonic, seconds."""

    def __init__(
        self, most: int, most_of_one: int, idle_s: float, longest_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._idle_s, self._longest_s, self._clock = idle_s, longest_s, clock
        self._sessions: OrderedDict[str, PageSession] = OrderedDict()  # by the cookie's value; the last used one is the last

    def begin(self, user: str, token: str) -> tuple[str, PageSession]:
        """Return the value of the cookie, and the session. Beyond a limit the session that was idle longest ends."""
        now = self._clock()
        name, session = secrets.token_urlsafe(32), PageSession(user, token, now, now, now)
        self._sessions[name] = session
        own = [cookie for cookie, known in self._sessions.items() if known.user == user]
        for cookie in own[: -self._most_of_one]:
            self.end(cookie)
        while len(self._sessions) > self._most:
            self._sessions.popitem(last=False)
        return name, session

    def find(self, name: str | None) -> PageSession | None:
        name = name or ""
        session = self._sessions.get(name)
        if session is None:
            return None
        now = self._clock()
        if now - session.used > self._idle_s or now - session.begun > self._longest_s:
            self.end(name)
            return None
        session.used = now
        self._sessions.move_to_end(name)
        return session

    def wants_renewal(self, session: PageSession) -> bool:
        """Return True once for simultaneous requests."""
        due = self._clock() - session.renewed > RENEW_S
        if due:
            session.renewed = self._clock()
        return due

    def end(self, name: str | None) -> None:
        self._sessions.pop(name or "", None)
