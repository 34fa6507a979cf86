"""Annotations of messages that leave: sequence number, enqueued time, end of the lock; and the properties of dead letters.

Sequence numbers begin at 1, as the vendor's do: SDKs take 0 for "from the beginning".

JavaScript's SDK settles no message without an id, so such a message gets one from its sequence number and time.

The engine keeps one text for a rejected message: the reason and the description, in two lines.

A receiver may change application properties of a message that it abandons or dead-letters. Each becomes an annotation
`x-opt-changed-property:NAME` of the stored message, and a property again when the message leaves.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote
from uuid import UUID

from ...amqp.encoder import encode
from ...amqp.messages import (
    DELIVERY_ANNOTATIONS,
    HEADER,
    MAX_SECTIONS_READ,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    decode_message,
    scan,
)
from ...amqp.types import Int, Symbol
from ...engine.columns.limits import MAX_ANNOTATIONS
from ...errors import InvalidRequest
from ...messages.annotations import CHANGED_PROPERTY, DEATH_ERROR, DEATH_QUEUE, DEATH_REASON
from ...messages.encoding import annotation
from . import vendor

_DEATH = str(DEATH_REASON).encode()
_CHANGED_OCTETS = CHANGED_PROPERTY.encode()
_REASONS = {
    "delivery_limit": (
        "MaxDeliveryCountExceeded",
        "The message used up the attempts of its queue (maxAttempts).",
    ),
    "expired": ("TTLExpiredException", "The message expired and was dead lettered."),
    "refused": ("RefusedByAll", "Every consumer of the queue has refused the message."),
    "malformed": ("Malformed", "A reader could not decode the message."),
}
_SIMPLE = (str, bytes, bool, int, float, UUID)
_LIST8, _LIST32, _LIST0, _NULL = 0xC0, 0xD0, 0x45, 0x40
_FIELDS = 5  # of a header, up to its delivery-count
_HEAD = bytes((0x00, 0x53, HEADER, _LIST8))
_PROPERTIES = bytes((0x00, 0x53, PROPERTIES))
_FIRST_DELIVERY = _HEAD + b"\x06\x05\x40\x40\x40\x40\x43"


def _key(name: Symbol, constructor: int) -> bytes:
    octets = name.encode()
    return bytes((0xA3, len(octets))) + octets + bytes((constructor,))


_LONG, _TIME = 0x81, 0x83
_KEYS = _key(vendor.SEQUENCE_NUMBER, _LONG), _key(vendor.ENQUEUED_TIME, _TIME), _key(vendor.LOCKED_UNTIL, _TIME)
_UNLOCKED = struct.Struct(">" + "".join(f"{len(key)}sq" for key in _KEYS[:2]))
_LOCKED = struct.Struct(">" + "".join(f"{len(key)}sq" for key in _KEYS))
_MAP = bytes((0x00, 0x53, MESSAGE_ANNOTATIONS, 0xC1))


def dressed(message: bytes, number: int, enqueued_ms: int, until_ms: int | None) -> bytes:
    """Add the vendor's annotations to an encoded message. `until_ms`: the end of its lock, None without a lock."""
    if until_ms is None:
        entries, count = _UNLOCKED.pack(_KEYS[0], number + 1, _KEYS[1], enqueued_ms), 4
    else:
        entries, count = _LOCKED.pack(_KEYS[0], number + 1, _KEYS[1], enqueued_ms, _KEYS[2], until_ms), 6
    end, header = _header(message)
    if header is not None and message[end : end + 2] == b"\x00\x53" and message[end + 2] > MESSAGE_ANNOTATIONS:
        rest = _with_id(message[end:], number, enqueued_ms)
        return b"".join((header, _MAP, bytes((len(entries) + 1, count)), entries, rest))
    if _CHANGED_OCTETS in message or _DEATH in message:
        message = _as_dead_letter(_with_changes(message)) if _DEATH in message else _with_changes(message)
        end, header = _header(message)
    if header is not None:
        message = header + message[end:]
    message = annotated(message, bytes((0xC1, len(entries) + 1, count)) + entries)
    end = next((part.start for part in scan(message, most=MAX_SECTIONS_READ) if part.code > MESSAGE_ANNOTATIONS), len(message))
    return message[:end] + _with_id(message[end:], number, enqueued_ms)


