"""Reference decoder: one encoded message at a time. It defines the values of `decoding`'s columns, and decodes forms that are too
rare for vectors. Tests compare both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...amqp.errors import RemoteProtocolError
from ...amqp.messages import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MAX_SECTIONS_READ,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    VALUE,
    Message,
    decode_message,
    scan,
)
from .fields import FIELDS
from .texts import text, to_json

REFUSALS = (RemoteProtocolError,)


class NotBare(RemoteProtocolError):
    """A section that does not belong in a bare message: a client stored a complete one."""

    def __init__(self, code: int) -> None:
        super().__init__("amqp:decode-error", f"section 0x{code:02x} does not belong in a bare message (3.2)")


def row(message: bytes | None, annotations: bytes | None, names: Sequence[str]) -> dict[str, Any]:
    """Return the columns `names` of one message as Python values. A time is an int of microseconds, a map a list of pairs.

    All sections are measured, and those of requested columns decoded as a whole. Raises RemoteProtocolError: DecodeError and
    FieldError as `decode_message` does, and NotBare.
    """
    values: dict[str, Any] = {}
    if any(name != "annotations" for name in names):
        wanted: dict[str, tuple[int, ...]] = {**dict.fromkeys(_OF_BODY, ()), "properties": (APPLICATION_PROPERTIES,)}
        codes = {code for name in names for code in wanted.get(name, (PROPERTIES,))}
        bare = message or b""
        has_body = any(name in names for name in _OF_BODY)
        values = _parts(bare, decoded(bare, codes, body=has_body), names)
    if "annotations" in names:
        values["annotations"] = _annotations(annotations)
    return values


def decoded(message: bytes, codes: set[int], *, body: bool = False) -> Message:
    """Return the sections `codes` of a bare message, all of which are measured. Raises like `row`."""
    sections = scan(message, most=MAX_SECTIONS_READ)
    for section in sections:
        if not PROPERTIES <= section.code <= VALUE:
            raise NotBare(section.code)
    chosen = [message[s.start : s.end] for s in sections if s.code in codes or (body and s.code >= DATA)]
    return decode_message(b"".join(chosen), most=MAX_SECTIONS_READ)


def _parts(bare: bytes, message: Message, names: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in names:
        if name in _OF_BODY:
            values[name] = _OF_BODY[name](bare, message)
        elif name == "properties":
            properties = message.application_properties
            values[name] = None if properties is None else [(str(key), text(value)) for key, value in properties.items()]
        elif name != "annotations":
            value = None if message.properties is None else getattr(message.properties, FIELDS[name].attribute)
            values[name] = None if value is None else _PROPERTY.get(name, text)(value)
    return values


def _body(bare: bytes, message: Message) -> bytes | None:
    if message.data:
        return b"".join(message.data)
    if message.sequences:
        return to_json([item for sequence in message.sequences for item in sequence]).encode()
    if not message.has_value:
        return None
    if type(message.value) is bytes:
        return message.value
    return (message.value if type(message.value) is str else to_json(message.value)).encode()


def _body_type(bare: bytes, message: Message) -> str | None:
    if message.data:
        return "data"
    if not message.sequences and not message.has_value:
        return None
    if type(message.value) is bytes:
        return "binary"
    return "string" if type(message.value) is str else "json"


def _envelope(bare: bytes, message: Message) -> bytes | None:
    body = _body(bare, message)
    is_cut = body is not None and _body_type(bare, message) != "json" and bare.endswith(body)
    return bare[: len(bare) - len(body or b"")] if is_cut else None


_OF_BODY = {"body": _body, "bodyType": _body_type, "envelope": _envelope}


def user_text(user: bytes) -> str | None:
    try:
        return user.decode()
    except UnicodeDecodeError:
        return text(user)


def _micros(milliseconds: int) -> int | None:
    """Return None if 64 bits cannot hold it (years beyond ±292,000, which clients use for *never*)."""
    micros = milliseconds * 1000
    return micros if -(2**63) <= micros < 2**63 else None


_PROPERTY: dict[str, Any] = {"userId": user_text, "creationTime": _micros, "absoluteExpiryTime": _micros, "groupSequence": int}


def _annotations(section: bytes | None) -> list[tuple[str, str | None]] | None:
    if section is None:
        return None
    sections = scan(section)
    if [s.code for s in sections] != [MESSAGE_ANNOTATIONS]:
        raise NotBare(sections[0].code if sections else HEADER)
    texts: dict[str, str | None] = {}
    for key, value in (decode_message(section).message_annotations or {}).items():
        # A symbol and a ulong can have the same text. The first entry wins.
        texts.setdefault(str(text(key)), text(value))
    return list(texts.items())
