"""Credentials that the broker has accepted recently. A request counts for their user before the broker decides about it."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict

REMEMBERED = 10_000  # 200 bytes each; as many as the passwords that the broker remembers


class RequestCredentials:
    """Users by their header `authorization`. A broker without users accepts requests without it."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._users: OrderedDict[bytes, str] = OrderedDict()

    def user_of(self, authorization: str | None) -> str | None:
        mark = self._mark(authorization)
        user = self._users.get(mark)
        if user is not None:
            self._users.move_to_end(mark)
        return user

    def remember(self, authorization: str | None, user: str) -> None:
        self._users[self._mark(authorization)] = user
        if len(self._users) > REMEMBERED:
            self._users.popitem(last=False)

    def forget(self, authorization: str | None) -> None:
        self._users.pop(self._mark(authorization), None)

    def _mark(self, authorization: str | None) -> bytes:
        """A MAC, so that passwords do not stay in memory."""
        return b"" if authorization is None else hashlib.blake2b(authorization.encode(), digest_size=16, key=self._key).digest()
