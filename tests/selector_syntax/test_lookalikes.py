"""Application properties that are named like a field: a hint names the field, if no compared message has the property."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.messages import Properties
from penstock.broker_core.messages.columns import COLUMNS, INTERNAL_COLUMNS, STRING_MAP
from penstock.broker_core.selectors import hints_of, matches, parse, presence_of
from penstock.broker_core.selectors.lookalikes import MAX_HINTS, NOT_COMPARED, column_of
from penstock.broker_core.selectors.names import TYPES


def columnar(*properties: dict[str, str | None] | None) -> pa.RecordBatch:
    maps = pa.array([None if entries is None else list(entries.items()) for entries in properties], STRING_MAP)
    return pa.record_batch([pa.array([b"x"] * len(properties)), maps], names=["body", "properties"])


def encoded(*properties: dict[str, object]) -> pa.RecordBatch:
    octets = [
        Message(properties=Properties(subject="s"), application_properties=entries, data=[b"x"]).encode()
        for entries in properties
    ]
    return pa.record_batch([pa.array(octets, pa.binary())], names=["message"])


def hints_for(text: str, *payloads: pa.RecordBatch) -> list[str]:
    selector = parse(text)
    presence = presence_of(selector)
    assert presence is not None
    for payload in payloads:
        matches(selector, payload, presence)
    return presence.hints()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("priority", "for the message's priority write JMSPriority or amqp.priority"),
        ("Priority", "for the message's priority write JMSPriority or amqp.priority"),
        ("JMS_Priority", "JMSPriority or amqp.priority"),
        ("subject", "JMSType or amqp.subject"),
        ("messageId", "JMSMessageID or amqp.message_id"),
        ("message_id", "JMSMessageID or amqp.message_id"),
        ("JMSXGroupId", "JMSXGroupID or amqp.group_id"),
        ("JMS_AMQP_TTL", "for the message's ttl write amqp.ttl"),
        ("contentType", "write amqp.content_type"),
        ("durable", "write amqp.durable"),
        ("deliveryCount", "a selector cannot compare the message's deliveryCount"),
        ("body", "a selector cannot compare the message's body"),
    ],
)
def test_a_lookalike_gets_a_hint_with_the_right_name(name: str, advice: str) -> None:
    (hint,) = hints_of(parse(f"{name} = 4"))
    assert hint.startswith(f"in a selector {name!r} is an application property; ")
    assert hint.endswith(advice)


def test_every_field_and_every_column_that_a_user_sees_is_known() -> None:
    assert all(column_of(field) == field for field in TYPES)
    unseen = {*INTERNAL_COLUMNS, "message", "delivery"}  # a column of octets as they came, and a key for `settle`
    assert set(NOT_COMPARED) == COLUMNS.keys() - TYPES.keys() - unseen


@pytest.mark.parametrize(
    "text",
    [
        *("JMSPriority > 4", "amqp.priority > 4", "region = 'eu'", "order.priority > 4", "priorities > 4"),
        *('"priority" > 4', "properties.priority > 4", "JMSXAppID = 'a'", "JMS_own = 1", "type = 'a'", f"{'_' * 40}priority = 1"),
    ],
)
def test_other_names_and_those_that_are_marked_as_properties_get_none(text: str) -> None:
    assert hints_of(parse(text)) == []
    assert presence_of(parse(text)) is None


def test_what_a_name_is_marked_as_is_no_part_of_the_meaning() -> None:
    assert parse("properties.priority > 4") == parse("priority > 4")
    assert parse("properties.priority > 4").text == "priority > 4"


def test_messages_without_the_property_confirm_the_hint() -> None:
    expected = [
        "in a selector 'priority' is an application property, which no compared message has; for the message's priority"
        " write JMSPriority or amqp.priority"
    ]
    assert hints_for("priority > 4 AND region = 'eu'", columnar({"region": "eu"}, {}, None)) == expected
    assert hints_for("priority > 4 AND region = 'eu'", encoded({"region": "eu"}, {})) == expected
    assert hints_for("priority > 4", columnar({"region": "eu"}), encoded({"priority": None})) == expected


@pytest.mark.parametrize(
    "payload",
    [
        columnar({"priority": "1"}),
        columnar({"region": "eu"}, {"priority": "1"}),
        columnar(None, {"a": "b", "priority": "x"}, {}),
        encoded({"priority": 1}),
        encoded({"region": "eu"}, {"priority": "high"}),
        encoded({"priority": b"octets"}),
        encoded({"priority": [1]}),  # a row for the library's decoder
    ],
)
def test_one_message_with_the_property_refutes_it(payload: pa.RecordBatch) -> None:
    assert hints_for("priority > 4", columnar({"region": "eu"}), payload, encoded({})) == []


def test_each_name_is_judged_alone_and_the_hints_are_few() -> None:
    (hint,) = hints_for("priority > 4 OR subject = 'a'", columnar({"priority": "5"}))
    assert "'subject'" in hint
    assert len(hints_for("priority = 1 OR subject = 'a' OR durable OR ttl = 1 OR body = 'x'", columnar({}))) == MAX_HINTS


def test_a_message_that_cannot_be_read_refutes_nothing() -> None:
    damaged = pa.record_batch([pa.array([b"\x00\x53\x74\xff"], pa.binary())], names=["message"])
    assert "no compared message has" in hints_for("priority > 4", damaged)[0]
