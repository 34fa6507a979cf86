"""Messages out: headers, annotations laid over, and that arriving and leaving undo each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.amqp.encoder import encode
from penstock.broker_core.amqp.errors import DecodeError
from penstock.broker_core.amqp.messages import Message, bare, decode_message, scan
from penstock.broker_core.amqp.performatives import Header
from penstock.broker_core.amqp.types import Float, Symbol, UInt, ULong
from penstock.broker_core.errors import InvalidRequest
from penstock.broker_core.messages.encoding.arriving import arrived
from penstock.broker_core.messages.encoding.bare_encoder import annotation_sections, bare_messages
from penstock.broker_core.messages.encoding.headers import written
from penstock.broker_core.messages.encoding.leaving import FEW, leaving

from .amqp_values import STEADY, symbols, values
from .columnar import bare_message, batches, milliseconds

keys = st.one_of(symbols, st.integers(0, 2**64 - 1).map(ULong))
maps = st.dictionaries(keys, values, max_size=3)
counts = st.one_of(st.integers(0, 3), st.integers(0, 2**32 - 1))
headers = st.builds(
    Header, durable=st.booleans(), priority=st.integers(0, 255), ttl=st.one_of(st.none(), st.integers(0, 2**32 - 1))
)
messages = st.builds(
    Message,
    header=st.one_of(st.none(), headers),
    message_annotations=st.one_of(st.none(), maps),
    application_properties=st.one_of(st.none(), st.dictionaries(st.text(max_size=5), st.text(max_size=5))),
    data=st.lists(st.binary(max_size=300), max_size=2),
    footer=st.one_of(st.none(), maps),
)


def section(octets: bytes, code: int) -> bytes:
    return b"".join(octets[s.start : s.end] for s in scan(octets) if s.code == code)


def header_of(octets: bytes) -> Header:
    return decode_message(octets).header or Header()


@given(st.lists(messages, max_size=6), st.data())
@settings(STEADY, max_examples=200)
def test_what_leaves_is_what_came_but_for_the_header(sent: list[Message], data: st.DataObject) -> None:
    """W1: the bare message, the annotations and the footer are byte for byte the sender's."""
    octets = [message.encode() for message in sent]
    batch = arrived(octets).batch
    start = data.draw(st.integers(0, len(sent)))
    rows = batch.num_rows - start
    attempts = data.draw(st.lists(counts, min_size=rows, max_size=rows))
    returned = data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
    encoded = leaving(batch.slice(start), np.array(attempts, np.int64), np.array(returned, np.uint8), {})
    assert len(encoded) == rows
    for came, left, message, count, again in zip(octets[start:], encoded, sent[start:], attempts, returned, strict=True):
        assert bare(left) == bare(came)
        assert [section(left, code) for code in (0x71, 0x72, 0x78)] == [b"", section(came, 0x72), section(came, 0x78)]
        header = message.header or Header()
        expected = Header(
            durable=header.durable, priority=header.priority, ttl=header.ttl, first_acquirer=not again, delivery_count=count
        )
        assert header_of(left) == expected


@given(st.lists(messages, min_size=1, max_size=FEW), st.data())
@settings(STEADY, max_examples=100)
def test_a_few_rows_leave_as_many_do(sent: list[Message], data: st.DataObject) -> None:
    batch = arrived([message.encode() for message in sent]).batch
    rows, times = batch.num_rows, FEW + 1
    overlays = data.draw(st.dictionaries(st.integers(0, rows - 1), st.lists(maps.map(encode), min_size=1, max_size=2)))
    attempts = np.array(data.draw(st.lists(counts, min_size=rows, max_size=rows)), np.int64)
    (many,) = pa.Table.from_batches([batch] * times).combine_chunks().to_batches()
    laid = {row + rows * time: notes for row, notes in overlays.items() for time in range(times)}
    assert leaving(batch, attempts, 0, overlays) * times == leaving(many, np.tile(attempts, times), 0, laid)


@given(st.lists(messages, max_size=6))
@settings(STEADY, max_examples=150)
def test_what_left_arrives_as_the_same_columns(sent: list[Message]) -> None:
    batch = arrived([message.encode() for message in sent]).batch
    again = arrived(leaving(batch, 2, 1, {}))
    assert not again.refused
    assert again.batch.equals(batch)


