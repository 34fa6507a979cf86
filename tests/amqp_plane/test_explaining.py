"""Explanations at real links: each reason is named, and without it the message is delivered."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from penstock.broker_core.actions.actions import ACTIONS
from penstock.broker_core.actions.declaration import ActionCall
from penstock.broker_core.actions.requests import OfQueue
from penstock.broker_core.amqp import Source, Target
from penstock.broker_core.amqp.performatives import Accepted, Attach, Detach, Disposition, Properties, Transfer
from penstock.broker_core.amqp.types import Described, Int, Symbol
from penstock.broker_core.amqp_plane.links.outgoing_link import OutgoingLink
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.limits import EXPLAINED_MESSAGES
from penstock.broker_core.engine.columns.obstacles import Obstacle
from penstock.broker_core.messages.payloads import store, stored_sizes

from ..service.helpers import enqueue
from .frames import begin, detach, flow, message, receives, says, transfer
from .harness import Script, Stage, stage
from .test_slow_peers import SIZE, stalled

SELECTOR = Symbol("apache.org:selector-filter:string")


def explained(s: Stage) -> dict[str, dict[str, Any]]:
    """Return the consumers of the queue by the names of their links."""
    s.settle()
    nothing = cast("Any", None)  # the handler uses the service alone
    call = ActionCall(nothing, s.service, nothing, nothing, nothing, "")
    answer = ACTIONS["queue.explain"].handler(call, OfQueue(queue="q"))
    return {consumer["name"]: consumer for consumer in answer["consumers"]}


def reasons(s: Stage, name: str = "from q") -> list[str]:
    consumer = explained(s)[name]
    assert consumer["receives"] == (not consumer["reasons"])
    return [reason["reason"] for reason in consumer["reasons"]]


Remove = Callable[[], object]


def credit(s: Stage, a: Script) -> Remove:
    a.receiver()
    s.service.submit(enqueue("q", b"next"))
    return lambda: a.send(flow(0, 1))


def window(s: Stage, a: Script) -> Remove:
    a.send(begin(incoming_window=0), channel=1)
    a._frame()
    a.send(receives(), channel=1)
    a.expect(Attach)
    a.send(flow(0, 5, incoming_window=0), channel=1)
    s.service.submit(enqueue("q", b"next"))
    return lambda: a.send(flow(None, incoming_window=9), channel=1)


def unsettled(s: Stage, a: Script) -> Remove:
    a.receiver(credit=5)
    s.service.submit(enqueue("q", b"0", b"1", b"next"))
    a.expect_messages(b"0", b"1")
    return lambda: a.send(says(Accepted(), 0))


def paused(s: Stage, a: Script) -> Remove:
    a.receiver(credit=1)
    s.service.submit(c.PauseQueue("q"))
    s.service.submit(enqueue("q", b"next"))
    return lambda: s.service.submit(c.PauseQueue("q", paused=False))


def inactive(s: Stage, a: Script) -> Remove:
    s.service.submit(c.AlterQueue("q", {"consumers": "single"}))
    a.receiver(handle=1, name="active")
    a.receiver(credit=1)
    s.service.submit(enqueue("q", b"next"))

    def end() -> None:
        a.send(detach(1))
        a.expect(Detach)

    return end


CASES: dict[str, tuple[Callable[[Stage, Script], Remove], list[str]]] = {
    "credit": (credit, ["credit"]),
    "window": (window, ["window"]),
    "unsettled": (unsettled, ["unsettled"]),
    "paused": (paused, ["paused"]),
    "inactive": (inactive, ["inactive"]),
}


@pytest.mark.parametrize("name", CASES)
def test_without_its_reason_a_message_is_delivered(tmp_path: Path, name: str) -> None:
    make, expected = CASES[name]
    with stage(tmp_path, fsync="never", amqp_max_unsettled=2) as s:
        s.declare("q")
        a = s.script(container_id="a").usual()
        remove = make(s, a)
        assert reasons(s) == expected
        remove()
        a.expect_messages(b"next")
        assert reasons(s)[-1] == "empty"


def test_the_limit_of_a_session(tmp_path: Path) -> None:
    with stage(tmp_path, fsync="never", amqp_max_unsettled=2, amqp_max_unsettled_per_session=2) as s:
        s.declare("q")
        a = s.script(container_id="a").usual()
        a.receiver(credit=2)
        s.service.submit(enqueue("q", b"0", b"1", b"next"))
        a.expect_messages(b"0", b"1")
        a.receiver(handle=1, name="other", credit=1)
        assert reasons(s, "other") == ["unsettled-connection"]
        a.send(says(Accepted(), 0))
        a.expect_messages(b"next")


def test_a_link_that_resumes(tmp_path: Path) -> None:
    """Its client has sent a part of its unsettled map."""
    with stage(tmp_path, fsync="never") as s:
        s.declare("q")
        a = s.script(container_id="a").usual()
        a.receiver(credit=1, incomplete_unsettled=True)
        s.service.submit(enqueue("q", b"next"))
        assert reasons(s) == ["resuming"]
        a.send(detach(0))
        a.expect(Detach)
        a.receiver(credit=1, name="whole")
        a.expect_messages(b"next")
        assert reasons(s, "whole") == ["credit", "empty"]


def test_a_link_that_sends(tmp_path: Path) -> None:
    """A step of the loop sends all messages that can leave, so only its own code sees the reason: others wait for the step."""
    with stage(tmp_path, fsync="never") as s:
        s.declare("q")
        a = s.script(container_id="a").usual()
        a.receiver(credit=2)
        s.settle()
        (socket,) = s.plane._accepted
        assert socket.peer is not None
        (link,) = socket.peer.links.values()
        assert isinstance(link, OutgoingLink)
        link._backlog.append((b"tag", b"message"))
        assert link.obstacle is Obstacle.SENDING
        link._backlog.clear()
        assert reasons(s) == ["empty"]
        s.service.submit(enqueue("q", b"next"))
        a.expect_messages(b"next")


def test_messages_that_were_not_examined_are_stated(tmp_path: Path) -> None:
    with stage(tmp_path, fsync="never") as s:
        s.declare("q", groups="held")
        a = s.script(container_id="a").usual()
        count = EXPLAINED_MESSAGES + 1
        grouped = pa.record_batch({"body": pa.array([b"x"] * count, pa.binary()), "groupId": pa.array(["north"] * count)})
        for batch in (grouped, grouped.slice(0, 1)):
            stored = store(batch)
            attributes = s.service.attributes("q", stored.payload)
            s.service.submit(c.Enqueue("q", batch.num_rows, stored_sizes(batch), stored, attributes=attributes))
        a.receiver(name="holder", credit=1)
        a.expect(Transfer)
        b = s.script("B", container_id="b").usual()
        b.receiver()
        reason = explained(s)["from q"]["reasons"][-1]
        assert reason["text"].endswith("; not examined: 1 message behind these, which may be free")


def test_a_selector_that_matches_none_names_their_number_and_the_field_that_may_be_meant(tmp_path: Path) -> None:
    with stage(tmp_path, fsync="never") as s:
        s.declare("q")
        a = s.script(container_id="a").usual()
        a.receiver(credit=1, source=Source(address="q", filter={Symbol("s"): Described(SELECTOR, "priority > 4")}))
        s.service.submit(enqueue("q", b"0", b"1"))
        s.until(lambda: reasons(s) == ["selector"], "the selector is evaluated")
        consumer = explained(s)["from q"]
        (reason,) = consumer["reasons"]
        assert (consumer["selector"], consumer["lookedAt"], reason["messages"]) == ("priority > 4", 2, 2)
        assert reason["text"].startswith("its selector matches none of 2 messages; ")
        assert "JMSPriority" in reason["text"]


def test_a_lower_priority_receives_when_the_higher_one_has_no_credit(tmp_path: Path) -> None:
    with stage(tmp_path, fsync="never") as s:
        s.declare("q")
        a = s.script(container_id="a").usual()
        a.receiver(credit=1)
        a.receiver(handle=1, name="high", credit=1, properties={Symbol("priority"): Int(7)})
        assert (reasons(s, "high"), reasons(s)) == (["empty"], ["empty", "priority"])
        priority = explained(s)["from q"]["reasons"][-1]
        assert priority["by"] in priority["text"]
        assert "has priority 7" in priority["text"]
        s.service.submit(enqueue("q", b"0"))
        a.expect(Transfer, handle=1)
        assert (reasons(s, "high"), reasons(s)) == (["credit", "empty"], ["empty"])
        s.service.submit(enqueue("q", b"1"))
        a.expect(Transfer, handle=0)


def test_a_group_of_another_consumer_is_named_with_its_holder(tmp_path: Path) -> None:
    with stage(tmp_path, fsync="never") as s:
        s.declare("q", groups="held")
        a = s.script(container_id="a").usual()
        a.sender(handle=2)
        grouped = Properties(group_id="north")
        a.send(transfer(0, message(b"0", properties=grouped), handle=2), transfer(1, message(b"1", properties=grouped), handle=2))
        a.expect(Disposition)
        a.receiver(name="holder", credit=1)
        a.expect_messages(b"0")
        b = s.script("B", container_id="b").usual()
        b.receiver(credit=1)
        (reason,) = explained(s)["from q"]["reasons"]
        assert (reason["reason"], reason["messages"]) == ("group", 1)
        assert f"'north' is held by {explained(s)['holder']['peer']} (anonymous)" in reason["text"]
        assert explained(s)["holder"]["held"] == 1
        a.send(says(Accepted(), 0))
        b.expect_messages(b"1")


def test_a_client_that_does_not_read_has_a_blocked_socket(tmp_path: Path) -> None:
    with stage(tmp_path, fsync="never", amqp_max_unsettled=10_000) as s:
        s.declare("q")
        for _ in range(20):
            s.service.submit(enqueue("q", *[b"x" * SIZE] * 10))
        stuck = s.client("stuck", receive_buffer=4096, max_frame_size=1 << 20)
        link = stuck.connection.begin().receiver("never read")
        link.attach(source=Source(address="q"), target=Target())
        stuck.until(lambda: link.remote_attach is not None, "the answer to the attach")
        stuck.reads = False
        link.grant(200)
        stuck.pump()
        s.until(lambda: stalled(s), "its socket is full")
        assert reasons(s, "never read") == ["socket"]


def test_a_link_whose_client_is_away_is_detached(tmp_path: Path) -> None:
    with stage(tmp_path, fsync="never") as s:
        s.declare("q")
        a = s.script(container_id="a").usual()
        a.receiver(credit=2, source=Source(address="q", expiry_policy=Symbol("connection-close"), timeout=60))
        s.service.submit(enqueue("q", b"0"))
        a.expect_messages(b"0")
        a.drop()
        s.until(lambda: next(iter(explained(s).values()))["peer"] is None, "its connection is lost")
        (consumer,) = explained(s).values()
        assert [reason["reason"] for reason in consumer["reasons"]] == ["detached", "empty"]
        assert (consumer["held"], consumer["credit"]) == (1, None)


def test_a_connection_lists_selector_priority_rates_and_last_settlement(tmp_path: Path) -> None:
    with stage(tmp_path, fsync="never") as s:
        s.declare("q")
        a = s.script(container_id="a").usual()
        chosen = Source(address="q", filter={Symbol("s"): Described(SELECTOR, "amqp.priority > 3")})
        a.receiver(credit=3, source=chosen, properties={Symbol("priority"): Int(7)})

        def link() -> dict[str, Any]:
            ((described,),) = [connection["links"] for connection in s.service.connections.all()]
            return dict(described)

        assert (link()["selector"], link()["priority"], link()["lastSettled"]) == ("amqp.priority > 3", 7, None)
        s.service.submit(enqueue("q", b"0", b"1"))
        a.expect_messages(b"0", b"1")
        a.send(says(Accepted(), 0))
        s.until(lambda: link()["settledPerSecond"] > 0, "the rates contain the deliveries")
        assert (link()["credit"], link()["unsettled"]) == (1, 1)
        assert link()["sentPerSecond"] > link()["settledPerSecond"]
        assert abs(link()["lastSettled"] / 1e6 - time.time()) < 60
