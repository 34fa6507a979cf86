"""Differential: we decode python-qpid-proton's encodings and the reverse, for generated values of every type and for messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.broker_core.amqp import types as t
from penstock.broker_core.amqp.encoder import encode
from penstock.broker_core.amqp.messages import DATA, PROPERTIES, Message, bare, decode_message, scan
from penstock.broker_core.amqp.performatives import Header, Properties

from .values import STEADY, decode_all, same, scalars, values

proton = pytest.importorskip("proton")

KINDS = {
    t.UByte: proton.ubyte,
    t.UShort: proton.ushort,
    t.UInt: proton.uint,
    t.ULong: proton.ulong,
    t.Byte: proton.byte,
    t.Short: proton.short,
    t.Int: proton.int32,
    t.Timestamp: proton.timestamp,
    t.Float: proton.float32,
    t.Symbol: proton.symbol,
    t.Char: proton.char,
}
DATA_TYPES = {
    "null": proton.Data.NULL,
    "boolean": proton.Data.BOOL,
    "ubyte": proton.Data.UBYTE,
    "ushort": proton.Data.USHORT,
    "uint": proton.Data.UINT,
    "ulong": proton.Data.ULONG,
    "byte": proton.Data.BYTE,
    "short": proton.Data.SHORT,
    "int": proton.Data.INT,
    "long": proton.Data.LONG,
    "float": proton.Data.FLOAT,
    "double": proton.Data.DOUBLE,
    "decimal32": proton.Data.DECIMAL32,
    "decimal64": proton.Data.DECIMAL64,
    "decimal128": proton.Data.DECIMAL128,
    "char": proton.Data.CHAR,
    "timestamp": proton.Data.TIMESTAMP,
    "uuid": proton.Data.UUID,
    "binary": proton.Data.BINARY,
    "string": proton.Data.STRING,
    "symbol": proton.Data.SYMBOL,
    "list": proton.Data.LIST,
    "array": proton.Data.ARRAY,
}


class NotSayable(Exception):
    """A value that proton's Python binding does not accept."""


def to_proton(value: Any) -> Any:
    if type(value) in KINDS:
        return KINDS[type(value)](value)
    if isinstance(value, t.Decimal32):
        return proton.decimal32(int.from_bytes(value, "big"))
    if isinstance(value, t.Decimal64):
        return proton.decimal64(int.from_bytes(value, "big"))
    if isinstance(value, t.Decimal128):
        return proton.decimal128(bytes(value))
    if isinstance(value, t.Described):
        return proton.Described(to_proton(value.descriptor), to_proton(value.value))
    if isinstance(value, t.Array):
        if value.kind in ("list", "array"):
            raise NotSayable  # its binding does not support compound elements of several shapes
        descriptor = to_proton(value.descriptors[0]) if value.descriptors else proton.UNDESCRIBED
        return proton.Array(descriptor, DATA_TYPES[value.kind], *map(to_proton, value.items))
    if isinstance(value, t.Pairs):
        raise NotSayable
    if isinstance(value, dict):
        converted = {to_proton(key): to_proton(item) for key, item in value.items()}
        if len(converted) != len(value):
            raise NotSayable
        return converted
    if isinstance(value, list):
        return [to_proton(item) for item in value]
    return value


def proton_encode(value: Any) -> bytes:
    data = proton.Data()
    data.put_object(to_proton(value))
    return bytes(data.encode())


def proton_recode(octets: bytes) -> bytes:
    """Recode our octets by proton, in its own encoding."""
    data = proton.Data()
    assert data.decode(octets) == len(octets)
    return bytes(data.encode())


@pytest.mark.parametrize("kind", sorted(scalars))
def test_every_scalar_type(kind: str) -> None:
    @given(scalars[kind])
    @settings(STEADY, max_examples=40)
    def check(value: Any) -> None:
        assert same(decode_all(proton_encode(value)), value)
        assert same(decode_all(proton_recode(encode(value))), value)

    check()


@pytest.mark.parametrize("kind", sorted(scalars))
def test_arrays_of_every_scalar_type(kind: str) -> None:
    @given(st.lists(scalars[kind], min_size=1, max_size=5))
    @settings(STEADY, max_examples=20)
    def check(items: list[Any]) -> None:
        value = t.Array(kind, tuple(items))
        assert same(decode_all(proton_encode(value)), value)
        assert same(decode_all(proton_recode(encode(value))), value)

    check()


def described_twice(value: Any) -> bool:
    """A described value whose value is described again: proton 0.40 decodes it and writes it back wrong (one octet too many)."""
    if isinstance(value, t.Described):
        return isinstance(value.value, t.Described) or described_twice(value.value)
    if isinstance(value, t.Array):
        return any(map(described_twice, value.items))
    if isinstance(value, dict):
        return any(map(described_twice, value.values()))
    if isinstance(value, (list, tuple)):  # a list, or the pairs of a map
        return any(map(described_twice, value))
    return False


