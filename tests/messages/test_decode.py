"""Encoded messages become the columns that the reference decoder defines, one message at a time."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock.broker_core.amqp import Message, RemoteProtocolError, decode_message
from penstock.broker_core.amqp.encoder import encode
from penstock.broker_core.amqp.messages import scan
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.amqp.types import Byte, Described, Float, Int, Symbol, Timestamp, UInt, ULong
from penstock.broker_core.messages.columns import BARE_COLUMNS
from penstock.broker_core.messages.encoding import decoding, reference

from . import messages as m
from .amqp_values import STEADY

# Each example is a batch of messages with a dozen values each.
FEW = settings(STEADY, max_examples=40, phases=set(Phase) - {Phase.shrink})


def decoded(sent: Message, *names: str) -> Any:
    columns = m.columns(m.payload([sent.encode()]), names)
    values = [array[0].as_py() for array in columns.values()]
    return values[0] if len(values) == 1 else values


@FEW
@given(st.lists(st.tuples(m.bare, st.one_of(st.none(), m.annotations)), min_size=1, max_size=6))
def test_generated_messages_of_every_type_and_shape_decode_as_the_plain_way_does(rows: list[tuple[bytes, bytes | None]]) -> None:
    m.check(m.payload([bare for bare, _ in rows], [section for _, section in rows]))


@FEW
@given(st.lists(m.tidy, min_size=1, max_size=6), st.lists(m.bare, max_size=2))
def test_what_one_producer_sends_is_never_odd_and_a_stranger_among_it_changes_nothing(
    tidy: list[bytes], strangers: list[bytes]
) -> None:
    odd, refused = m.check(m.payload(tidy))
    assert refused == 0
    # Only NaN, infinity, or a year of more than four digits.
    assert odd == sum(b"\x82" in octets or b"\x83" in octets for octets in tidy if m.check(m.payload([octets]))[0])
    m.check(m.payload([*tidy, *strangers, *tidy]))


@FEW
@given(st.lists(m.bare, min_size=1, max_size=8), st.sets(st.sampled_from(m.ALL_COLUMNS), min_size=1))
def test_any_choice_of_columns_gives_the_same_as_all_of_them(rows: list[bytes], names: set[str]) -> None:
    m.check(m.payload(rows), tuple(sorted(names)))


@FEW
@given(st.lists(m.bare, min_size=2, max_size=8), st.integers(0, 3), st.integers(1, 4))
def test_a_slice_of_a_batch_and_small_chunks_give_its_rows(rows: list[bytes], first: int, chunk: int) -> None:
    rows = [row for row in rows if m.expected(m.payload([row]), 0, m.ALL_COLUMNS)]
    whole = m.payload([b"left out"] * first + rows)
    expected = m.columns(m.payload(rows), m.ALL_COLUMNS)
    original, decoding.CHUNK_ROWS = decoding.CHUNK_ROWS, chunk
    try:
        columns = m.columns(whole.slice(first), m.ALL_COLUMNS)
    finally:
        decoding.CHUNK_ROWS = original
    for name in m.ALL_COLUMNS:
        assert m.listed(name, columns[name]) == m.listed(name, expected[name])


@FEW
@given(m.bare)
def test_the_plain_way_refuses_exactly_what_the_library_refuses(bare: bytes) -> None:
    for octets in (bare, bare[:-1], bare + b"\0", b"\0Sp\x45" + bare):
        try:
            decode_message(octets)
            accepted = all(0x73 <= section.code <= 0x77 for section in scan(octets))
        except RemoteProtocolError:
            accepted = False
        try:
            reference.row(octets, None, m.ALL_COLUMNS)
        except reference.REFUSALS:
            assert not accepted
        else:
            assert accepted


def test_each_column_holds_its_part_of_the_message() -> None:
    sent = Message(
        properties=Properties(
            message_id="m-1",
            user_id="Zoë".encode(),
            to="orders",
            subject="created",
            reply_to="answers",
            correlation_id=ULong(7),
            content_type=Symbol("text/plain"),
            content_encoding=Symbol("gzip"),
            absolute_expiry_time=2,
            creation_time=1,
            group_id="g",
            group_sequence=4_000_000_000,
        ),
        application_properties={"a": "x", "b": None},
        data=[b"one"],
    )
    batch = m.payload([sent.encode()], [b"\0Sr" + encode({Symbol("x-opt-a"): UInt(1)})])
    values = {name: m.listed(name, array)[0] for name, array in m.columns(batch, m.ALL_COLUMNS).items()}
    assert values == {
        "messageId": "m-1",
        "userId": "Zoë",
        "to": "orders",
        "subject": "created",
        "replyTo": "answers",
        "correlationId": "7",
        "contentType": "text/plain",
        "contentEncoding": "gzip",
        "groupId": "g",
        "absoluteExpiryTime": 2000,
        "creationTime": 1000,
        "groupSequence": 4_000_000_000,
        "body": b"one",
        "bodyType": "data",
        "envelope": sent.encode()[: -len(b"one")],
        "properties": [("a", "x"), ("b", None)],
        "annotations": [("x-opt-a", "1")],
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        (True, "true"),
        (42, "42"),
        (Byte(-1), "-1"),
        (ULong(2**64 - 1), "18446744073709551615"),
        (1.5, "1.5"),
        (Float(0.1), "0.1"),
        (float("-inf"), "-Infinity"),
        (Timestamp(1_769_903_999_999), "2026-01-31T23:59:59.999Z"),
        (Timestamp(-(2**63)), "-292275055-05-16T16:47:04.192Z"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"\x00\xff", "AP8="),
        (Symbol("s"), "s"),
        (None, None),
    ],
)
def test_a_property_that_is_no_string_appears_as_its_text(value: Any, text: str | None) -> None:
    assert decoded(Message(application_properties={"k": value}), "properties") == [("k", text)]


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (Message(data=[b"a", b"", b"b"]), b"ab"),
        (Message(value=b"\xff", has_value=True), b"\xff"),
        (Message(value="é", has_value=True), "é".encode()),
        (Message(value=None, has_value=True), b"null"),
        (Message(value=Int(-3), has_value=True), b"-3"),
        (Message(value=Timestamp(0), has_value=True), b'"1970-01-01T00:00:00.000Z"'),
        (Message(value={"a": [1, None, True], "b": b"\0"}, has_value=True), b'{"a":[1,null,true],"b":"AA=="}'),
        (Message(value={UInt(1): "x", "1": "y"}, has_value=True), b'[[1,"x"],["1","y"]]'),
        (Message(value=Described(Symbol("d"), [1.5]), has_value=True), b'{"descriptor":"d","value":[1.5]}'),
        (Message(sequences=[["é", 1], [2]]), '["é",1,2]'.encode()),
        (Message(), None),
    ],
)
def test_a_body_is_its_octets_or_json(sent: Message, body: bytes | None) -> None:
    assert decoded(sent, "body") == body


def test_ids_are_texts_and_a_user_id_that_is_no_text_is_base64() -> None:
    for identity, text in ((b"\x01\x02", "AQI="), (ULong(0), "0"), (uuid.UUID(int=255), str(uuid.UUID(int=255)))):
        sent = Message(properties=Properties(message_id=identity, correlation_id=identity, user_id=b"\xff\xfe"))
        assert decoded(sent, "messageId", "correlationId", "userId") == [text, text, "//4="]


def test_a_time_that_no_column_can_hold_is_null() -> None:
    assert decoded(Message(properties=Properties(absolute_expiry_time=2**63 - 1)), "absoluteExpiryTime") is None


def test_what_ordinary_clients_send_stays_with_the_vectors() -> None:
    """Every scalar that a client library makes of its language's own types, and bodies of every kind that JMS has but maps."""
    kinds: list[Any] = [
        "x",
        True,
        7,
        Int(300),
        ULong(9),
        2.5,
        Float(1.5),
        Timestamp(0),
        uuid.UUID(int=1),
        b"x",
        None,
        Symbol("s"),
    ]
    bodies = [Message(data=[b"x"]), Message(value="x", has_value=True), Message(value=None, has_value=True), Message()]
    rows = []
    for body in bodies:
        for kind in kinds:
            body.properties = Properties(message_id="a", user_id=b"u")
            body.application_properties = {"k": kind, "other": "x"}
            rows.append(body.encode())
    _, odd = decoding.vectors(m.payload(rows), tuple(BARE_COLUMNS))
    assert not odd.any()


