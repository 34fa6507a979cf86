"""The message format (3.2). It requires a body, but several clients send none, so a body is optional here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .composites import from_values
from .decoder import KINDS, LIMITS, MAX_HASHED, DecoderLimits, decode
from .encoder import encode, encode_into
from .errors import DecodeError, EncodeError, FieldError
from .performatives import Header, Properties
from .types import Array, Described, Pairs, Symbol, ULong, Value

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = 0x70, 0x71, 0x72, 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78

_SYMBOLS = {
    b"amqp:header:list": HEADER,
    b"amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    b"amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    b"amqp:properties:list": PROPERTIES,
    b"amqp:application-properties:map": APPLICATION_PROPERTIES,
    b"amqp:data:binary": DATA,
    b"amqp:amqp-sequence:list": SEQUENCE,
    b"amqp:amqp-value:*": VALUE,
    b"amqp:footer:map": FOOTER,
}
#: An amqp-value may have any type.
SECTION_KINDS = {HEADER: "list", PROPERTIES: "list", DATA: "binary", SEQUENCE: "list"}
SECTION_KINDS |= dict.fromkeys((DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES, FOOTER), "map")


#: Sections of an incoming message. An empty one has five octets, and costs a step whenever the message is measured.
MAX_SECTIONS = 4096
#: Sections of a message from another broker, or from before `MAX_SECTIONS`.
MAX_SECTIONS_READ = LIMITS.items


class Section(NamedTuple):
    """Positions: `start` of the descriptor, `value` of the value's constructor, `end` after the last octet."""

    code: int
    start: int
    value: int
    end: int


def scan(message: bytes, *, limits: DecoderLimits = LIMITS, most: int = MAX_SECTIONS) -> list[Section]:
    """Return the sections in order, without decoding values. Raises DecodeError."""
    if type(message) is not bytes:
        message = bytes(message)
    sections: list[Section] = []
    position, end, last = 0, len(message), 0
    while position < end:
        if len(sections) == most:
            raise DecodeError(f"more than {most} sections: send the body in fewer and larger ones", position)
        code, value = _descriptor(message, position, end)
        kind = KINDS.get(message[value]) if value < end else None
        if code in SECTION_KINDS and kind != SECTION_KINDS[code]:
            raise DecodeError(f"section 0x{code:02x} holds no {SECTION_KINDS[code]}", value)
        after = skip(message, value, end, limits.depth)
        if code < last or (code == last and code not in (DATA, SEQUENCE)):
            raise DecodeError(f"section 0x{code:02x} after section 0x{last:02x}", position)
        if code in (SEQUENCE, VALUE) and last in (DATA, SEQUENCE) and code != last:
            raise DecodeError("a body of more than one kind", position)
        sections.append(Section(code, position, value, after))
        position, last = after, code
    return sections


def bare(message: bytes, sections: list[Section] | None = None) -> bytes:
    """Return the immutable part, byte for byte: from the properties to the end of the body."""
    if sections is None:
        sections = scan(message, most=MAX_SECTIONS_READ)
    inside = [section for section in sections if PROPERTIES <= section.code <= VALUE]
    return message[inside[0].start : inside[-1].end] if inside else b""


def _descriptor(message: bytes, position: int, end: int) -> tuple[int, int]:
    if message[position] != 0:
        raise DecodeError("a section begins with its descriptor", position)
    if position + 3 <= end and message[position + 1] == 0x53:  # the usual encoding
        code, after = message[position + 2], position + 3
    else:
        descriptor, after = decode(message, position + 1, end, DecoderLimits(depth=1, items=1))
        if type(descriptor) is Symbol:
            code = _SYMBOLS.get(descriptor.encode(), 0)
        else:
            code = int(descriptor) if type(descriptor) is ULong else 0
    if not HEADER <= code <= FOOTER:
        raise DecodeError(f"no message section is described by {message[position + 1 : after][:32].hex()}", position)
    return code, after


def skip(buffer: bytes, position: int, end: int, depth: int = LIMITS.depth) -> int:
    while True:
        if position >= end:
            raise DecodeError("a value is missing", position)
        code = buffer[position]
        if code:
            break
        if depth <= 0:
            raise DecodeError("nested too deep", position)
        depth -= 1
        position = skip(buffer, position + 1, end, depth)
    if code not in KINDS:
        raise DecodeError(f"format code 0x{code:02x} does not exist", position)
    position += 1
    width = code >> 4
    if width < 0xA:
        after = position + _FIXED[width]
    else:
        size = 1 if width in (0xA, 0xC, 0xE) else 4
        after = position + size + int.from_bytes(buffer[position : position + size], "big")
        if position + size > end:
            raise DecodeError("cut short", position)
    if after > end:
        raise DecodeError(f"{after - position} octets where {end - position} are left", position)
    return after


