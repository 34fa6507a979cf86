"""Batches to topics, which are accepted as a whole, and scheduled messages for queues and topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker_core.amqp import Accepted, Message, Rejected
from penstock.broker_core.amqp.performatives import Disposition, Properties, Transfer
from penstock.broker_core.amqp.types import Symbol, Timestamp
from penstock.broker_core.amqp_plane.service_bus.vendor import BATCH_FORMAT
from penstock.broker_core.engine import commands as c

from ..journal.lying_disk import LyingDisk
from ..service.helpers import Clock
from .harness import Stage, stage
from .service_bus import LISTENER, Cbs
from .test_service_bus_requests import SCHEDULE, Manager
from .test_service_bus_sending import batch

FULL = "amqp:resource-limit-exceeded"


def about(subject: str) -> bytes:
    return Message(properties=Properties(subject=subject), data=[b"x"]).encode()


class Topic:
    """A sender to the topic `news`, and queues that are bound by key."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        stage.exchange("news", "topic", unroutable="refuse")
        cbs = Cbs(stage, {"any": "key"})
        assert cbs.put(cbs.token("any", "news"), "sb://localhost/news")[0] == 202
        self.script = cbs.script
        self.script.sender("news", 2)
        self._count = 0

    def subscription(self, name: str, key: str = "#", **options: object) -> None:
        self.stage.declare(name, **options)
        self.stage.service.submit(c.Bind("news", name, key))

    def send(self, *subjects: str) -> object:
        self._count += 1
        frame = Transfer(handle=2, delivery_id=self._count, delivery_tag=bytes([self._count]), message_format=BATCH_FORMAT)
        self.script.send((frame, batch(*map(about, subjects))))
        return self.script.expect(Disposition).state

    def counts(self, *names: str) -> list[int]:
        return [self.stage.counts(name).get("available", 0) for name in names]


@pytest.fixture
def topic(tmp_path: Path) -> Iterator[Topic]:
    with stage(tmp_path, fsync="never", listeners=(LISTENER,), clock=Clock()) as made:
        yield Topic(made)


def test_a_batch_arrives_in_each_subscription(topic: Topic) -> None:
    topic.subscription("all")
    topic.subscription("sport", "sport.*")
    assert topic.send("sport.a", "rain", "sport.b") == Accepted()
    assert topic.counts("all", "sport") == [3, 2]


@pytest.mark.parametrize("overflow", ["block", "reject"])
def test_a_batch_that_one_subscription_cannot_take_is_refused_whole(topic: Topic, overflow: str) -> None:
    topic.subscription("all")
    topic.subscription("sport", "sport.*", maxMessages=1, overflow=overflow)
    state = topic.send("sport.a", "rain", "sport.b")
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == FULL
    assert "queue 'sport'" in str(state.error.description)
    assert topic.counts("all", "sport") == [0, 0]
    assert topic.send("sport.a", "rain") == Accepted()
    assert topic.counts("all", "sport") == [2, 1]


def test_a_batch_with_a_message_for_no_subscription_is_refused_whole(topic: Topic) -> None:
    topic.subscription("sport", "sport.*")
    state = topic.send("sport.a", "rain")
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert (state.error.condition, "'rain' to no queue" in str(state.error.description)) == ("amqp:not-found", True)
    assert topic.counts("sport") == [0]


def test_a_scheduled_message_waits_in_each_subscription(topic: Topic) -> None:
    topic.subscription("all")
    topic.subscription("sport", "sport.*")
    at = Timestamp(topic.stage.service.wall_ms() + 60_000)
    later = Message(
        message_annotations={Symbol("x-opt-scheduled-enqueue-time"): at}, properties=Properties(subject="sport.a"), data=[b"x"]
    )
    topic.script.send((Transfer(handle=2, delivery_id=1, delivery_tag=b"1", message_format=0), later.encode()))
    assert topic.script.expect(Disposition).state == Accepted()
    assert [topic.stage.counts(name) for name in ("all", "sport")] == [{"delayed": 1}] * 2
    topic.stage.pass_time(61)
    assert topic.counts("all", "sport") == [1, 1]


def test_a_request_to_schedule_for_a_topic_is_refused(topic: Topic) -> None:
    topic.subscription("all")
    manager = Manager(topic.stage, "news")
    assert manager.ask(SCHEDULE, {"messages": [{"message": about("a")}]})[:2] == (501, "amqp:not-implemented")
    assert "send with the scheduled time as a property" in manager.description
    assert topic.stage.counts("all") == {}


def test_a_full_queue_refuses_all_messages_of_a_schedule(topic: Topic) -> None:
    topic.stage.declare("q", maxMessages=2)
    manager = Manager(topic.stage)
    assert manager.ask(SCHEDULE, {"messages": [{"message": about("a")}] * 3})[:2] == (403, FULL)
    assert "queue 'q'" in manager.description
    assert topic.stage.counts("q") == {}
    assert manager.ask(SCHEDULE, {"messages": [{"message": about("a")}] * 2})[0] == 200
    (stat,) = topic.stage.service.submit(c.Stat("q"))
    assert stat["refusedMessages"] == {"full": 3}


def test_a_full_disk_refuses_a_schedule(tmp_path: Path) -> None:
    with stage(tmp_path, disk=LyingDisk(), listeners=(LISTENER,), free_space_mark_bytes=1 << 20) as made:
        made.declare("q")
        manager = Manager(made)
        made.room(1000)
        assert manager.ask(SCHEDULE, {"messages": [{"message": about("a")}]})[:2] == (403, FULL)
        assert "disk" in manager.description
        made.room(None)
        assert manager.ask(SCHEDULE, {"messages": [{"message": about("a")}]})[0] == 200
