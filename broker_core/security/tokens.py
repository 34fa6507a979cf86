"""Bearer tokens, which a user gets from one plane for another.

    base64url(JSON [user, expires, identity]) "." base64url(HMAC-SHA-256 of that)

Each start draws a new key, so a restart ends all tokens. A change of `identity`, a digest of password and certificates, ends the
user's tokens.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from typing import NamedTuple

MAX_TOKEN = 4096  # characters


class Claim(NamedTuple):
    """Content of a token."""

    user: str
    expires: int  # seconds since 1970
    identity: str


def sign(key: bytes, claim: Claim) -> str:
    body = _text(json.dumps(claim).encode())
    return f"{body}.{_text(hmac.digest(key, body.encode(), 'sha256'))}"


def verify(key: bytes, token: str) -> Claim | None:
    """Return None for a wrong signature. The caller checks the expiry."""
    body, _, mac = token.partition(".")
    if len(token) > MAX_TOKEN or not token.isascii():
        return None
    expected = hmac.digest(key, body.encode(), "sha256")
    if not hmac.compare_digest(_text(expected), mac):
        return None
    try:
        return Claim(*json.loads(base64.urlsafe_b64decode(body)))
    except (ValueError, TypeError, binascii.Error):  # impossible after a correct signature
        return None


def _text(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).decode()
