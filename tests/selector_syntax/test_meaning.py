"""Q8: matches of selectors, in examples: the rules of JMS 2.0, 3.8, and our decisions where it leaves something open."""

from __future__ import annotations

import uuid
import warnings
from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.amqp.types import Char, Decimal32, Int, Symbol, Timestamp, ULong
from penstock.broker_core.messages.columns import MESSAGE_COLUMNS, STRING_MAP
from penstock.broker_core.selectors import matches, parse

FROM_AMQP = {"colour": "red", "size": Int(5), "weight": 2.5, "new": True, "none": None, "text": "5", "kind": Symbol("box")}
FROM_AMQP |= {"key": b"red", "order-id": uuid.UUID(int=7), "x": "a%b", "big": 2**53 + 1}
FROM_A_DATAFRAME = {"colour": "red", "size": "5", "weight": "2.5", "new": "true", "none": None, "text": "5"}
FROM_A_DATAFRAME |= {"five": "5.0", "big": str(2**53 + 1)}


def encoded(properties: Properties | None = None, application: dict[str, Any] | None = None, **header: Any) -> pa.RecordBatch:
    octets = Message(properties=properties, application_properties=application, data=[b"body"]).encode()
    arrays = {"message": pa.array([octets], pa.binary())} | {n: pa.array([v], MESSAGE_COLUMNS[n]) for n, v in header.items()}
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def columnar(**columns: Any) -> pa.RecordBatch:
    columns = {"body": b"", **columns}
    if isinstance(columns.get("properties"), dict):
        columns["properties"] = list(columns["properties"].items())
    return pa.RecordBatch.from_arrays([pa.array([v], MESSAGE_COLUMNS[n]) for n, v in columns.items()], list(columns))


def match(text: str, payload: pa.RecordBatch) -> bool:
    (matched,) = matches(parse(text), payload).tolist()
    return bool(matched)


BOTH_FORMS = {
    # comparisons of one type
    "colour = 'red'": True,
    "colour <> 'red'": False,
    "Colour = 'red'": False,
    "colour = 'Red'": False,
    "size = 5 AND size = 5.0 AND size >= 5 AND size < 5.1": True,
    "weight > 2 AND weight < 3": True,
    "size BETWEEN 5 AND 6 AND size NOT BETWEEN 6 AND 7": True,
    "new = TRUE AND new AND NOT new = FALSE": True,
    "big = 9007199254740993 AND big <> 9007199254740992": True,
    # comparisons of different types
    "colour = 5": False,
    "colour <> 5": False,
    "colour > 5 OR colour <= 5": False,
    "NOT colour = 5": True,
    "colour NOT BETWEEN 1 AND 2": False,
    "colour = TRUE OR colour <> TRUE": False,
    "NOT colour": False,
    "'a' = 1 OR 'a' <> 1 OR TRUE = 1": False,
    # comparisons with NULL.
    "none = 'red' OR none <> 'red' OR NOT none = 'red'": False,
    "missing < 1 OR NOT missing < 1 OR missing BETWEEN 0 AND 9 OR missing IN ('a') OR missing NOT LIKE 'a'": False,
    "none IS NULL AND missing IS NULL AND colour IS NOT NULL": True,
    "missing = 1 OR size = 5": True,
    "NOT (missing = 1 AND size = 6)": True,
    "(missing = 1) = TRUE OR (missing = 1) = FALSE": False,
    # text
    "colour IN ('blue', 'red') AND colour NOT IN ('blue')": True,
    "colour LIKE 'r_d' AND colour LIKE '%e%' AND colour LIKE 're%' AND colour LIKE '%ed' AND colour LIKE '%'": True,
    "colour LIKE 'R%' OR colour LIKE 'r' OR colour LIKE '_red' OR colour LIKE ''": False,
    "colour LIKE 'r.d' OR colour LIKE 'r!_d' ESCAPE '!'": False,
    # arithmetic
    "size + 2 * 3 - 1 = 10 AND - size = -5 AND (size + 1) * 2 = 12": True,
    "size / 2 = 2.5": True,
    "size / 0 > 1 OR NOT size / 0 > 1": False,
    "colour + 1 > 0 OR NOT colour + 1 > 0": False,
    "weight * 2 = size": True,
}