_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}

Annotations = Mapping[Any, Value]


@dataclass(slots=True, kw_only=True)
class Message:
    """A whole message, whose body is at most one of `data`, `sequences` and `value`.

    Attributes:
        header: Durability, priority, time to live.
        delivery_annotations: For the next hop alone.
        message_annotations: For brokers on the way.
        properties: Subject, ids, addresses and so on.
        application_properties: Names and simple values of the application.
        data: One or more binaries.
        sequences: One or more lists.
        value: Any value, which may be null.
        has_value: Whether `value` is the body even if it is None (null).
        footer: Annotations behind the body.

    Example:
        Message(header=Header(durable=True), properties=Properties(subject="new"), data=[b"octets"])
    """

    header: Header | None = None
    delivery_annotations: Annotations | None = None
    message_annotations: Annotations | None = None
    properties: Properties | None = None
    application_properties: Annotations | None = None
    data: list[bytes] = field(default_factory=list)
    sequences: list[list[Value]] = field(default_factory=list)
    value: Value = None
    has_value: bool = False
    footer: Annotations | None = None

    def encode(self) -> bytes:
        """Return the octets of all sections, in order.

        Raises:
            EncodeError: Two kinds of body, or a value that AMQP cannot encode.
        """
        has_value = self.has_value or self.value is not None
        if bool(self.data) + bool(self.sequences) + has_value > 1:
            raise EncodeError("a body is data, sequences or one value, not two of them")
        out = bytearray()
        if self.header is not None:
            out += self.header.encode()
        _put_map(out, DELIVERY_ANNOTATIONS, self.delivery_annotations)
        _put_map(out, MESSAGE_ANNOTATIONS, self.message_annotations)
        if self.properties is not None:
            out += self.properties.encode()
        _put_map(out, APPLICATION_PROPERTIES, self.application_properties)
        for code, parts in ((DATA, self.data), (SEQUENCE, self.sequences), (VALUE, [self.value] * has_value)):
            for part in parts:
                out += bytes((0x00, 0x53, code)) + encode(part)
        _put_map(out, FOOTER, self.footer)
        return bytes(out)


def decode_message(message: bytes, *, limits: DecoderLimits = LIMITS, most: int = MAX_SECTIONS) -> Message:
    """Decode all sections. Raises DecodeError, or FieldError for a value that its section does not allow.

    `limits` limits the values of the bare message, and again of the other sections.
    """
    result = Message()
    inside, around = [limits.items], [limits.items]
    for section in scan(message, limits=limits, most=most):
        code = section.code
        value, _ = decode(message, section.value, section.end, limits, inside if PROPERTIES <= code <= VALUE else around)
        if code in _ATTRIBUTE:
            _check_keys(code, value)
            setattr(result, _ATTRIBUTE[code], value)
        elif code == HEADER:
            result.header = from_values(Header, value)
        elif code == PROPERTIES:
            result.properties = from_values(Properties, value)
        elif code == DATA:
            result.data.append(value)
        elif code == SEQUENCE:
            result.sequences.append(value)
        else:
            result.value, result.has_value = value, True
    return result


_ATTRIBUTE = {
    DELIVERY_ANNOTATIONS: "delivery_annotations",
    MESSAGE_ANNOTATIONS: "message_annotations",
    APPLICATION_PROPERTIES: "application_properties",
    FOOTER: "footer",
}


def _check_keys(code: int, mapping: Value) -> None:
    """Application properties map strings to simple values (3.2.5). Annotations have symbols or ulongs as keys (3.2.10)."""
    if isinstance(mapping, Pairs):
        raise FieldError(f"{_ATTRIBUTE[code]} with keys of several types, or with more than {MAX_HASHED} that are not texts")
    if code == APPLICATION_PROPERTIES:
        if any(type(key) is not str for key in mapping):
            wrong = next(key for key in mapping if type(key) is not str)
            raise FieldError(f"application properties with a key that is not a string: {wrong!r:.100}")
        for key, value in mapping.items():
            if isinstance(value, (list, dict, Pairs, Array, Described)):
                kind = type(value).__name__.lower()
                raise FieldError(f"application property {key!r:.100} with a value that is not simple, but a {kind}")
    elif any(type(key) not in (Symbol, ULong) for key in mapping):
        raise FieldError(f"{_ATTRIBUTE[code]} with a key that is neither symbol nor ulong")


def _put_map(out: bytearray, code: int, mapping: Annotations | None) -> None:
    if mapping is None:
        return
    out += bytes((0x00, 0x53, code))
    if code == APPLICATION_PROPERTIES:
        encode_into(out, dict(mapping))
    else:
        encode_into(out, {Symbol(key) if type(key) is str else key: value for key, value in mapping.items()})
