"""Arriving messages: the table against the plain way, refused messages, and the content of a batch."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.amqp.decoder import decode
from penstock.broker_core.amqp.encoder import encode
from penstock.broker_core.amqp.errors import DecodeError, FieldError, RemoteProtocolError
from penstock.broker_core.amqp.messages import MAX_SECTIONS, Message, bare, decode_message, scan
from penstock.broker_core.amqp.performatives import Header, Properties
from penstock.broker_core.amqp.types import Array, Described, Symbol, UByte, UInt, ULong
from penstock.broker_core.errors import ResourceLimit
from penstock.broker_core.messages.columns import MESSAGE_COLUMNS, any_durable
from penstock.broker_core.messages.encoding import arriving, uniform_messages
from penstock.broker_core.messages.encoding.arriving import arrived
from penstock.broker_core.messages.encoding.fields import address_of
from penstock.broker_core.messages.payloads import stored_sizes

from .amqp_values import STEADY, scalar, symbols, values

uints = st.integers(0, 2**32 - 1)
maps = st.dictionaries(st.one_of(symbols, st.integers(0, 2**64 - 1).map(ULong)), values, max_size=3)


# Strategies stand here, not in the functions that draw from them: one that is made for each draw is checked for each draw.
HEADERS = st.none() | st.builds(
    Header, durable=st.booleans(), priority=st.integers(0, 255), ttl=st.none() | uints, first_acquirer=st.booleans(),
    delivery_count=uints,
)  # fmt: skip
ANNOTATIONS = st.none() | maps
MESSAGE_ANNOTATIONS = st.one_of(st.none(), st.just({Symbol("x-opt-a"): UByte(1)}), maps)
PROPERTIES = st.none() | st.builds(Properties, to=st.text(max_size=5), subject=st.text(max_size=300))
SIMPLE = st.one_of(scalar, scalar, scalar, values)  # seldom one that is not: the message is then refused
APPLICATION_PROPERTIES = st.none() | st.dictionaries(st.text(max_size=9), SIMPLE, max_size=3)
BODIES = st.sampled_from(["data", "sequence", "value", "none"])
DATA = st.lists(st.binary(max_size=300), min_size=1, max_size=3)
SEQUENCES = st.lists(st.lists(values, max_size=3), min_size=1, max_size=2)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """A message of every kind of section; few are the same, yet headers and annotations repeat."""
    message = Message()
    message.header = draw(HEADERS)
    message.delivery_annotations = draw(ANNOTATIONS)
    message.message_annotations = draw(MESSAGE_ANNOTATIONS)
    message.properties = draw(PROPERTIES)
    message.application_properties = draw(APPLICATION_PROPERTIES)
    kind = draw(BODIES)
    if kind == "data":
        message.data = draw(DATA)
    elif kind == "sequence":
        message.sequences = draw(SEQUENCES)
    elif kind == "value":
        message.value, message.has_value = draw(values), True
    message.footer = draw(ANNOTATIONS)
    return message


def reworded(octets: bytes, forms: list[int]) -> bytes:
    """Write the same sections with their descriptors in other forms: a symbol, a ulong of eight octets."""
    from penstock.broker_core.amqp.messages import _SYMBOLS

    names = {code: name for name, code in _SYMBOLS.items()}
    out = b""
    for section, form in zip(scan(octets), forms, strict=False):
        written = encode(Symbol(names[section.code].decode())) if form == 1 else b"\x80" + section.code.to_bytes(8, "big")
        out += (b"\x00" + written if form else octets[section.start : section.value]) + octets[section.value : section.end]
    return out


MESSAGES = messages()
CHANGES = st.sampled_from(["good", "good", "reworded", "mutated", "mutated", "cut", "shuffled", "longer"])
OCTETS = st.integers(0, 255) | st.sampled_from([0x40, 0x45, 0x53, 0xA0, 0xC0, 0xC1, 0xD0, 0xD1])
MORE = st.binary(max_size=9) | MESSAGES.map(Message.encode)


@st.composite
def octets(draw: st.DrawFn) -> bytes:
    """An encoded message, as it should be, or with descriptors in rare forms, mutated, cut, or with sections out of order."""
    good = draw(MESSAGES).encode()
    sections = scan(good)
    kind = draw(CHANGES)
    if kind == "reworded":
        return reworded(good, draw(st.lists(st.integers(0, 2), min_size=len(sections), max_size=len(sections))))
    if kind == "mutated" and good:
        changed = bytearray(good)
        # Half of the changes hit the bytes of a section's type and size.
        near = [s.start + i for s in sections for i in range(5) if s.start + i < len(good)]
        for _ in range(draw(st.integers(1, 3))):
            place = draw(st.one_of(st.sampled_from(near), st.integers(0, len(good) - 1)))
            changed[place] = draw(OCTETS)
        return bytes(changed)
    if kind == "cut":
        return good[: draw(st.integers(0, len(good)))]
    if kind == "shuffled":
        order = draw(st.lists(st.sampled_from(sections), max_size=9)) if sections else []
        return b"".join(good[s.start : s.end] for s in order)
    if kind == "longer":
        return good + draw(MORE)
    return good


def plain(payload: bytes) -> dict[str, Any]:
    """Row as it has to be stored, by the library's own decoder; raises where the message has to be refused."""
    row: dict[str, Any] = dict.fromkeys(("priority", "durable", "ttl", "encodedAnnotations", "footer"))
    sections = scan(payload)
    for section in sections:
        whole = payload[section.start : section.end]
        if section.code == 0x70:
            assert decode_message(whole).header is not None
            fields, _ = decode(payload, section.value, section.end)
            row.update(zip(("durable", "priority", "ttl"), fields, strict=False))  # type: ignore[arg-type]
        elif section.code in (0x71, 0x72, 0x78):
            decode_message(whole)
            if section.code != 0x71:
                row["encodedAnnotations" if section.code == 0x72 else "footer"] = whole
    decode_message(payload)  # the sections around the bare message were checked first
    return {**row, "message": bare(payload, sections)}


