"""A single message without Arrow is to the octet what Arrow makes of it: stored, and on its way out."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.amqp.messages import Message
from penstock.broker_core.amqp.performatives import Header
from penstock.broker_core.messages.columns import pack, stored_form, unpack
from penstock.broker_core.messages.encoding.arriving import arrived
from penstock.broker_core.messages.encoding.headers import NOTHING, HeaderFields
from penstock.broker_core.messages.encoding.leaving import leaving
from penstock.broker_core.messages.encoding.lone import SAMPLE_OCTETS, Lone

from .amqp_values import STEADY

said = st.builds(
    HeaderFields,
    priority=st.one_of(st.none(), st.integers(0, 255)),
    durable=st.one_of(st.none(), st.booleans()),
    ttl=st.none(),
)
lengths = st.one_of(st.integers(0, 4096), st.sampled_from([65_535, 65_536, SAMPLE_OCTETS, SAMPLE_OCTETS + 5]))


def check(lone: Lone) -> None:
    mask, written = pack(lone.batch)
    assert (lone.mask, b"".join(lone.octets())) == (mask, written.to_pybytes())
    assert unpack(lone.mask, pa.py_buffer(b"".join(lone.octets()))).equals(lone.batch)


def test_what_is_stored_of_a_message_of_any_length_is_what_arrow_writes() -> None:
    """W1: the journal holds one form of a message, whoever wrote it."""
    for length in range(300):
        check(Lone(bytes(length), NOTHING))


@given(lengths, said, st.integers(0, 2**32 - 1))
@settings(STEADY, max_examples=200)
def test_what_is_stored_with_any_header_is_what_arrow_writes(length: int, header: HeaderFields, seed: int) -> None:
    check(Lone(Random(seed).randbytes(length), header))  # by Hypothesis, octet by octet, a million of them take a second


@given(st.binary(max_size=300), said, st.integers(0, 2**32 - 1), st.booleans())
@settings(STEADY, max_examples=200)
def test_it_leaves_as_its_batch_does(message: bytes, header: HeaderFields, attempts: int, returned: bool) -> None:
    lone = Lone(message, header)
    ways = [
        leaving(payload, number, again, {})
        for payload in (lone, lone.batch)
        for number, again in ((attempts, int(returned)), (np.array([attempts]), np.array([returned])))
    ]
    assert all(way == ways[0] for way in ways)
    ttl = np.array([77])
    assert leaving(lone, attempts, 0, {}, ttl) == leaving(lone.batch, attempts, 0, {}, ttl)
    note = {0: [b"\xc1\x01\x00"]}
    assert leaving(lone, attempts, 0, note) == leaving(lone.batch, attempts, 0, note)


@pytest.mark.parametrize("header", [None, Header(durable=True), Header(durable=False, priority=9), Header(ttl=7)])
def test_one_message_is_what_it_is_among_others(header: Header | None) -> None:
    octets = Message(header=header, data=[b"x"]).encode()
    alone, several = arrived([octets]), arrived([octets] * 3)
    assert isinstance(alone.payload, Lone) == (header is None or header.ttl is None)
    assert alone.batch.equals(several.batch.slice(0, 1))
    assert (alone.mask, alone.durable, alone.sizes) == (several.mask, several.durable, several.sizes)
    assert stored_form(alone.batch)[0] == alone.mask
