"""One encoded message at a time: what the columns of `decode` mean, and what decodes the shapes too rare to be worth vectors.

`row` is the definition. `decode.columns` gives the same values and refuses the same messages, which tests show on generated and
on damaged ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    Section,
    decode_message,
    scan,
)
from .fields import FIELDS
from .texts import text, to_json

REFUSALS = (RemoteProtocolError,)


class NotBare(RemoteProtocolError):
    """A section that does not belong into a bare message: it was stored by somebody who thought it was a whole one."""

    def __init__(self, code: int) -> None:
        super().__init__("amqp:decode-error", f"section 0x{code:02x} is no part of a bare message (3.2)")


def row(message: bytes | None, annotations: bytes | None, names: Sequence[str]) -> dict[str, Any]:
    """The columns `names` of one message as Python values; a time is an int of microseconds, a map a list of pairs.

    All sections are measured, and those that a column comes from are decoded as a whole. Raises RemoteProtocolError: DecodeError
    and FieldError for what `decode_message` refuses of those sections, NotBare.
    """
    found: dict[str, Any] = {}
    if any(name != "annotations" for name in names):
        wanted: dict[str, tuple[int, ...]] = {"body": (), "properties": (APPLICATION_PROPERTIES,)}
        codes = {code for name in names for code in wanted.get(name, (PROPERTIES,))}
        found = _parts(decoded(message or b"", codes, body="body" in names), names)
    if "annotations" in names:
        found["annotations"] = _annotations(annotations)
    return found


def decoded(message: bytes, codes: set[int], *, body: bool = False) -> Message:
    """The sections `codes` of a bare message, and with `body` those of its body; all are measured. Raises as `row` does."""
    sections = scan(message, most=MAX_SECTIONS_READ)
    for section in sections:
        if not PROPERTIES <= section.code <= VALUE:
            raise NotBare(section.code)
    chosen = (s for s in sections if s.code in codes or (body and s.code >= DATA))
    return decode_message(_cut(message, chosen), most=MAX_SECTIONS_READ)


def _cut(message: bytes, sections: Iterable[Section]) -> bytes:
    return b"".join(message[section.start : section.end] for section in sections)


def _parts(message: Message, names: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        if name == "body":
            found[name] = _body(message)
        elif name == "properties":
            properties = message.application_properties
            found[name] = None if properties is None else [(str(key), text(value)) for key, value in properties.items()]
        elif name != "annotations":
            value = None if message.properties is None else getattr(message.properties, FIELDS[name].attribute)
            found[name] = None if value is None else _PROPERTY.get(name, text)(value)
    return found


def _body(message: Message) -> bytes | None:
    if message.data:
        return b"".join(message.data)
    if message.sequences:
        return to_json([item for sequence in message.sequences for item in sequence]).encode()
    if not message.has_value:
        return None
    if type(message.value) is bytes:
        return message.value
    return (message.value if type(message.value) is str else to_json(message.value)).encode()


def user_text(user: bytes) -> str | None:
    """Return what the column `userId` shows."""
    try:
        return user.decode()
    except UnicodeDecodeError:
        return text(user)


def _micros(milliseconds: int) -> int | None:
    """None for a time that 64 bits of microseconds cannot hold (years beyond ±292,000, which clients use for *never*)."""
    micros = milliseconds * 1000
    return micros if -(2**63) <= micros < 2**63 else None


_PROPERTY: dict[str, Any] = {"userId": user_text, "creationTime": _micros, "absoluteExpiryTime": _micros, "groupSequence": int}


def _annotations(section: bytes | None) -> list[tuple[str, str | None]] | None:
    if section is None:
        return None
    found = scan(section)
    if [s.code for s in found] != [MESSAGE_ANNOTATIONS]:
        raise NotBare(found[0].code if found else HEADER)
    texts: dict[str, str | None] = {}
    for key, value in (decode_message(section).message_annotations or {}).items():
        # A symbol and a ulong can have the same text; a map has each key once, and the first one keeps it.
        texts.setdefault(str(text(key)), text(value))
    return list(texts.items())