def rows_of(arrivals: arriving.ArrivedMessages) -> list[dict[str, Any]]:
    empty = dict.fromkeys(("priority", "durable", "ttl", "encodedAnnotations", "footer"))
    return [{**empty, **row} for row in arrivals.batch.to_pylist()]


@given(st.lists(octets(), max_size=6))
@settings(STEADY, max_examples=400)
def test_the_fast_way_is_the_plain_way(payloads: list[bytes]) -> None:
    check(payloads)


def check(payloads: list[bytes]) -> None:
    """Compare the stored form with the result of the library's own decoder."""
    expected, refused = [], []
    for number, payload in enumerate(payloads):
        try:
            expected.append(plain(payload))
        except RemoteProtocolError as error:
            refused.append((number, type(error), error.condition))
    arrivals = arrived(payloads)
    assert [(number, type(error), error.condition) for number, error in arrivals.refused] == refused  # type: ignore[attr-defined]
    assert rows_of(arrivals) == expected
    assert arrivals.durable == any_durable(arrivals.batch) == any(row["durable"] for row in expected)
    assert arrived(payloads).batch.equals(arrivals.batch)  # the caches of headers and annotations change nothing
    assert np.array_equal(arrivals.sizes, stored_sizes(arrivals.batch))
    many = arrived(payloads * (uniform_messages.FEW + 1))  # by Arrow
    assert rows_of(many) == expected * (uniform_messages.FEW + 1)
    assert np.array_equal(many.sizes, stored_sizes(many.batch))


HEADERS_OF_DATA = st.sampled_from([b"", b"\x00\x53\x70\xc0\x04\x02\x41\x50\x04", b"\x00\x53\x71\xc1\x01\x00"])
DATA_KINDS = st.sampled_from(["good", "good", "changed", "cut", "longer"])


@st.composite
def only_data(draw: st.DrawFn) -> bytes:
    """A message of one data section, one of few like it. Half of them are changed, cut short, or continued."""
    good = draw(HEADERS_OF_DATA) + Message(data=[b"d" * draw(st.sampled_from([0, 3, 300]))]).encode()
    kind = draw(DATA_KINDS)
    place = draw(st.integers(0, min(20, len(good))))
    if kind == "changed":
        return good[:place] + bytes((draw(OCTETS),)) + good[place + 1 :]
    return good[:place] if kind == "cut" else good + draw(MORE) if kind == "longer" else good


