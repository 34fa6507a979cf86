"""Part 3, sections: their order and number, and refusals."""

from __future__ import annotations

import pytest

from penstock.broker_core.amqp.encoder import encode
from penstock.broker_core.amqp.errors import DecodeError, EncodeError, FieldError
from penstock.broker_core.amqp.messages import MAX_SECTIONS, MAX_SECTIONS_READ, Message, bare, decode_message, scan
from penstock.broker_core.amqp.performatives import Header, Properties
from penstock.broker_core.amqp.types import Described, Symbol, UInt, ULong

HEADER = "00537045"
ANNOTATIONS = "005372c10100"
PROPERTIES = "00537345"
APPLICATION = "005374c10100"
DATA = "005375a00161"
SEQUENCE = "005376c0020140"
VALUE = "00537740"
FOOTER = "005378c10100"


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("", []),
        (DATA, [0x75]),
        (DATA + DATA, [0x75, 0x75]),
        (SEQUENCE + SEQUENCE + FOOTER, [0x76, 0x76, 0x78]),
        (HEADER + "005371c10100" + ANNOTATIONS + PROPERTIES + APPLICATION + VALUE + FOOTER, [*range(0x70, 0x75), 0x77, 0x78]),
        ("00800000000000000075a000", [0x75]),
        ("00a310" + b"amqp:header:list".hex() + "45", [0x70]),
        (HEADER, [0x70]),
    ],
)
def test_sections_in_order(text: str, codes: list[int]) -> None:
    octets = bytes.fromhex(text)
    assert [section.code for section in scan(octets)] == codes
    decode_message(octets)


@pytest.mark.parametrize(
    "text",
    [
        DATA + HEADER,  # order
        HEADER + HEADER,  # twice
        VALUE + VALUE,  # one value only
        DATA + VALUE,  # two kinds of body
        DATA + SEQUENCE,
        SEQUENCE + VALUE,
        "00537940",  # no such section
        "00531040",  # an open is not a section
        "40",  # not described
        "005375a1016100",  # trailing octet
        "005375a10161",  # data that is a string
        "005374c00100",  # application properties that are a list
        "00537",
        "0053",
        "00",
        "005375b0ffffffff",
        "00a3ff",
    ],
)
def test_what_is_no_message(text: str) -> None:
    octets = bytes.fromhex(text + "0" * (len(text) % 2))
    with pytest.raises(DecodeError):
        scan(octets)
    with pytest.raises(DecodeError):
        decode_message(octets)


@pytest.mark.parametrize("section", [DATA, SEQUENCE])
def test_the_sections_of_a_message_are_bounded(section: str) -> None:
    """An empty section has five octets on the wire, and costs an object of a few hundred."""
    octets = bytes.fromhex(section)
    assert len(scan(octets * MAX_SECTIONS)) == MAX_SECTIONS
    message = octets * (MAX_SECTIONS + 1)
    with pytest.raises(DecodeError, match=f"more than {MAX_SECTIONS} sections") as caught:
        scan(message)
    assert caught.value.offset == len(octets) * MAX_SECTIONS
    with pytest.raises(DecodeError, match="sections"):
        decode_message(message)


def test_messages_of_before_the_bound_are_read() -> None:
    stored = bytes.fromhex(PROPERTIES + DATA * (MAX_SECTIONS + 1))
    assert bare(stored) == stored
    assert len(decode_message(stored, most=MAX_SECTIONS_READ).data) == MAX_SECTIONS + 1


@pytest.mark.parametrize(
    "message",
    [
        Message(application_properties={"k": [1]}),
        Message(application_properties={Symbol("k"): 1}),
        Message(message_annotations={UInt(1): 1}),
        Message(footer={1: 1}),
    ],
)
def test_maps_whose_keys_or_values_are_not_allowed(message: Message) -> None:
    with pytest.raises(FieldError):
        decode_message(message.encode())


def test_two_kinds_of_body_have_no_encoding() -> None:
    with pytest.raises(EncodeError):
        Message(data=[b""], has_value=True).encode()


def test_the_bare_message_is_what_came_however_it_was_encoded() -> None:
    odd = bytes.fromhex("008000000000000000" + "73" + "d00000000400000000") + bytes.fromhex("005375b00000000161")
    octets = Header(durable=True).encode() + odd + bytes.fromhex(FOOTER)
    assert bare(octets) == odd
    assert bare(Header().encode()) == b""


def test_defaults_of_a_header() -> None:
    header = decode_message(bytes.fromhex(HEADER)).header
    assert header == Header(durable=False, priority=4, ttl=None, first_acquirer=False, delivery_count=0)


@pytest.mark.parametrize(
    "bad",
    [
        Properties(subject="x").encode()[:3] + encode([UInt(1)]),
        encode(Described(ULong(0x73), [None] * 14)),
    ],
)
def test_a_list_section_with_wrong_fields(bad: bytes) -> None:
    with pytest.raises(FieldError):
        decode_message(bad)


def test_a_value_is_the_body_without_a_flag_and_null_needs_it() -> None:
    for value in ("x", 0, "", False):
        decoded = decode_message(Message(value=value).encode())
        assert (decoded.value, decoded.has_value) == (value, True)
    assert decode_message(Message(value=None, has_value=True).encode()).has_value
    assert not decode_message(Message(value=None).encode()).has_value
    with pytest.raises(EncodeError, match="not two of them"):
        Message(value="x", data=[b"x"]).encode()
