"""Password checks, and the limit on their cost.

A wrong password and an unknown user cost the same work. An unknown user's credentials are derived from the users file's secret,
so they look real, also after a restart.

A correct password is remembered as a MAC under a key of this process. So a client that sends it with each call (HTTP's Basic) or
connection (PLAIN) costs PBKDF2 only once. The MAC covers the credentials, so a changed password does not match.
"""

from __future__ import annotations

import hmac
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable

from ..amqp import scram
from ..amqp.scram import ScramCredentials
from .users import DEFAULT_ITERATIONS, SALT_BYTES, Users

REMEMBERED = 10_000  # correct passwords, 100 bytes each
CHECKS_AT_ONCE = max(1, (os.cpu_count() or 2) // 2)  # logins leave half of the machine to other clients


class Passwords:
    """Thread-safe. Hold `turn` during each check."""

    def __init__(self, random: Callable[[int], bytes] = os.urandom) -> None:
        self._key = random(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()
        self.turn = threading.BoundedSemaphore(CHECKS_AT_ONCE)

    def check(self, credentials: ScramCredentials, password: str) -> bool:
        if self.was_right(credentials, password):
            return True
        is_right = scram.check_password(credentials, password)
        if is_right:
            with self._lock:
                self._right[self._mark(credentials, password)] = None
                if len(self._right) > REMEMBERED:
                    self._right.popitem(last=False)
        return is_right

    def was_right(self, credentials: ScramCredentials, password: str) -> bool:
        mark = self._mark(credentials, password)
        with self._lock:
            if mark not in self._right:
                return False
            self._right.move_to_end(mark)
            return True

    def _mark(self, credentials: ScramCredentials, password: str) -> bytes:
        prefix = b"".join((len(credentials.salt).to_bytes(4, "big"), credentials.salt, credentials.stored_key))
        return hmac.digest(self._key, prefix + password.encode("utf-8", "surrogatepass"), "sha256")


def decoy(secret: bytes, iterations: int, name: str) -> ScramCredentials:
    """Return credentials for an unknown name, which no password matches."""
    octets = name.encode("utf-8", "surrogatepass")
    key = hmac.digest(secret, b"key" + octets, "sha256")
    return ScramCredentials(hmac.digest(secret, b"salt" + octets, "sha256")[:SALT_BYTES], iterations, key, key)


def usual_iterations(users: Users) -> int:
    """Return the most frequent number of iterations, which unknown users also seem to have."""
    credentials = (user.credentials for user in users.users.values())
    return next((n for n, _ in Counter(c.iterations for c in credentials if c is not None).most_common(1)), DEFAULT_ITERATIONS)