@given(st.lists(only_data(), min_size=2, max_size=6))
@settings(STEADY, max_examples=150)
def test_data_alone_after_a_message_like_it(payloads: list[bytes]) -> None:
    check(payloads)


HEADER_FIELDS = (
    st.sampled_from(["40", "41", "42", "5600", "5601"]),
    st.sampled_from(["40", "5004", "5070"]),
    st.one_of(
        st.binary(min_size=4, max_size=4).map(lambda four: "70" + four.hex()),
        st.sampled_from(["40", "43", "5205", "5270", "7000000000", "7070707070", "70ffffffff", "7040404040"]),
    ),
)
FIELDS_AFTER = st.sampled_from([[], [], ["41"], ["40", "43"], ["40", "5202"], ["42", "7000000001"]])
HEADER_KINDS = st.sampled_from(["good", "good", "good", "good", "changed", "cut"])
HEADER_OCTETS = st.integers(0, 255) | st.sampled_from([0x40, 0x43, 0x50, 0x52, 0x70])


@st.composite
def header_sections(draw: st.DrawFn) -> bytes:
    """Few shapes and any ttl, in every form; a third has an octet changed, or is cut short."""
    fields = [*map(draw, HEADER_FIELDS), *draw(FIELDS_AFTER)]
    body = bytes((len(fields),)) + bytes.fromhex("".join(fields))
    section = bytearray(b"\x00\x53\x70\xc0" + bytes((len(body),)) + body)
    kind = draw(HEADER_KINDS)
    if kind == "changed":
        section[draw(st.integers(0, len(section) - 1))] = draw(HEADER_OCTETS)
    return bytes(section[: draw(st.integers(0, len(section)))] if kind == "cut" else section)


def check_headers(sections: list[bytes]) -> None:
    """Check that each header equals the decoder's result, independent of the headers before it."""
    arriving.headers.known.clear()
    arriving.headers.but_ttl.clear()
    for payloads in ([section + b"\x00\x53\x75\xa0\x01x" for section in sections], sections):
        rows, refused = [], []
        for number, payload in enumerate(payloads):
            try:
                rows.append(plain(payload))
            except RemoteProtocolError:
                refused.append(number)
        for _ in range(2):
            arrivals = arrived(payloads)
            assert [number for number, _ in arrivals.refused] == refused
            assert rows_of(arrivals) == rows
            assert arrivals.durable == any(row["durable"] for row in rows)
            arriving.headers.known.clear()  # so that the cache without the ttl is used if possible


@given(st.lists(header_sections(), min_size=2, max_size=12))
@settings(STEADY, max_examples=600)
def test_a_header_known_but_for_its_ttl_says_what_a_decoder_finds(sections: list[bytes]) -> None:
    check_headers(sections)


@pytest.mark.parametrize(
    "sections",
    [
        # All have one length. Cut at the place of the second header's ttl, the third equals the first cut at its own.
        ["005370c00903415005" + "7000000001", "005370c009044140" + "7000000001" + "41", "005370c00903415005" + "7011121370"],
        ["005370c0080341407000000100", "005370c00803414070000001", "005370c0080341407000"],  # cut short within its ttl
        ["005370c0080340407000000100", "005370c0080340407000000200"],  # nothing but a ttl
        ["005370c0080341407000000100", "005370c0080341405270000000"],  # another constructor, octets left over
    ],
)
def test_headers_that_only_look_alike(sections: list[str]) -> None:
    check_headers([bytes.fromhex(section) for section in sections])


def test_what_clients_send_with_any_ttl_takes_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def sent(ttl: int) -> bytes:
        return Message(header=Header(durable=True, ttl=ttl, delivery_count=1), data=[b"x"]).encode()

    arrived([sent(1000)])
    monkeypatch.setattr(arriving, "scan", None)
    ttls = list(range(256, 5000, 7))
    assert [row["ttl"] for row in rows_of(arrived([sent(ttl) for ttl in ttls]))] == ttls


