"""Shared-access signatures: tokens that clients of Azure Service Bus sign with a key of their user.

    SharedAccessSignature sr=RESOURCE&sig=SIGNATURE&se=EXPIRY&skn=USER

The signature is an HMAC-SHA-256 of the resource, as in the token, and of the expiry in seconds since 1970.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote_plus

from .. import errors

SCHEME = "SharedAccessSignature "
MAX_TOKEN = 8192  # characters; tokens of the vendor's clients have about 250
_FORM = "a shared-access signature: SharedAccessSignature sr=…&sig=…&se=…&skn=…"


class SharedAccessSignature(NamedTuple):
    """A parsed token, not verified."""

    resource: str  # a URI
    signed: bytes
    signature: bytes
    expiry: int  # seconds since 1970
    user: str

    def is_of(self, keys: Iterable[str]) -> bool:
        """Return True if one of the keys has signed the token. The time does not depend on the signature."""
        proofs = [hmac.digest(key.encode(), self.signed, "sha256") for key in keys]
        return sum(hmac.compare_digest(proof, self.signature) for proof in proofs) > 0


def parse(token: str) -> SharedAccessSignature:
    """Raises Unauthenticated, with a text that repeats nothing of the token."""
    if not token.startswith(SCHEME) or len(token) > MAX_TOKEN:
        raise errors.Unauthenticated(f"the token is not {_FORM}")
    fields: dict[str, str] = {}
    for part in token.removeprefix(SCHEME).split("&"):
        name, equals, value = part.partition("=")
        if not equals or name in fields:
            raise errors.Unauthenticated(f"the token has a part without NAME=VALUE, or one twice; it must be {_FORM}")
        fields[name] = value
    missing = [name for name in ("sr", "sig", "se", "skn") if not fields.get(name)]
    if missing:
        raise errors.Unauthenticated(f"the token has no {missing[0]}; it must be {_FORM}")
    if not re.fullmatch("[0-9]{1,12}", fields["se"]):
        raise errors.Unauthenticated("the token's se is not a time in seconds since 1970")
    try:
        signature = base64.b64decode(unquote_plus(fields["sig"]), validate=True)
    except (binascii.Error, ValueError):
        raise errors.Unauthenticated("the token's sig is not base64") from None
    signed = f"{fields['sr']}\n{fields['se']}".encode("utf-8", "replace")
    return SharedAccessSignature(unquote_plus(fields["sr"]), signed, signature, int(fields["se"]), unquote_plus(fields["skn"]))


def claimed_user(token: object) -> str:
    """Return "" if a token names no user."""
    try:
        return parse(token).user if isinstance(token, str) else ""
    except errors.Unauthenticated:
        return ""