@pytest.mark.parametrize("text", BOTH_FORMS)
def test_properties_of_either_form(text: str) -> None:
    assert match(text, encoded(application=FROM_AMQP)) is BOTH_FORMS[text]
    assert match(text, columnar(properties=FROM_A_DATAFRAME)) is BOTH_FORMS[text]


AMQP_ONLY = {
    "text = 5": False,  # a typed string is not a number
    "text > 4": False,
    "text = '5'": True,
    "text": False,
    "new = 'true'": False,
    "kind = 'box' AND kind LIKE 'b%'": True,
    "\"order-id\" = '00000000-0000-0000-0000-000000000007'": True,
    "key IS NOT NULL": True,
    "key = 'red' OR key <> 'red' OR key IN ('red') OR key NOT IN ('red') OR key LIKE '%' OR key": False,
    "x LIKE 'a!%b' ESCAPE '!' AND x LIKE 'a%'": True,
    "size IN ('5') OR size NOT IN ('5') OR size LIKE '5' OR size NOT LIKE '5'": False,
    "NOT size IN ('5')": True,
}


@pytest.mark.parametrize("text", AMQP_ONLY)
def test_properties_from_an_amqp_client_have_their_types(text: str) -> None:
    assert match(text, encoded(application=FROM_AMQP)) is AMQP_ONLY[text]


DATAFRAME_ONLY = {
    "text = 5 AND text = '5' AND text > 4 AND text IN ('5') AND text + 1 = 6": True,
    "text = size AND NOT text = weight": True,
    "text = five OR NOT text <> five": False,
    "text <= five AND five <= text": True,
    "text < big": True,
    "new = 'true' AND new": True,
    "text = '5.0'": False,  # text with text, letter for letter
    "size = '5'": True,
}


@pytest.mark.parametrize("text", DATAFRAME_ONLY)
def test_properties_from_a_dataframe_count_as_what_their_text_shows(text: str) -> None:
    assert match(text, columnar(properties=FROM_A_DATAFRAME)) is DATAFRAME_ONLY[text]


PROPERTIES = Properties(
    message_id="ID:1",
    user_id="ü".encode(),
    to="orders",
    subject="new",
    reply_to="answers",
    correlation_id=ULong(7),
    content_type=Symbol("text/plain"),
    content_encoding=Symbol("gzip"),
    absolute_expiry_time=Timestamp(2000),
    creation_time=Timestamp(1000),
    group_id="g",
    group_sequence=3,
)
COLUMNS: dict[str, Any] = {
    "messageId": "ID:1",
    "userId": "ü",
    "to": "orders",
    "subject": "new",
    "replyTo": "answers",
    "correlationId": "7",
    "contentType": "text/plain",
    "contentEncoding": "gzip",
    "absoluteExpiryTime": 2_000_999,
    "creationTime": 1_000_999,
    "groupId": "g",
    "groupSequence": 3,
}
HEADER = {"priority": 7, "durable": True, "ttl": 500}
FIELDS = [
    "JMSMessageID = 'ID:1' AND amqp.message_id = 'ID:1'",
    "JMSCorrelationID = 'ID:AMQP_ULONG:7' AND amqp.correlation_id = '7'",
    "JMSType = 'new' AND amqp.subject LIKE 'n%' AND amqp.jms_type = 'new'",
    "JMSDestination = 'orders' AND amqp.to = 'orders'",
    "JMSReplyTo = 'answers' AND amqp.reply_to = 'answers'",
    "JMSDeliveryMode = 'PERSISTENT' AND amqp.delivery_mode IN ('PERSISTENT') AND amqp.durable AND amqp.durable = TRUE",
    "JMSPriority = 7 AND amqp.priority > 6",
    "JMSTimestamp = 1000 AND amqp.creation_time BETWEEN 999 AND 1000",
    "JMSExpiration = 2000 AND amqp.absolute_expiry_time - JMSTimestamp = 1000",
    "amqp.ttl = 500",
    "JMSXGroupID = 'g' AND amqp.group_id = 'g' AND JMSXGroupSeq = 3 AND amqp.group_sequence < 4",
    "JMSXUserID = 'ü' AND amqp.user_id = 'ü'",
    "amqp.content_type = 'text/plain' AND amqp.content_encoding = 'gzip'",
]
ABSENT = [
    "JMSPriority = 4 AND JMSDeliveryMode = 'NON_PERSISTENT' AND NOT amqp.durable",
    "JMSMessageID IS NULL AND JMSType IS NULL AND JMSTimestamp IS NULL AND amqp.ttl IS NULL AND JMSXUserID IS NULL",
    '"JMSType" IS NULL AND subject IS NULL',
]