def test_every_section_after_every_other_in_every_constructor() -> None:
    first = {code: bytes((0x00, 0x53, code)) + content for code, content in [
        (0x70, b"\x45"), (0x71, b"\xc1\x01\x00"), (0x72, b"\xc1\x01\x00"), (0x73, b"\x45"), (0x74, b"\xc1\x01\x00"),
        (0x75, b"\xa0\x00"), (0x76, b"\x45"), (0x77, b"\x40"), (0x78, b"\xc1\x01\x00"),
    ]}  # fmt: skip
    payloads = []
    for before in (b"", *first.values()):
        for code in (*first, 0x6F, 0x79):
            for constructor in range(256):
                width = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}.get(constructor >> 4, 3)
                after = {3: b"\x01\x00" if constructor & 0x10 == 0 else b"\x00\x00\x00\x04" + bytes(4)}.get(width, bytes(width))
                payloads.append(before + bytes((0x00, 0x53, code, constructor)) + after)
    refused = {}
    for number, payload in enumerate(payloads):
        try:
            plain(payload)
        except RemoteProtocolError as error:
            refused[number] = type(error)
    arrived(payloads)
    arrivals = arrived(payloads)
    assert {number: type(error) for number, error in arrivals.refused} == refused
    assert 100 < len(payloads) - len(refused) < 1000
    assert rows_of(arrivals) == [plain(payload) for number, payload in enumerate(payloads) if number not in refused]


def test_what_clients_send_takes_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Message(
        header=Header(durable=True, ttl=5),
        message_annotations={Symbol("x-opt-jms-dest"): UByte(0)},
        properties=Properties(message_id="ID:1", to="q", creation_time=1),
        application_properties={"a": "b" * 300},
        data=[b"x" * 1024],
    )
    shapes = [usual, Message(data=[b"x"]), Message(value="x", has_value=True), Message(header=Header(durable=True), data=[b""])]
    payloads = [shape.encode() for shape in shapes]
    arrived(payloads)  # headers and annotations are read the plain way once
    monkeypatch.setattr(arriving, "scan", None)
    assert arrived(payloads).batch.num_rows == len(payloads)


@pytest.mark.parametrize("head", ["", "00537045", "005370c003024140", "00537345"])
@pytest.mark.parametrize("section", ["005375a000", "00537645"])
def test_the_fast_way_counts_sections_as_the_plain_way_does(head: str, section: str) -> None:
    before, octets = bytes.fromhex(head), bytes.fromhex(section)
    most = MAX_SECTIONS - bool(head)
    arrivals = arrived([before + octets * count for count in (most, most + 1, most)])
    [(number, error)] = arrivals.refused
    assert number == 1
    assert isinstance(error, DecodeError)
    assert "sections" in str(error)
    assert arrivals.rows == 2
    with pytest.raises(DecodeError, match="sections"):
        address_of(octets * (MAX_SECTIONS + 1))


def test_the_batch_has_stored_columns_in_mask_order_and_none_that_is_null() -> None:
    every = Message(header=Header(priority=1, durable=True, ttl=7), message_annotations={}, data=[b"a"], footer={})
    batch = arrived([every.encode(), Message(data=[b"b"]).encode()]).batch
    stored = [name for name in MESSAGE_COLUMNS if name in batch.schema.names]
    assert batch.schema.names == stored == ["priority", "durable", "message", "ttl", "encodedAnnotations", "footer"]
    assert [field.type for field in batch.schema] == [MESSAGE_COLUMNS[name] for name in stored]
    assert arrived([Message(data=[b"b"]).encode()]).batch.schema.names == ["message"]


def test_a_message_without_a_body_or_without_anything_is_let_through() -> None:
    arrivals = arrived([b"", Message(header=Header(durable=True)).encode(), Message(properties=Properties(to="x")).encode()])
    assert not arrivals.refused
    assert [len(row["message"]) for row in rows_of(arrivals)] == [0, 0, len(Message(properties=Properties(to="x")).encode())]
    assert arrivals.durable