@pytest.mark.parametrize(
    "octets",
    [
        "005374c10502a1016b45",  # a property that is a list
        "005374c10703a10161a1016240",  # three elements
        "005374c10b04a1016140a1016140",  # one key twice
        "005374c10502a3016140",  # a key that is a symbol
        "005374c10602a101ff4040",  # a key with invalid UTF-8
        "005374c10602a101615602",  # a boolean of 2
        "005373c00401a101ff",  # a message id with invalid UTF-8
        "005373c00201 41",  # a message id that is a boolean
        "005373c00e0e" + "40" * 14,  # fourteen fields
        "005373d0ffffffff7fffffff",  # more than there is
        "005374d1000000047ffffffe",
        "005377a1 01ff",
        "005375a00161005377a00162",  # a body of two kinds
        "00537045",  # a header
        "005375a00161005378c10100",  # a footer
    ],
)
def test_what_is_wrong_is_refused_with_its_row(octets: str) -> None:
    good = Message(properties=Properties(message_id="a"), data=[b"x"]).encode()
    with pytest.raises(m.Refused, match="row 2") as caught:
        m.columns(m.payload([good, good, bytes.fromhex(octets), b"\0"]), m.ALL_COLUMNS)
    assert caught.value.row == 2


def test_a_section_that_nobody_asks_for_is_only_measured() -> None:
    broken = bytes.fromhex("005374c10502a1016b45") + b"\0Su\xa0\1x"
    assert m.columns(m.payload([broken]), ["body", "messageId"])["body"].to_pylist() == [b"x"]


def test_no_rows_and_no_octets() -> None:
    assert {len(array) for array in m.columns(m.payload([]), m.ALL_COLUMNS).values()} == {0}
    m.check(m.payload([b""]))
    m.check(m.payload([b"", b""], [None, b""]))
    nulls = pa.record_batch({"message": pa.nulls(2, pa.binary())})
    assert m.columns(nulls, ["body", "subject"])["body"].null_count == 2
