"""Credentials that the broker has accepted lately: they tell whose budget a request counts for before anything is asked.

The broker decides about every request. A user who has lost a right or has another password since is only counted as before
until the broker says so.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict

REMEMBERED = 10_000  # 200 bytes each; as many as the passwords that the broker remembers


class RequestCredentials:
    """Users by the header `authorization` that they showed; a broker without users lets in requests that have none."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._users: OrderedDict[bytes, str] = OrderedDict()

    def user_of(self, authorization: str | None) -> str | None:
        """Return the user who showed this; None if the broker has to be asked."""
        mark = self._mark(authorization)
        user = self._users.get(mark)
        if user is not None:
            self._users.move_to_end(mark)
        return user

    def remember(self, authorization: str | None, user: str) -> None:
        """Note that the broker accepts this."""
        self._users[self._mark(authorization)] = user
        if len(self._users) > REMEMBERED:
            self._users.popitem(last=False)

    def forget(self, authorization: str | None) -> None:
        """Note that the broker does not accept this."""
        self._users.pop(self._mark(authorization), None)

    def _mark(self, authorization: str | None) -> bytes:
        """A MAC rather than the header: passwords do not stay in memory."""
        return b"" if authorization is None else hashlib.blake2b(authorization.encode(), digest_size=16, key=self._key).digest()
