"""Bearer tokens: what a user who has logged in on one plane shows on another.

    base64url(JSON [user, expires, identity]) "." base64url(HMAC-SHA-256 of that)

The key is random in each start of the broker, so a restart ends all tokens. `identity` is of the user's record: a new password,
or another certificate, ends the user's tokens too.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from typing import NamedTuple

MAX_TOKEN = 4096  # characters


class Claim(NamedTuple):
    """Claim of a token: who, until when, and which identity of that name."""

    user: str
    expires: int  # seconds since 1970
    identity: str


def sign(key: bytes, claim: Claim) -> str:
    """Make a token of a claim, signed with `key`."""
    body = _text(json.dumps(claim).encode())
    return f"{body}.{_text(hmac.digest(key, body.encode(), 'sha256'))}"


def verify(key: bytes, token: str) -> Claim | None:
    """Return the claim of a token; None when we did not sign it. The caller checks its expiry."""
    body, _, mac = token.partition(".")
    if len(token) > MAX_TOKEN or not token.isascii():
        return None
    expected = hmac.digest(key, body.encode(), "sha256")
    if not hmac.compare_digest(_text(expected), mac):
        return None
    try:
        return Claim(*json.loads(base64.urlsafe_b64decode(body)))
    except (ValueError, TypeError, binascii.Error):  # never: we wrote it
        return None


def _text(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).decode()