@pytest.mark.parametrize(
    "fields",
    [
        "005370c00302" + "4140" + "00",  # octets after the list
        "005370c0020101",  # no such format code
        "005370c0030150" + "04",  # durable that is a number
        "005370c0040240" + "5204",  # priority that is a uint
        "005370c005034040" + "5004",  # ttl that is a ubyte
        "005370c008064040404040" + "40",  # one field too many
        "005370c000",  # a list of no octets, not even a count
    ],
)
def test_a_bad_header_is_refused_and_nothing_else(fields: str) -> None:
    good = Message(header=Header(durable=True), data=[b"x"]).encode()
    arrivals = arrived([good, bytes.fromhex(fields) + Message(data=[b"y"]).encode(), good])
    assert [number for number, _ in arrivals.refused] == [1]
    assert isinstance(arrivals.refused[0][1], (DecodeError, FieldError))
    assert rows_of(arrivals) == rows_of(arrived([good, good]))


@pytest.mark.parametrize("code", [0x72, 0x78])
@pytest.mark.parametrize(
    "content",
    [
        encode({"text": 1}),
        encode({1: 1}),
        b"\xc1\x02\x01\x40",
        b"\xc1\x07\x04" + b"\xa3\x01a\x40" * 2,
        b"\xc1\x05\x02\xa3\x01\xff\x40",
        b"\xc1\x00",
    ],
)
def test_annotations_that_could_not_be_merged_or_shown_are_refused(code: int, content: bytes) -> None:
    section, data = bytes((0x00, 0x53, code)) + content, Message(data=[b"x"]).encode()
    arrivals = arrived([section + data if code == 0x72 else data + section])
    assert len(arrivals.refused) == 1
    assert arrivals.batch.num_rows == 0


def test_delivery_annotations_are_for_one_hop() -> None:
    message = Message(delivery_annotations={Symbol("x-hop"): 1}, message_annotations={Symbol("a"): 1}, data=[b"x"])
    (row,) = rows_of(arrived([message.encode()]))
    assert b"x-hop" not in row["encodedAnnotations"] + row["message"]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving.headers, "KEPT_HEADERS", 8)
    monkeypatch.setattr(arriving.annotation, "KEPT_SECTIONS", 8)
    sent = [Message(header=Header(ttl=i), message_annotations={Symbol("n"): i}, data=[b""]).encode() for i in range(50)]
    arrivals = arrived(sent)
    assert [row["ttl"] for row in rows_of(arrivals)] == list(range(50))
    assert len(arriving.headers.known) <= 8
    assert len(arriving.annotation.known) <= 8
    arrived([Message(message_annotations={Symbol("long"): "x" * 5000}).encode()])
    assert max(map(len, arriving.annotation.known)) <= arriving.annotation.KEPT_OCTETS


def test_more_than_a_batch_can_hold_is_refused_before_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "MAX_BATCH_BYTES", 100)
    with pytest.raises(ResourceLimit):
        arrived([b"\x00" * 60] * 2)


# --- The address, for the anonymous relay


@given(octets())
@settings(STEADY, max_examples=300)
def test_the_address_is_what_a_decoder_finds(payload: bytes) -> None:
    try:
        message = decode_message(payload)
    except RemoteProtocolError:
        with contextlib.suppress(DecodeError):
            address_of(payload)  # it looks at no more than it needs
        return
    assert address_of(payload) == (message.properties.to if message.properties else None)


@pytest.mark.parametrize("before", [None, Array("list", ()), Described(ULong(1), [[UInt(1)]])])
def test_the_address_stands_after_whatever_came_before(before: Any) -> None:
    section = b"\x00\x53\x73" + encode([before, b"user", "there"])
    assert address_of(section) == "there"


@pytest.mark.parametrize(
    "content", [encode([None, None, 5]), encode([None, None, b"q"]), b"\xc0\x04\x03\x40\x40\xa1", b"\xc0\x00"]
)
def test_properties_that_are_malformed_have_no_address(content: bytes) -> None:
    with pytest.raises(DecodeError):
        address_of(b"\x00\x53\x73" + content)
