"""S11: only messages that the broker sends again are recognised."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Header, Properties
from penstock.broker_core.amqp.types import ULong
from penstock.broker_core.messages.encoding import foreign_messages, reference
from penstock.connector.foreign import batches, consumer, intake
from penstock.connector.foreign.recognition import copies, keys_of
from penstock.connector.foreign.window import Window

from .helpers import INITIAL, Queue, bodies, drained, lost, next_batch


def encoded(id_: object, body: bytes, **around: object) -> bytes:
    return Message(properties=Properties(message_id=id_), data=[body], **around).encode()  # type: ignore[arg-type]


def test_a_message_is_the_same_whatever_a_broker_writes_around_it() -> None:
    again = encoded("a", b"x", header=Header(delivery_count=3), message_annotations={"x-opt-lock": "1"})
    others = [encoded("a", b"y"), encoded("b", b"x"), encoded(ULong(1), b"x"), encoded("1", b"x"), encoded(None, b"x")]
    keys = foreign_messages.keys(pa.array([encoded("a", b"x"), again, *others], pa.binary()))
    assert keys.known.tolist() == [True] * 6 + [False]
    both = list(zip(keys.high.tolist(), keys.low.tolist(), strict=True))
    assert both[0] == both[1]
    assert len(set(both[:6])) == 5


def test_keys_of_many_messages_are_those_of_each() -> None:
    made = pa.array([encoded(f"id-{n}" if n % 3 else None, b"%d" % n) for n in range(2500)], pa.binary())
    keys, parts = foreign_messages.keys(made), [foreign_messages.keys(made.slice(first, 500)) for first in range(0, 2500, 500)]
    for column in range(3):
        assert keys[column].tolist() == [value for part in parts for value in part[column].tolist()]


def test_messages_of_one_id_and_one_length_have_keys_of_their_own() -> None:
    """So many that some of them would have the same sum of 32 bits: 300,000 of one id would be nine too few."""
    count = 300_000
    numbers = np.arange(count, dtype=">u8").view(np.uint8).reshape(count, 8)
    octets = np.random.default_rng(11).integers(0, 256, (count, 8), np.uint8)
    first = encoded("1", b"\0" * 16)
    made = np.tile(np.frombuffer(first, np.uint8), (count, 1))
    made[:, -16:] = np.hstack([numbers, octets])
    offsets = np.arange(0, made.size + 1, len(first), dtype=np.int32)
    messages = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(made.tobytes())])
    keys = keys_of(messages, np.zeros(count, np.int8), ["q"])
    assert keys.known.all()
    assert len(np.unique(keys.high)) == len(np.unique(keys.low)) == count
    assert not copies(keys).any()


def test_a_key_is_the_hash_of_the_whole_bare_message() -> None:
    """Of any size, since Python hashes more than 2,047 octets in another way, and wherever in a batch it is."""
    sizes = [1, 500, 1990, 2000, 2010, 2040, 2047, 2048, 4094, 4095, 9000]
    made = [encoded("a", bytes([size % 256]) * size) for size in sizes]
    digests = [np.frombuffer(sha256(payload).digest()[:16], "<u8").tolist() for payload in made]
    whole_batch = foreign_messages.keys(pa.array(made, pa.binary()))
    assert np.stack([whole_batch.high, whole_batch.low], axis=1).tolist() == digests
    for payload, digest in zip(made, digests, strict=True):
        alone = foreign_messages.keys(pa.array([payload], pa.binary()))
        assert [alone.high[0], alone.low[0]] == digest


def test_a_copy_is_one_that_has_the_whole_key_of_one_before_it() -> None:
    known = np.array([False, True, True, True, True, False, True])
    high = np.array([5, 5, 5, 5, 7, 5, 7], np.uint64)
    low = np.array([1, 1, 2, 1, 9, 1, 9], np.uint64)
    assert copies(foreign_messages.MessageKeys(known, high, low)).tolist() == [False, False, False, True, False, False, True]


def test_a_message_that_is_sent_twice_with_one_id_and_content_comes_once(queue: Queue) -> None:
    queue.send(0, 50)
    queue.send(0, 50)
    reader = queue.reader(maxMessagesPerTrigger="30")
    numbers, _ = drained(reader)
    assert numbers == list(range(50))
    assert reader.reportLatestOffset()["queues"][queue.name]["repeated"] == 50
    reader.stop()
    assert queue.available() == 0


def test_without_recognition_both_of_them_stay(queue: Queue) -> None:
    queue.send(0, 50)
    queue.send(0, 50)
    assert drained(queue.reader(dedupe="none", maxMessagesPerTrigger="30"))[0] == [*range(50)] * 2


def test_an_id_that_a_producer_repeats_loses_nothing(queue: Queue) -> None:
    queue.send_octets([encoded("always", b"%d" % n) for n in range(100)])
    assert drained(queue.reader(maxMessagesPerTrigger="30"))[0] == list(range(100))


def test_a_copy_in_another_queue_is_another_message(queue: Queue) -> None:
    """An exchange sends both with one id and one content."""
    second = f"{queue.name}-copies"
    queue.client.call("queue.declare", queue=second)
    queue.send(0, 20)
    queue.send(0, 20, to=second)
    assert sorted(drained(queue.reader(queue=f"{queue.name},{second}"))[0]) == sorted([*range(20)] * 2)
    queue.client.call("queue.delete", queue=second)


def test_the_window_outlives_the_files(queue: Queue) -> None:
    queue.send(0, 20)
    first = queue.reader()
    _, end = drained(first)
    first.commit(end)
    first.stop()
    assert not [name for name in queue.files() if name.startswith("batch")]
    queue.send(0, 25)
    assert drained(queue.reader(), end)[0] == list(range(20, 25))


def test_a_run_that_takes_what_there_is_goes_on_behind_what_came_before(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """With any number of them: a drain covers the credit, and is repeated while repeated messages come."""
    queue.send(0, 500)
    first = queue.reader()
    _, end = drained(first)
    first.commit(end)
    first.stop()
    monkeypatch.setattr(consumer, "EMPTY_S", 0.0)
    monkeypatch.setattr(consumer, "ENDING_QUIET_S", 0.0)
    monkeypatch.setattr(intake, "FIRST_CREDIT", 10)
    queue.send(0, 510)
    assert drained(queue.reader(), end)[0] == list(range(500, 510))


def test_a_planner_that_recognises_imports_no_pandas(tmp_path: Path) -> None:
    """Its import would take a third of a second of each short run."""
    command = [sys.executable, str(Path(__file__).with_name("without_pandas.py")), str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[5, 4, 11] False"


def test_numbers_of_an_array_that_is_a_part() -> None:
    made = pa.array([1, 2, 3, 4], pa.int8())
    assert batches.numbers_of(made.slice(1, 2), np.int8).tolist() == [2, 3]
    assert batches.numbers_of(made.slice(4), np.int8).tolist() == []
    assert batches.mask_of(np.arange(11) % 3 == 0).to_pylist() == [n % 3 == 0 for n in range(11)]


def test_nothing_is_recognised_where_nobody_asks_for_it(queue: Queue) -> None:
    queue.send(0, 20)
    queue.send(0, 20)
    assert sorted(drained(queue.reader(dedupe="none"))[0]) == sorted([*range(20)] * 2)
    assert not [name for name in queue.files() if name.startswith("keys")]


def test_a_lost_connection_gives_no_message_twice_and_none_up(queue: Queue) -> None:
    queue.send(0, 300)
    reader = queue.reader(maxMessagesPerTrigger="50", settle="committed")
    end = next_batch(reader, INITIAL)
    numbers = bodies(reader, INITIAL, end)
    queue.hidden.cut()  # the batch of 50 is not accepted, and comes again
    lost(reader, queue)
    more, _ = drained(reader, end)
    assert numbers + sorted(more) == list(range(300))
    counts = reader.reportLatestOffset()["queues"][queue.name]
    assert (counts["repeated"], counts["lostConnections"]) == (len(numbers), 1)
    reader.stop()
    assert queue.available() == 0


def test_the_window_finds_what_it_holds_and_nothing_else() -> None:
    window, numbers = Window(1000), np.random.default_rng(7)
    entries: dict[tuple[int, int], int] = {}
    for batch in range(1, 200):
        high, low = (numbers.integers(0, 2**63, 20, dtype=np.uint64) for _ in range(2))
        assert not window.find(high, low).any()
        window.add(batch, high, low)
        entries.update(dict.fromkeys(zip(high.tolist(), low.tolist(), strict=True), batch))
    newest = list(entries.items())[-1000:]
    high, low = (np.array([key[place] for key, _ in newest], np.uint64) for place in (0, 1))
    assert window.find(high, low).tolist() == [batch for _, batch in newest]
    assert not window.find(high, low + np.uint64(1)).any()
    assert 1000 <= len(window) <= 3000


VALUES = st.one_of(st.none(), st.text(max_size=5), st.integers(0, 2**40), st.binary(max_size=5))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.one_of(
                st.none(),
                st.builds(Header, durable=st.booleans(), priority=st.integers(0, 255), delivery_count=st.integers(0, 9)),
            ),
            st.one_of(st.none(), st.dictionaries(st.text("abc", min_size=1, max_size=3), VALUES, max_size=3)),
            st.one_of(st.none(), st.builds(Properties, message_id=st.text(max_size=3), subject=st.text(max_size=3))),
            st.lists(st.binary(max_size=5), max_size=3),
            st.booleans(),
            st.one_of(st.none(), st.binary(max_size=9)),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_whole_messages_are_cut_where_the_plain_decoder_cuts_them(made: list[tuple]) -> None:  # type: ignore[type-arg]
    payloads = [
        damage
        if damage is not None
        else Message(
            header=header,
            message_annotations=notes,
            properties=properties,
            data=data or [b""],
            footer={"f": 1} if foot else None,
        ).encode()
        for header, notes, properties, data, foot, damage in made
    ]
    cut = foreign_messages.cut(pa.array(payloads, pa.binary()))
    for row, payload in enumerate(payloads):
        try:
            message = foreign_messages._plain(payload)
        except reference.REFUSALS:
            assert row in cut.refused
            continue
        assert row not in cut.refused
        line = cut.payload.slice(row, 1).to_pylist()[0]
        assert line["message"] == payload[message.begin : message.end]
        assert (line["priority"], line["durable"]) == (message.priority, message.durable)
        assert (line.get("encodedAnnotations") or b"") == payload[message.note : message.note_end]
        assert cut.attempts[row].as_py() == message.attempts
