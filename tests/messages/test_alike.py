"""Messages that came together with the same header, kept as they are, are to the octet what Arrow makes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.amqp.messages import Message
from penstock.broker_core.amqp.performatives import Header
from penstock.broker_core.amqp.types import Symbol
from penstock.broker_core.journal.view import JournalView
from penstock.broker_core.messages.columns import pack, stored_form
from penstock.broker_core.messages.encoding.alike import FEW, Alike, as_batch
from penstock.broker_core.messages.encoding.arriving import arrived
from penstock.broker_core.messages.encoding.headers import NOTHING, HeaderFields
from penstock.broker_core.messages.encoding.leaving import leaving
from penstock.broker_core.reading.records import record_reader

from .amqp_values import STEADY
from .test_lone import said as headers

several = st.lists(st.binary(max_size=40), min_size=2, max_size=2 * FEW)


@given(several, headers)
@settings(STEADY, max_examples=200)
def test_what_is_stored_is_what_arrow_writes(messages: list[bytes], header: HeaderFields) -> None:
    alike = Alike(messages, header)
    assert (alike.mask, alike.serialize().to_pybytes()) == (stored_form(alike.batch)[0], pack(alike.batch)[1].to_pybytes())
    assert alike.batch.column("message").to_pylist() == messages
    assert {name: set(alike.batch.column(name).to_pylist()) for name in alike.batch.schema.names if name != "message"} == {
        name: {value} for name, value in header._asdict().items() if value is not None
    }


@given(several, headers, st.integers(0, 2**32 - 1), st.booleans(), st.data())
@settings(STEADY, max_examples=200)
def test_they_leave_as_their_batch_does(
    messages: list[bytes], header: HeaderFields, attempts: int, returned: bool, data: st.DataObject
) -> None:
    """Check that the octets are the same, of all or of some, whatever the broker adds."""
    alike, count = Alike(messages, header), len(messages)
    first = data.draw(st.integers(0, count - 1))
    rows = data.draw(st.lists(st.integers(0, count - 1), unique=True).map(sorted))
    of_some = [
        (alike, alike.batch),
        (alike.slice(first, 2), alike.batch.slice(first, 2)),
        (alike.take(rows), alike.batch.take(np.array(rows, np.int64))),
    ]
    for payload, batch in of_some:
        number = payload.num_rows
        assert leaving(payload, attempts, int(returned), {}) == leaving(batch, attempts, int(returned), {})
        if number:
            each = np.full(number, attempts), np.arange(number) % 2
            assert leaving(payload, *each, {}) == leaving(batch, *each, {})
            ttl, note = np.full(number, 77), {0: [b"\xc1\x01\x00"]}
            for more in ((note, None), ({}, ttl), (note, ttl)):
                assert leaving(payload, attempts, 0, *more) == leaving(batch, attempts, 0, *more)


PLAIN = Message(header=Header(durable=True, priority=4), data=[b"x"])


@pytest.mark.parametrize(
    ("said", "alike"),
    [
        ([PLAIN, PLAIN], True),
        ([PLAIN, Message(header=PLAIN.header, data=[b"longer"])], True),
        ([PLAIN, Message(header=Header(durable=True, priority=5), data=[b"x"])], False),
        ([PLAIN, Message(data=[b"x"])], False),
        ([Message(header=Header(ttl=7), data=[b"x"])] * 2, False),
        ([Message(message_annotations={Symbol("x-a"): 1}, data=[b"x"])] * 2, False),
        ([Message(data=[b"x"], footer={Symbol("x-a"): 1})] * 2, False),
    ],
)
def test_messages_are_kept_so_only_if_nothing_but_the_bare_message_differs(said: list[Message], alike: bool) -> None:
    sent = [each.encode() for each in said]
    found = arrived(sent)
    assert isinstance(found.payload, Alike) == alike
    assert not alike or leaving(found.payload, 0, 1, {}) == sent


@pytest.mark.parametrize("at", [0, 1, 5])
@pytest.mark.parametrize("wrong", [PLAIN.encode() + b"x", PLAIN.encode()[:-1], PLAIN.encode()[:-2] + b"\x05x"])
def test_one_that_does_not_end_with_its_section_is_refused_wherever_it_stands(at: int, wrong: bytes) -> None:
    sent = [PLAIN.encode()] * 6
    sent[at] = wrong
    found = arrived(sent)
    assert [number for number, _ in found.refused] == [at]
    assert as_batch(found.payload).column("message").to_pylist() == [Message(data=[b"x"]).encode()] * 5


def test_kept_messages_become_a_batch_once_however_often_their_rows_are_read(tmp_path: Path) -> None:
    """A record whose messages have moved one by one has an extent for each of them."""
    alike = Alike([b"a", b"b"], NOTHING)
    read = record_reader(JournalView(tmp_path, "broker-1"), {7: alike})
    assert read(7) is read(7)
    assert read(7).equals(alike.batch)