@given(values)
@settings(STEADY, max_examples=300)
def test_nested_values(value: Any) -> None:
    assume(not described_twice(value))
    octets = encode(value)
    assert same(decode_all(proton_recode(octets)), value)
    try:
        theirs = proton_encode(value)
    except NotSayable:
        return
    assert same(decode_all(theirs), value)


text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)  # proton's are C strings
texts = st.one_of(st.none(), text)
ids = st.one_of(st.none(), st.text(max_size=20), st.integers(0, 2**64 - 1).map(t.ULong), st.uuids(), st.binary(max_size=20))
property_values = st.one_of(*(scalars[kind] for kind in sorted(scalars) if kind not in ("char",)))


@st.composite
def messages(draw: st.DrawFn) -> Message:
    message = Message()
    if draw(st.booleans()):
        priority, ttl = draw(st.integers(0, 255)), draw(st.integers(1, 2**32 - 1))
        message.header = Header(durable=draw(st.booleans()), priority=priority, ttl=ttl)
    if draw(st.booleans()):
        message.properties = Properties(
            message_id=draw(ids), user_id=draw(st.one_of(st.none(), st.binary(max_size=9))), to=draw(texts), subject=draw(texts),
            reply_to=draw(texts), correlation_id=draw(ids), group_id=draw(texts), reply_to_group_id=draw(texts),
            creation_time=draw(st.one_of(st.none(), st.integers(1, 2**62))),
        )  # fmt: skip
    if draw(st.booleans()):
        message.application_properties = draw(st.dictionaries(text, property_values, max_size=4))
    if draw(st.booleans()):
        message.message_annotations = {t.Symbol("x-opt-a"): draw(values)}
    kind = draw(st.sampled_from(["data", "sequence", "value"]))
    if kind == "data":
        message.data = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=3))
    elif kind == "sequence":
        message.sequences = draw(st.lists(st.lists(values, max_size=3), min_size=1, max_size=2))
    else:
        message.value, message.has_value = draw(values), True
    return message


@given(messages())
@settings(STEADY, max_examples=150)
def test_messages_round_trip_and_their_sections_add_up(message: Message) -> None:
    octets = message.encode()
    sections = scan(octets)
    assert [s.start for s in sections] == [0, *[s.end for s in sections[:-1]]]
    assert sections[-1].end == len(octets)
    assert decode_message(octets).encode() == octets
    whole = b"".join(octets[s.start : s.end] for s in sections if PROPERTIES <= s.code <= 0x77)
    assert bare(octets) == whole


@given(messages())
@settings(STEADY, max_examples=100)
def test_proton_reads_our_messages(message: Message) -> None:
    if len(message.data) > 1 or message.sequences:
        return  # its Message holds one body section
    message.value, message.message_annotations = None, None  # its binding cannot make dicts of all maps
    theirs = proton.Message()
    theirs.decode(message.encode())
    properties = message.properties or Properties()
    assert theirs.subject == properties.subject
    assert (theirs.address or None) == (properties.to or None)
    assert theirs.durable == (message.header or Header()).durable
    assert theirs.priority == (message.header or Header()).priority
    if message.data:
        assert bytes(theirs.body) == message.data[0]


@given(text, text, st.integers(0, 9), st.binary(max_size=50), st.booleans())
@settings(STEADY, max_examples=100)
def test_we_read_protons_messages(subject: str, to: str, priority: int, body: bytes, durable: bool) -> None:
    theirs = proton.Message(
        body=body, subject=subject, address=to, priority=priority, durable=durable, id="m-1", correlation_id=proton.ulong(7),
        content_type="text/plain", properties={"k": "v", "n": proton.int32(-5), "f": 1.5, "b": True},
        annotations={proton.symbol("x-opt-to"): "y"}, inferred=True, group_id="g", group_sequence=2**32 - 1, expiry_time=1.5,
    )  # fmt: skip
    ours = decode_message(theirs.encode())
    assert ours.properties is not None
    assert (ours.properties.subject, ours.properties.to, ours.properties.message_id) == (subject, to, "m-1")
    assert same(ours.properties.correlation_id, t.ULong(7))
    assert (ours.properties.group_sequence, ours.properties.absolute_expiry_time) == (2**32 - 1, 1500)
    assert ours.properties.content_type == "text/plain"
    assert ours.application_properties == {"k": "v", "n": -5, "f": 1.5, "b": True}
    assert type(ours.application_properties["n"]) is t.Int  # type: ignore[index]
    assert ours.message_annotations == {"x-opt-to": "y"}
    assert ours.data == [body]
    assert (ours.header or Header()).priority == priority
    assert (ours.header or Header()).durable == durable
    sections = scan(theirs.encode())
    assert [s.code for s in sections][-1] == DATA
