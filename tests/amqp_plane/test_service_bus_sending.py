"""Batches and scheduled messages of a listener for Service Bus (message-format 0x80013700)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker_core.amqp import Accepted, Message, Rejected
from penstock.broker_core.amqp.performatives import Disposition, Transfer
from penstock.broker_core.amqp.types import Symbol, Timestamp
from penstock.broker_core.amqp_plane.service_bus.sending import MAX_BATCH
from penstock.broker_core.amqp_plane.service_bus.vendor import BATCH_FORMAT

from ..service.helpers import Clock
from .harness import Stage, stage
from .service_bus import LISTENER, Cbs


class Batches:
    """A connection with a sender to the queue `q`, at handle 2."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        cbs = Cbs(stage, {"any": "key"})
        assert cbs.put(cbs.token("any", "q"), "sb://localhost/q")[0] == 202
        self.script = cbs.script
        self.script.sender("q", 2)
        self.script.frame_size = 1 << 20
        self._count = 1

    def send(self, payload: bytes, format: int = BATCH_FORMAT) -> Disposition:
        frames = [payload[at : at + 60_000] for at in range(0, len(payload) or 1, 60_000)]
        for number, part in enumerate(frames):
            first = {"delivery_id": self._count, "delivery_tag": bytes([self._count]), "message_format": format}
            more = number < len(frames) - 1
            self.script.send((Transfer(handle=2, more=more, **({} if number else first)), part))
        self._count += 1
        while True:
            frame = self.script._frame()
            assert frame is not None
            if isinstance(frame[1], Disposition):
                return frame[1]

    @property
    def count(self) -> int:
        return sum(self.stage.counts("q").values())


def batch(*messages: bytes) -> bytes:
    return Message(data=list(messages)).encode()


def message(body: bytes = b"x", **more: object) -> bytes:
    return Message(data=[body], **more).encode()  # type: ignore[arg-type]


GOOD = message()
BAD = b"\x00\x53\x75\xa0\x09short"


@pytest.fixture
def q(tmp_path: Path) -> Iterator[Batches]:
    with stage(tmp_path, fsync="never", listeners=(LISTENER,), clock=Clock()) as made:
        made.declare("q")
        yield Batches(made)


def test_a_batch_becomes_its_messages_in_order(q: Batches) -> None:
    bodies = [b"%d" % number for number in range(300)]
    assert q.send(batch(*(message(body) for body in bodies))).state == Accepted()
    q.script.receiver("q", 3, 300)
    q.script.expect_messages(*bodies)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (batch(GOOD, BAD, GOOD), "message 1 of the batch is invalid, so none was accepted"),
        (batch(GOOD, os.urandom(20).replace(b"\0", b"x")), "message 1 of the batch is invalid"),
        (Message(value="no batch", has_value=True).encode(), "1 to 10,000 messages"),
        (b"", "1 to 10,000 messages"),
        (b"\x00\x53\x75\xa0\xff", "decode"),
        (batch(*[b""] * (MAX_BATCH + 1)), "1 to 10,000 messages"),
    ],
    ids=["bad", "noise", "no data", "empty", "cut short", "too many"],
)
def test_a_bad_batch_is_refused_whole(q: Batches, payload: bytes, reason: str) -> None:
    state = q.send(payload).state
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert reason in f"{state.error.condition} {state.error.description}"
    assert state.error.info == {}, "the Python SDK reads all three fields"
    assert q.count == 0
    assert q.send(batch(GOOD)).state == Accepted(), "the link continues"


def test_the_largest_batch_is_accepted(q: Batches) -> None:
    assert q.send(batch(*[GOOD] * MAX_BATCH)).state == Accepted()
    assert q.count == MAX_BATCH


def test_a_nested_batch_is_one_message(q: Batches) -> None:
    assert q.send(batch(GOOD, batch(GOOD, GOOD))).state == Accepted()
    assert q.count == 2


def test_a_batch_that_a_full_queue_cannot_take_is_refused_whole(q: Batches) -> None:
    q.stage.declare("small", maxMessages=2, overflow="reject")
    other = Cbs(q.stage, {"any": "key"})
    assert other.put(other.token("any", "small"), "sb://localhost/small")[0] == 202
    other.script.sender("small", 2)
    frame = Transfer(handle=2, delivery_id=1, delivery_tag=b"t", message_format=BATCH_FORMAT)
    other.script.send((frame, batch(GOOD, GOOD, GOOD)))
    state = other.script.expect(Disposition).state
    assert isinstance(state, Rejected)
    assert sum(q.stage.counts("small").values()) == 0


def test_another_format_is_refused(q: Batches) -> None:
    assert isinstance(q.send(GOOD, format=7).state, Rejected)


@pytest.mark.parametrize("in_batch", [False, True])
def test_a_scheduled_message_waits_for_its_time(q: Batches, in_batch: bool) -> None:
    at = q.stage.service.wall_ms() + 60_000
    later = message(message_annotations={Symbol("x-opt-scheduled-enqueue-time"): Timestamp(at), Symbol("x-opt-a"): "b"})
    assert q.send(batch(later) if in_batch else later, BATCH_FORMAT if in_batch else 0).state == Accepted()
    assert q.stage.counts("q")["delayed"] == 1
    q.stage.pass_time(61)
    assert q.stage.counts("q")["available"] == 1


def test_a_schedule_that_is_no_time_is_refused(tmp_path: Path) -> None:
    """More refused messages and batches than the link has credit take none of it away."""
    odd = message(message_annotations={Symbol("x-opt-scheduled-enqueue-time"): "tomorrow"})
    with stage(tmp_path, fsync="never", listeners=(LISTENER,), clock=Clock(), amqp_credit=20) as made:
        made.declare("q")
        q = Batches(made)
        for payload, format in ((odd, 0), (batch(odd), BATCH_FORMAT)):
            for _ in range(25):
                assert isinstance(q.send(payload, format).state, Rejected)
        assert q.count == 0
        assert q.send(batch(GOOD)).state == Accepted()
