"""Checking passwords: what a check is made against, for users and for names that nobody has, and what it may cost.

A wrong password and an unknown user get the same work: an unknown user is checked against credentials derived from the users
file's secret, as `broker_core.amqp.sasl` does, so that salt and effort look like anybody's, over restarts too.

A password that was right is remembered, as a MAC under a key of this process: a client that sends it with each call (HTTP's
Basic) or connection (PLAIN) is not PBKDF2's work each time. The MAC covers the credentials, so a changed password is forgotten by
itself.
"""

from __future__ import annotations

import hmac
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable

from ..amqp import scram
from ..amqp.scram import Credentials
from .users import DEFAULT_ITERATIONS, SALT_BYTES, Users

REMEMBERED = 10_000  # passwords that were right, 100 bytes each
CHECKS_AT_ONCE = max(1, (os.cpu_count() or 2) // 2)  # a storm of logins leaves half of the machine to those who are in


class Passwords:
    """Thread-safe. `turn`: to be had for each check."""

    def __init__(self, random: Callable[[int], bytes] = os.urandom) -> None:
        self._key = random(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()
        self.turn = threading.BoundedSemaphore(CHECKS_AT_ONCE)

    def check(self, credentials: Credentials, password: str) -> bool:
        """As `scram.check_password`, quick for a password that was right before. For who has a turn."""
        if self.was_right(credentials, password):
            return True
        right = scram.check_password(credentials, password)
        if right:
            with self._lock:
                self._right[self._mark(credentials, password)] = None
                if len(self._right) > REMEMBERED:
                    self._right.popitem(last=False)
        return right

    def was_right(self, credentials: Credentials, password: str) -> bool:
        """Say whether this password was right for these credentials not long ago."""
        mark = self._mark(credentials, password)
        with self._lock:
            if mark not in self._right:
                return False
            self._right.move_to_end(mark)
            return True

    def _mark(self, credentials: Credentials, password: str) -> bytes:
        kept = b"".join((len(credentials.salt).to_bytes(4, "big"), credentials.salt, credentials.stored_key))
        return hmac.digest(self._key, kept + password.encode("utf-8", "surrogatepass"), "sha256")


def decoy(secret: bytes, iterations: int, name: str) -> Credentials:
    """Credentials for a name that nobody has: no password fits them, and nobody can tell them from real ones."""
    octets = name.encode("utf-8", "surrogatepass")
    key = hmac.digest(secret, b"key" + octets, "sha256")
    return Credentials(hmac.digest(secret, b"salt" + octets, "sha256")[:SALT_BYTES], iterations, key, key)


def usual_iterations(users: Users) -> int:
    """Return the iterations that most users have: an unknown user must seem to have as many."""
    kept = (user.credentials for user in users.users.values())
    return next((n for n, _ in Counter(c.iterations for c in kept if c is not None).most_common(1)), DEFAULT_ITERATIONS)