def _with_id(rest: bytes, number: int, enqueued_ms: int) -> bytes:
    """Add a message id to the sections behind the annotations. Sections in an unusual encoding stay as they are."""
    if rest[:2] != b"\x00\x53":
        return rest
    kind = rest[3] if rest[2] == PROPERTIES else None
    if kind == _LIST8:
        count, first, end = rest[5], 6, 5 + rest[4]
    elif kind == _LIST32:
        count, first, end = int.from_bytes(rest[8:12], "big"), 12, 8 + int.from_bytes(rest[4:8], "big")
    else:
        count, first, end = 0, 0, 4 * (kind == _LIST0)
    if count and rest[first] != _NULL:
        return rest
    text = f"{number + 1}-{enqueued_ms}".encode()
    fields = b"".join((b"\xa1", bytes((len(text),)), text, rest[first + 1 : end] if count else b""))
    sizes = (len(fields) + 4).to_bytes(4, "big") + max(1, count).to_bytes(4, "big")
    return b"".join((_PROPERTIES, bytes((_LIST32,)), sizes, fields, rest[end:]))


def _header(message: bytes) -> tuple[int, bytes | None]:
    """Return the end of a message's header, and the header with a delivery-count, which SDKs expect; None if it is unusual."""
    if message[:2] != b"\x00\x53" or len(message) < 6:
        return 0, None
    if message[2] != HEADER or message[3] == _LIST0:
        return 4 * (message[2] == HEADER), _FIRST_DELIVERY
    if message[3] != _LIST8:
        return 0, None
    end, fields = 5 + message[4], message[5]
    if fields >= _FIELDS:
        return end, message[:end]
    count = b"\x40" * (_FIELDS - 1 - fields) + b"\x43"  # omitted fields are null; the count is 0
    return end, b"".join((_HEAD, bytes((message[4] + len(count), _FIELDS)), message[6:end], count))


def annotated(message: bytes, entries: bytes) -> bytes:
    section, start, end = b"", 0, 0
    for part in scan(message, most=MAX_SECTIONS_READ):
        if part.code in (HEADER, DELIVERY_ANNOTATIONS):
            start = end = part.end
        elif part.code == MESSAGE_ANNOTATIONS:
            section, start, end = message[part.start : part.end], part.start, part.end
    return message[:start] + annotation.merged(section, [entries]) + message[end:]


def changes(properties: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return changed application properties as annotations. Raises InvalidRequest."""
    for name, value in properties.items():
        if not isinstance(name, str) or not (value is None or isinstance(value, _SIMPLE)):
            raise InvalidRequest(f"the changed property {name!r:.80} is a name with a simple value, not {value!r:.80}")
    notes = {Symbol(CHANGED_PROPERTY + quote(name)): value for name, value in properties.items()}
    if (size := len(encode(notes))) > MAX_ANNOTATIONS:
        raise InvalidRequest(f"the changed properties have {size} bytes, at most {MAX_ANNOTATIONS} are kept: send a new message")
    return notes


def _with_changes(octets: bytes) -> bytes:
    message = decode_message(octets, most=MAX_SECTIONS_READ)
    notes: Mapping[Any, Any] = message.message_annotations or {}
    changed = {name: value for name, value in notes.items() if str(name).startswith(CHANGED_PROPERTY)}
    if not changed:  # the text is somewhere else in the message
        return octets
    properties = {unquote(name[len(CHANGED_PROPERTY) :]): value for name, value in changed.items()}
    message.application_properties = {**(message.application_properties or {}), **properties}
    message.message_annotations = {name: value for name, value in notes.items() if name not in changed}
    return message.encode()


def error_text(reason: str, description: str) -> str:
    return f"{reason.replace(chr(10), ' ')}\n{description}"


def _as_dead_letter(octets: bytes) -> bytes:
    """Add the properties of a dead letter to a message with Penstock's annotations of one."""
    message = decode_message(octets, most=MAX_SECTIONS_READ)
    notes: Mapping[Any, Any] = message.message_annotations or {}
    reason, description = _REASONS.get(notes.get(DEATH_REASON, ""), ("Rejected", ""))
    if isinstance(notes.get(DEATH_ERROR), str):
        first, is_ours, rest = notes[DEATH_ERROR].partition("\n")
        reason, description = (first, rest) if is_ours else (reason, first)
    message.application_properties = {
        **(message.application_properties or {}),
        vendor.REASON: reason,
        vendor.DESCRIPTION: description,
    }
    message.message_annotations = {**notes, vendor.DEAD_LETTER_SOURCE: str(notes.get(DEATH_QUEUE, ""))}
    return message.encode()


def with_state(message: bytes, state: int) -> bytes:
    return annotated(message, encode({vendor.STATE: Int(state)}))
