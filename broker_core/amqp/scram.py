"""SCRAM-SHA-256 (RFC 5802, RFC 7677) of both sides, and the credentials that a server stores. PLAIN is checked against them.

A client also uses SCRAM-SHA-512. Without channel binding: the gs2 flag `y` is accepted, `p=` is refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import stringprep
import unicodedata
from typing import NamedTuple

# RFC 7677 asks for 4096 at least. The maximum bounds a client's work for a hostile server.
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 1_000_000
SHA_256, SHA_512 = "sha256", "sha512"


class ScramCredentials(NamedTuple):
    """Stored credentials of one user (RFC 5802, 3). The keys have 32 octets."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class ScramError(ValueError):
    """An invalid text of the exchange. The peer does not learn which part."""


def make_credentials(password: str, salt: bytes, iterations: int = MIN_ITERATIONS) -> ScramCredentials:
    """`salt`: at least 16 random octets."""
    salted = salted_password(password, salt, iterations)
    client_key = _mac(salted, b"Client Key")
    return ScramCredentials(salt, iterations, hashlib.sha256(client_key).digest(), _mac(salted, b"Server Key"))


def check_password(credentials: ScramCredentials, password: str) -> bool:
    """Compare in constant time."""
    try:
        salted = salted_password(password, credentials.salt, credentials.iterations)
    except ScramError:
        salted = bytes(32)
    stored = hashlib.sha256(_mac(salted, b"Client Key")).digest()
    return hmac.compare_digest(stored, credentials.stored_key)


def salted_password(password: str, salt: bytes, iterations: int, digest: str = SHA_256) -> bytes:
    return hashlib.pbkdf2_hmac(digest, saslprep(password).encode(), salt, iterations)


def _mac(key: bytes, data: bytes, digest: str = SHA_256) -> bytes:
    return hmac.digest(key, data, digest)


def client_proof(salted: bytes, auth_message: bytes, digest: str = SHA_256) -> bytes:
    client_key = _mac(salted, b"Client Key", digest)
    signature = _mac(hashlib.new(digest, client_key).digest(), auth_message, digest)
    return bytes(a ^ b for a, b in zip(client_key, signature, strict=True))


def server_signature(salted: bytes, auth_message: bytes, digest: str = SHA_256) -> bytes:
    return _mac(_mac(salted, b"Server Key", digest), auth_message, digest)


def check_proof(credentials: ScramCredentials, proof: bytes, auth_message: bytes) -> bool:
    signature = _mac(credentials.stored_key, auth_message)
    if len(proof) != len(signature):
        return False
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    return hmac.compare_digest(hashlib.sha256(client_key).digest(), credentials.stored_key)


def signed(credentials: ScramCredentials, auth_message: bytes) -> bytes:
    return _mac(credentials.server_key, auth_message)


# --- the texts


def attributes(text: bytes) -> dict[str, str]:
    """Parse `a=1,b=2`. Raises ScramError for other texts, repeated attributes and the extension `m`."""
    try:
        parts = text.decode("utf-8").split(",")
    except UnicodeDecodeError:
        raise ScramError("not UTF-8") from None
    result: dict[str, str] = {}
    for part in parts:
        if len(part) < 2 or part[1] != "=" or not part[0].isalpha() or part[0] in result:
            raise ScramError("not an attribute")
        result[part[0]] = part[2:]
    if "m" in result:
        raise ScramError("a mandatory extension")
    return result


def unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("not base64") from None


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def escape_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape_name(text: str) -> str:
    if any(part[:2] not in ("2C", "3D") for part in text.split("=")[1:]):
        raise ScramError("a name with a bare '='")
    return text.replace("=2C", ",").replace("=3D", "=")


def saslprep(text: str) -> str:
    """Prepare text (RFC 4013), so that equal passwords have equal octets. Raises ScramError for prohibited text."""
    mapped = "".join(" " if stringprep.in_table_c12(c) else c for c in text if not stringprep.in_table_b1(c))
    result = unicodedata.normalize("NFKC", mapped)
    if any(prohibits(c) for prohibits in _PROHIBITED for c in result):
        raise ScramError("a character that SASLprep prohibits")
    if any(map(stringprep.in_table_d1, result)) and (
        any(map(stringprep.in_table_d2, result)) or not all(map(stringprep.in_table_d1, (result[0], result[-1])))
    ):
        raise ScramError("left-to-right and right-to-left text in one string")
    return result


_TABLES = ("a1", "c12", "c21_c22", "c3", "c4", "c5", "c6", "c7", "c8", "c9")
_PROHIBITED = [getattr(stringprep, f"in_table_{table}") for table in _TABLES]
