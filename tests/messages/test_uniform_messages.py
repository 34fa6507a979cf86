"""Uniform messages are byte for byte the messages that Arrow writes: when they are stored, and when they leave."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.amqp.messages import Message
from penstock.broker_core.amqp.performatives import Header
from penstock.broker_core.amqp.types import Symbol
from penstock.broker_core.journal.view import JournalView
from penstock.broker_core.messages.columns import stored_form, unpack
from penstock.broker_core.messages.encoding.arriving import arrived
from penstock.broker_core.messages.encoding.headers import NOTHING, HeaderFields
from penstock.broker_core.messages.encoding.leaving import leaving
from penstock.broker_core.messages.encoding.uniform_messages import FEW, SAMPLE_BYTES, UniformMessages
from penstock.broker_core.messages.payloads import as_batch
from penstock.broker_core.reading.records import record_reader

from .amqp_values import STEADY

headers = st.builds(
    HeaderFields,
    priority=st.one_of(st.none(), st.integers(0, 255)),
    durable=st.one_of(st.none(), st.booleans()),
    ttl=st.none(),
)
lengths = st.one_of(st.integers(0, 4096), st.sampled_from([65_535, 65_536, SAMPLE_BYTES, SAMPLE_BYTES + 5]))


several = st.lists(st.binary(max_size=40), min_size=2, max_size=2 * FEW)


# --- A single message


def check(single: UniformMessages) -> None:
    mask, stored = stored_form(single.batch)
    written = stored.serialize()
    octets = b"".join(single.serialized())
    assert (single.mask, octets) == (mask, written.to_pybytes())
    assert unpack(single.mask, pa.py_buffer(octets)).equals(single.batch)


def test_what_is_stored_of_a_message_of_any_length_is_what_arrow_writes() -> None:
    """W1: the journal has one form of a message, for every writer."""
    for length in range(300):
        check(UniformMessages([bytes(length)], NOTHING))


@given(lengths, headers, st.integers(0, 2**32 - 1))
@settings(STEADY, max_examples=200)
def test_what_is_stored_with_any_header_is_what_arrow_writes(length: int, header: HeaderFields, seed: int) -> None:
    check(
        UniformMessages([Random(seed).randbytes(length)], header)
    )  # by Hypothesis, octet by octet, a million of them take a second


@given(st.binary(max_size=300), headers, st.integers(0, 2**32 - 1), st.booleans())
@settings(STEADY, max_examples=200)
def test_it_leaves_as_its_batch_does(message: bytes, header: HeaderFields, attempts: int, returned: bool) -> None:
    single = UniformMessages([message], header)
    ways = [
        leaving(payload, number, again, {})
        for payload in (single, single.batch)
        for number, again in ((attempts, int(returned)), (np.array([attempts]), np.array([returned])))
    ]
    assert all(way == ways[0] for way in ways)
    ttl = np.array([77])
    assert leaving(single, attempts, 0, {}, ttl) == leaving(single.batch, attempts, 0, {}, ttl)
    note = {0: [b"\xc1\x01\x00"]}
    assert leaving(single, attempts, 0, note) == leaving(single.batch, attempts, 0, note)


@pytest.mark.parametrize("header", [None, Header(durable=True), Header(durable=False, priority=9), Header(ttl=7)])
def test_one_message_is_what_it_is_among_others(header: Header | None) -> None:
    octets = Message(header=header, data=[b"x"]).encode()
    alone, several = arrived([octets]), arrived([octets] * 3)
    assert isinstance(alone.payload, UniformMessages) == (header is None or header.ttl is None)
    assert alone.batch.equals(several.batch.slice(0, 1))
    assert (alone.mask, alone.durable, alone.sizes) == (several.mask, several.durable, several.sizes)
    assert stored_form(alone.batch)[0] == alone.mask


# --- Several


@given(several, headers)
@settings(STEADY, max_examples=200)
def test_what_is_stored_is_what_arrow_writes(messages: list[bytes], header: HeaderFields) -> None:
    uniform = UniformMessages(messages, header)
    mask, stored = stored_form(uniform.batch)
    assert (uniform.mask, b"".join(uniform.serialized())) == (mask, stored.serialize().to_pybytes())
    assert uniform.batch.column("message").to_pylist() == messages
    assert {name: set(uniform.batch.column(name).to_pylist()) for name in uniform.batch.schema.names if name != "message"} == {
        name: {value} for name, value in header._asdict().items() if value is not None
    }


@given(several, headers, st.integers(0, 2**32 - 1), st.booleans(), st.data())
@settings(STEADY, max_examples=200)
def test_they_leave_as_their_batch_does(
    messages: list[bytes], header: HeaderFields, attempts: int, returned: bool, data: st.DataObject
) -> None:
    """Check that the bytes are the same for all messages and for some, with every addition of the broker."""
    uniform, count = UniformMessages(messages, header), len(messages)
    first = data.draw(st.integers(0, count - 1))
    rows = data.draw(st.lists(st.integers(0, count - 1), unique=True).map(sorted))
    of_some = [
        (uniform, uniform.batch),
        (uniform.slice(first, 2), uniform.batch.slice(first, 2)),
        (uniform.take(rows), uniform.batch.take(np.array(rows, np.int64))),
    ]
    for payload, batch in of_some:
        number = payload.num_rows
        assert leaving(payload, attempts, int(returned), {}) == leaving(batch, attempts, int(returned), {})
        if number:
            arguments = np.full(number, attempts), np.arange(number) % 2
            assert leaving(payload, *arguments, {}) == leaving(batch, *arguments, {})
            ttl, note = np.full(number, 77), {0: [b"\xc1\x01\x00"]}
            for more in ((note, None), ({}, ttl), (note, ttl)):
                assert leaving(payload, attempts, 0, *more) == leaving(batch, attempts, 0, *more)


PLAIN = Message(header=Header(durable=True, priority=4), data=[b"x"])


@pytest.mark.parametrize(
    ("messages", "uniform"),
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
def test_messages_are_kept_so_only_if_nothing_but_the_bare_message_differs(messages: list[Message], uniform: bool) -> None:
    sent = [message.encode() for message in messages]
    arrivals = arrived(sent)
    assert isinstance(arrivals.payload, UniformMessages) == uniform
    assert not uniform or leaving(arrivals.payload, 0, 1, {}) == sent


@pytest.mark.parametrize("at", [0, 1, 5])
@pytest.mark.parametrize("wrong", [PLAIN.encode() + b"x", PLAIN.encode()[:-1], PLAIN.encode()[:-2] + b"\x05x"])
def test_one_that_does_not_end_with_its_section_is_refused_wherever_it_stands(at: int, wrong: bytes) -> None:
    sent = [PLAIN.encode()] * 6
    sent[at] = wrong
    arrivals = arrived(sent)
    assert [number for number, _ in arrivals.refused] == [at]
    assert as_batch(arrivals.payload).column("message").to_pylist() == [Message(data=[b"x"]).encode()] * 5


def test_kept_messages_become_a_batch_once_however_often_their_rows_are_read(tmp_path: Path) -> None:
    """A record whose messages have moved one by one has an extent for each of them."""
    uniform = UniformMessages([b"a", b"b"], NOTHING)
    read = record_reader(JournalView(tmp_path, "broker-1"), {7: uniform})
    assert read(7) is read(7)
    assert read(7).equals(uniform.batch)
