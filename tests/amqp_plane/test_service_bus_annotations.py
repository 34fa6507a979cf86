"""Annotations and header of messages that leave to Service Bus clients, and the properties of dead letters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.broker_core.amqp import Message, decode_message
from penstock.broker_core.amqp.performatives import Header, Properties
from penstock.broker_core.amqp.types import Int, Symbol, Timestamp, ULong
from penstock.broker_core.amqp_plane.service_bus.annotations import changes, dressed, error_text
from penstock.broker_core.errors import InvalidRequest
from penstock.broker_core.messages.annotations import DEATH_ERROR, DEATH_QUEUE, DEATH_REASON

ADDED = {"x-opt-sequence-number": 8, "x-opt-enqueued-time": Timestamp(1000), "x-opt-locked-until": Timestamp(2000)}

HEADERS = [
    None,
    Header(),
    Header(durable=True),
    Header(durable=True, priority=9, ttl=60_000, first_acquirer=True),
    Header(durable=True, priority=9, ttl=60_000, first_acquirer=False, delivery_count=3),
]


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("notes", [None, {}, {Symbol("x-opt-a"): "b", Symbol("x-opt-sequence-number"): 1}])
def test_only_header_and_annotations_change(header: Header | None, notes: dict[Symbol, object] | None) -> None:
    octets = Message(header=header, message_annotations=notes, application_properties={"a": 1}, data=[b"x" * 300]).encode()
    before, after = decode_message(octets), decode_message(dressed(octets, 7, 1000, 2000))
    assert after.message_annotations == {**(notes or {}), **ADDED}
    assert after.header is not None
    assert after.header == (header or Header())
    assert (after.data, after.application_properties) == (before.data, before.application_properties)


def test_a_header_always_names_its_delivery_count() -> None:
    for header in HEADERS[:4]:
        octets = dressed(Message(header=header, data=[b"x"]).encode(), 7, 1000, 2000)
        assert octets[5] == 5, "the number of fields"


def test_a_message_without_a_lock_has_no_end_of_one() -> None:
    notes = decode_message(dressed(Message(data=[b"x"]).encode(), 7, 1000, None)).message_annotations or {}
    assert set(notes) == {"x-opt-sequence-number", "x-opt-enqueued-time"}


def test_changed_properties_become_properties() -> None:
    notes = changes({Symbol("colour"): "red", "größe": Int(7), "gone": None, "x:y/z": b"1"})
    octets = Message(message_annotations={**notes, Symbol("x-opt-a"): 1}, application_properties={"colour": "blue", "b": 2})
    after = decode_message(dressed(octets.encode(), 7, 1000, 2000))
    assert after.application_properties == {"colour": "red", "b": 2, "größe": 7, "gone": None, "x:y/z": b"1"}
    assert after.message_annotations == {"x-opt-a": 1, **ADDED}
    assert after.header == Header()


def test_a_body_that_looks_like_a_changed_property_is_kept() -> None:
    octets = Message(message_annotations={Symbol("x-opt-a"): 1}, data=[b"x-opt-changed-property:a"]).encode()
    assert decode_message(dressed(octets, 7, 1000, 2000)).data == [b"x-opt-changed-property:a"]


@pytest.mark.parametrize("properties", [{"a": {"b": 1}}, {"a": [1]}, {1: "a"}])
def test_a_changed_property_has_a_simple_value(properties: dict[Any, Any]) -> None:
    with pytest.raises(InvalidRequest, match="is a name with a simple value"):
        changes(properties)


@pytest.mark.parametrize("notes", [None, {Symbol("x-opt-a"): "b"}])
@pytest.mark.parametrize("properties", [None, Properties(), Properties(subject="s"), Properties(subject="s" * 300)])
def test_a_message_without_an_id_gets_one(properties: Properties | None, notes: dict[Symbol, object] | None) -> None:
    message = Message(message_annotations=notes, properties=properties, application_properties={"a": 1}, data=[b"x"])
    after = decode_message(dressed(message.encode(), 7, 1000, 2000))
    assert after.properties == replace(properties or Properties(), message_id="8-1000")
    assert (after.data, after.application_properties) == ([b"x"], {"a": 1})


@pytest.mark.parametrize("message_id", ["mine", "", ULong(0), b"\x00"])
def test_a_message_keeps_its_id(message_id: str | ULong | bytes) -> None:
    octets = Message(properties=Properties(message_id=message_id, to="t" * 300), data=[b"x"]).encode()
    assert octets[3:] in dressed(octets, 7, 1000, 2000)


@pytest.mark.parametrize(
    ("death", "error", "reason", "description"),
    [
        ("rejected", error_text("Odd\n: really", "two\nlines"), "Odd : really", "two\nlines"),
        ("rejected", "amqp:decode-error: not JSON", "Rejected", "amqp:decode-error: not JSON"),
        ("rejected", None, "Rejected", ""),
        ("expired", None, "TTLExpiredException", "The message expired and was dead lettered."),
        ("delivery_limit", None, "MaxDeliveryCountExceeded", "The message used up the attempts of its queue (maxAttempts)."),
        ("something new", None, "Rejected", ""),
    ],
)
def test_a_dead_letter_names_its_reason(death: str, error: str | None, reason: str, description: str) -> None:
    notes = {DEATH_REASON: death, DEATH_QUEUE: "q", **({} if error is None else {DEATH_ERROR: error})}
    octets = Message(message_annotations=notes, application_properties={"a": 1}, data=[b"x"]).encode()
    after = decode_message(dressed(octets, 7, 1000, 2000))
    assert after.application_properties == {
        "a": 1,
        "DeadLetterReason": reason,
        "DeadLetterErrorDescription": description,
    }
    assert after.message_annotations == {**notes, **ADDED, "x-opt-deadletter-source": "q"}