@given(batches())
@settings(STEADY, max_examples=200)
def test_columnar_rows_leave_as_their_parts(batch: pa.RecordBatch) -> None:
    encoded = leaving(batch, 0, 0, {})
    notes = annotation_sections(batch)
    for i, (row, octets, content) in enumerate(zip(batch.to_pylist(), encoded, bare_messages(batch).to_pylist(), strict=True)):
        expected = Header(durable=bool(row.get("durable")), ttl=row.get("ttl"), first_acquirer=True)
        expected.priority = 4 if row.get("priority") is None else row["priority"]
        assert header_of(octets) == expected
        assert bare(octets) == content == bare_message(row).encode()
        assert section(octets, 0x72) == (b"" if notes is None else notes[i].as_py())


@given(batches())
@settings(STEADY, max_examples=100)
def test_columnar_rows_arrive_at_another_broker_as_they_are(batch: pa.RecordBatch) -> None:
    arrivals = arrived(leaving(batch, 0, 0, {}))
    assert not arrivals.refused
    assert arrivals.batch.column("message").equals(bare_messages(batch))
    for ours, theirs in zip(batch.to_pylist(), arrivals.batch.to_pylist(), strict=True):
        assert [theirs.get(name) for name in ("priority", "durable", "ttl")] == [
            ours.get(name) for name in ("priority", "durable", "ttl")
        ]


@given(batches())
@settings(STEADY, max_examples=60)
def test_proton_reads_header_and_annotations(batch: pa.RecordBatch) -> None:
    proton = pytest.importorskip("proton")
    for row, octets in zip(batch.to_pylist(), leaving(batch, 7, 1, {}), strict=True):
        message = proton.Message()
        message.decode(octets)
        assert message.durable == bool(row.get("durable"))
        assert message.priority == (4 if row.get("priority") is None else row["priority"])
        assert message.ttl == (row.get("ttl") or 0) / 1000
        assert (message.first_acquirer, message.delivery_count) == (False, 7)
        expected: dict[str, Any] = dict(row.get("annotations") or [])
        if row.get("deliveryTime") is not None:
            expected["x-opt-delivery-time"] = milliseconds(row["deliveryTime"])
        assert (message.annotations or {}) == expected


# --- Headers


def test_a_header_says_what_the_sender_said_and_what_the_broker_knows() -> None:
    headers = [Header(durable=True, priority=9, ttl=60_000), None]
    batch = arrived([Message(header=header, data=[b"x"]).encode() for header in headers]).batch
    first = leaving(batch, 0, 0, {})
    assert header_of(first[0]) == Header(durable=True, priority=9, ttl=60_000, first_acquirer=True)
    assert header_of(first[1]) == Header(first_acquirer=True)
    third = leaving(batch, np.array([2, 1]), np.array([1, 1]), {})
    assert header_of(third[0]) == Header(durable=True, priority=9, ttl=60_000, delivery_count=2)
    assert header_of(third[1]) == Header(delivery_count=1)


def test_a_default_that_the_sender_put_into_words_stays_in_words() -> None:
    """3.2.1: a missing field may have another default at the receiver's node; a field with a value may not."""
    spoken = b"\x00\x53\x70\xc0\x04\x02\x42\x50\x04" + Message(data=[b"x"]).encode()
    (left,) = leaving(arrived([spoken]).batch, 0, 1, {})
    assert left == spoken


def test_a_header_that_would_say_nothing_is_left_out() -> None:
    octets = Message(data=[b"x"]).encode()
    batch = arrived([octets]).batch
    assert leaving(batch, 0, 1, {}) == [octets]
    assert leaving(batch, 0, 0, {}) == [Header(first_acquirer=True).encode() + octets]
    assert leaving(batch, 1, 1, {}) == [Header(delivery_count=1).encode() + octets]


def test_headers_are_written_once_for_all_rows_that_share_them() -> None:
    batch = arrived([Message(header=Header(durable=True), data=[b"x"]).encode()] * 50).batch
    assert written(batch, batch.schema.names, 3, 0) == Header(durable=True, first_acquirer=True, delivery_count=3).encode()
    mixed = written(batch, batch.schema.names, np.arange(50) % 2, np.zeros(50, np.int64))
    assert isinstance(mixed, list)
    assert len({id(octets) for octets in mixed}) == 2


# --- Annotations laid over