@pytest.mark.parametrize("text", FIELDS)
def test_headers_by_the_names_of_jms_and_of_amqp(text: str) -> None:
    for payload in (encoded(PROPERTIES, **HEADER), columnar(**COLUMNS, **HEADER)):
        assert match(text, payload)
    for payload in (encoded(), columnar()):
        assert not match(text, payload)


@pytest.mark.parametrize("text", ABSENT)
def test_headers_that_say_nothing_have_jms_defaults_or_are_null(text: str) -> None:
    for payload in (encoded(), columnar()):
        assert match(text, payload)
    assert not match(ABSENT[0], encoded(PROPERTIES, **HEADER))


def test_a_name_in_quotes_is_always_an_application_property() -> None:
    sent = {"JMSType": "p", "amqp.to": "p", "to": "p"}
    for payload in (encoded(PROPERTIES, sent), columnar(**COLUMNS, properties=sent)):
        assert match("\"JMSType\" = 'p' AND \"amqp.to\" = 'p' AND to = 'p' AND properties.to = 'p' AND JMSType = 'new'", payload)


def together(values: list[Any]) -> pa.RecordBatch:
    octets = [Message(application_properties={"a": value}, data=[b""]).encode() for value in values]
    return pa.RecordBatch.from_arrays([pa.array(octets, pa.binary())], ["message"])


def test_whole_numbers_are_exact_beside_doubles_and_beyond_what_a_double_holds() -> None:
    sent = [2**53 + 1, 2**53, 0.5, 2.0**53, ULong(2**64 - 1), 1234567890123456789, None, "x"]
    matched = {text: matches(parse(text), together(sent)).tolist() for text in (f"a = {2**53 + 1}", "a > 9223372036854775806.0")}
    assert matched[f"a = {2**53 + 1}"] == [n in (0, 3) for n in range(len(sent))]
    assert matched["a > 9223372036854775806.0"] == [n == 4 for n in range(len(sent))]
    for payload in (together([1234567890123456789]), columnar(properties={"a": "1234567890123456789"})):
        assert match("a = 1234567890123456789 AND a <> 1234567890123456788", payload)


def test_values_of_rare_types_count_as_they_do_alone() -> None:
    sent = [Char("x"), "x", Decimal32(b"\0\0\0\5"), b"x", None]
    assert matches(parse("a = 'x'"), together(sent)).tolist() == [True, True, False, False, False]
    assert matches(parse("a IS NOT NULL"), together(sent)).tolist() == [True, True, True, True, False]


def test_a_sign_of_like_stands_for_a_line_break_too_and_for_one_character_of_any_width() -> None:
    assert matches(parse("a LIKE 'a_b' AND a LIKE 'a%b' AND a LIKE '_%_'"), together(["a\nb", "aüb", "a𝄞b", "ab"])).tolist() == [
        True,
        True,
        True,
        False,
    ]


def test_a_priority_that_nobody_gave_is_four_among_those_that_were_given() -> None:
    names = ["body", "priority", "durable"]
    arrays = [pa.array([b""] * 3), pa.array([7, None, 4], pa.int16()), pa.array([None, True, False])]
    payload = pa.RecordBatch.from_arrays(arrays, names)
    assert matches(parse("JMSPriority = 4"), payload).tolist() == [False, True, True]
    assert matches(parse("JMSDeliveryMode = 'PERSISTENT'"), payload).tolist() == [False, True, False]


def test_a_map_that_has_a_key_twice_is_malformed() -> None:
    good = Message(application_properties={"a": 1, "b": 1}, data=[b""]).encode()
    payload = pa.RecordBatch.from_arrays([pa.array([good, good.replace(b"\xa1\x01b", b"\xa1\x01a")], pa.binary())], ["message"])
    assert matches(parse("a = 1"), payload).tolist() == [True, False]


def test_a_message_that_is_none_matches_nothing_whatever_is_asked() -> None:
    good = encoded(application=FROM_AMQP).column("message")[0].as_py()
    payload = pa.RecordBatch.from_arrays([pa.array([b"", good, b"\0Sw", good[:-1], good], pa.binary())], ["message"])
    assert matches(parse("colour = 'red'"), payload).tolist() == [False, True, False, False, True]
    assert matches(parse("missing IS NULL"), payload).tolist() == [True, True, False, False, True]
    assert matches(parse("TRUE"), payload).tolist() == [True, True, False, False, True]
    assert matches(parse("TRUE"), payload.slice(5)).tolist() == []


# NaN, infinity, and values at the edge of a type's range: a constructor and its bytes.
EXTREMES = [
    *(b"\x72" + bytes.fromhex(octets) for octets in ("7fa00001", "ff800001", "7fc00000", "7f800000", "ff800000", "7f7fffff")),
    *(b"\x82" + bytes.fromhex(octets + "00" * 5) + tail for octets, tail in (("7ff0", b"\1"), ("fff4", b"\1"), ("7ff8", b"\0"))),
    *(b"\x82" + bytes.fromhex(octets) for octets in ("7ff0000000000000", "fff0000000000000", "7fefffffffffffff")),
    *(
        code + octets
        for code in (b"\x80", b"\x81", b"\x83")
        for octets in (b"\xff" * 8, b"\x80" + bytes(7), b"\x7f" + b"\xff" * 7)
    ),
    b"\x54\x05",
    b"\x44",
]
SHOWN = ["nan", "inf", "1e99", "-1e-99", str(2**63 - 1), str(2**63), str(-(2**63)), str(-(2**63) - 1), "9" * 30, "-", "", "-0"]
ON_NUMBERS = [
    *("n > 0", "n < m", "n = m", "n <> 1", "n BETWEEN -1 AND 1", "n NOT BETWEEN m AND 1", "-n > 0", "n * n > 1", "n + m < 1E308"),
    *("n - m = 0", "n / m = 1", "n / 0 = 1", "n * 1E308 > 1", "n * 9223372036854775807 > m", "n + 9223372036854775807 > n"),
]


@pytest.mark.parametrize("text", ON_NUMBERS)
def test_numbers_that_are_none_or_too_large_are_evaluated_without_a_warning(text: str) -> None:
    """Alone and among others, in both forms of a payload. Warnings of numpy would go to the broker's stderr."""
    octets = [_with_two(n, m) for n in EXTREMES for m in EXTREMES]
    shown = [[("n", n), ("m", m)] for n in SHOWN for m in SHOWN]
    payloads = [
        pa.record_batch({"message": pa.array(octets, pa.binary())}),
        pa.record_batch([pa.array([b""] * len(shown), pa.binary()), pa.array(shown, STRING_MAP)], ["body", "properties"]),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for payload in payloads:
            together = matches(parse(text), payload).tolist()
            for row in range(0, payload.num_rows, 67):
                assert matches(parse(text), payload.slice(row, 1)).tolist() == together[row : row + 1]


def _with_two(n: bytes, m: bytes) -> bytes:
    """A message whose application properties n and m are these."""
    pairs = b"\xa1\x01n" + n + b"\xa1\x01m" + m
    return b"\x00\x53\x74\xc1" + bytes([len(pairs) + 1, 4]) + pairs + b"\x00\x53\x75\xa0\x01x"