@given(st.one_of(st.none(), maps), st.lists(maps, max_size=3))
@settings(STEADY, max_examples=200)
def test_annotations_are_merged_and_the_last_one_wins(stored: dict[Any, Any] | None, laid: list[dict[Any, Any]]) -> None:
    """Q12: the next receiver of the message gets the annotations of a *modified* outcome."""
    untouched = Message(message_annotations={Symbol("u"): 1}, data=[b"u"]).encode()
    octets = [untouched, Message(message_annotations=stored, data=[b"x"], footer={Symbol("f"): 1}).encode(), untouched]
    plain = leaving(arrived(octets).batch, 0, 0, {})
    encoded = leaving(arrived(octets).batch, 0, 0, {1: [encode(m) for m in laid]} if laid else {})
    assert [encoded[0], encoded[2]] == [plain[0], plain[2]]
    expected: dict[Any, Any] = dict(stored or {})
    for overlay in laid:
        expected.update(overlay)
    merged = decode_message(encoded[1]).message_annotations
    assert encode(merged or {}) == encode(expected)
    assert (bare(encoded[1]), section(encoded[1], 0x78)) == (bare(octets[1]), section(octets[1], 0x78))


def test_values_of_stored_annotations_keep_their_octets() -> None:
    long_form = b"\xa3\x01a\x70\x00\x00\x00\x01"  # a uint that a byte would hold, and a quiet NaN with a message of its own
    content = long_form + b"\xa3\x01b\x72\x7f\xc0\x00\x07"
    stored = b"\x00\x53\x72\xc1" + bytes((len(content) + 1, 4)) + content
    batch = arrived([stored + Message(data=[b"x"]).encode()]).batch
    (left,) = leaving(batch, 0, 1, {0: [encode({Symbol("c"): UInt(3)}), encode({Symbol("c"): Float(0.5)})]})
    assert content in left
    assert decode_message(left).message_annotations["c"] == 0.5  # type: ignore[index]


def test_overlays_on_columnar_rows() -> None:
    batch = pa.record_batch({"body": pa.array([b"1", b"2"]), "subject": pa.array(["s", None])})
    plain = leaving(batch, 0, 0, {})
    encoded = leaving(batch, 0, 0, {1: [encode({Symbol("why"): "late"})]})
    assert encoded[0] == plain[0]
    assert decode_message(encoded[1]).message_annotations == {"why": "late"}
    assert bare(encoded[1]) == bare(plain[1])


def test_spark_may_send_bare_messages_with_annotations_beside_them() -> None:
    content = Message(data=[b"x"]).encode()
    notes = pa.array([[("a", "1")], None], pa.map_(pa.string(), pa.string()))
    batch = pa.record_batch({"message": pa.array([content, content]), "annotations": notes})
    encoded = leaving(batch, 0, 0, {})
    assert [decode_message(octets).message_annotations for octets in encoded] == [{"a": "1"}, None]
    assert [bare(octets) for octets in encoded] == [content, content]


@pytest.mark.parametrize(
    "overlay", [b"", encode(5), encode({Symbol("a"): 1})[:-1], encode({Symbol("a"): 1}) + b"\x40", b"\xc1\x00"]
)
def test_an_overlay_that_is_no_map_is_an_error(overlay: bytes) -> None:
    with pytest.raises(DecodeError):
        leaving(arrived([b""]).batch, 0, 0, {0: [overlay]})


# --- Large slices


@given(st.lists(messages, min_size=1, max_size=8), st.data())
@settings(STEADY, max_examples=50)
def test_a_slice_that_is_joined_in_parts_is_the_same(sent: list[Message], data: st.DataObject) -> None:
    batch = arrived([message.encode() for message in sent]).batch
    rows = batch.num_rows
    attempts, returned = np.arange(rows), np.arange(rows) % 2
    laid = {row: [encode({Symbol("n"): row})] for row in data.draw(st.sets(st.integers(0, rows - 1)))}
    whole = leaving(batch, attempts, returned, laid)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.broker_core.messages.encoding.leaving.JOINED_BYTES", data.draw(st.integers(0, 500)))
        assert leaving(batch, attempts, returned, laid) == whole


def test_a_row_that_amqp_cannot_say_is_named() -> None:
    batch = pa.record_batch({"body": pa.array([b""] * 3), "groupSequence": pa.array([1, 2, -3])})
    with pytest.raises(InvalidRequest, match="'groupSequence' in row 2"):
        leaving(batch, 0, 0, {})


def test_no_rows_are_no_messages() -> None:
    assert leaving(arrived([]).batch, 0, 0, {}) == []
    assert leaving(pa.record_batch({"body": pa.array([], pa.binary())}), np.array([]), np.array([]), {}) == []
