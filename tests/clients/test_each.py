"""Promises to every foreign client (W4): the same questions, in each client's own terms."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from ..waiting import until
from .conftest import Start
from .driving import Program, Refused

NAMES = ("rhea", "go_amqp", "qpid_jms", "proton")
#: fe2o3-amqp has a part of the tests: it is built without TLS, does not report the end of a drain, and test_fe2o3_amqp.py has its
#: refusals.
ALL = (*NAMES, "fe2o3_amqp")
#: JMS has no annotations, reasons or settled sends, and a closed consumer's link stays until all is acknowledged.
OTHERS = tuple(name for name in ALL if name != "qpid_jms")


def text(value: str, **more: object) -> dict[str, object]:
    return {"durable": True, "body": {"value": {"string": value}}, **more}


def texts(*values: str) -> list[dict[str, object]]:
    return [text(value) for value in values]


def bodies(messages: list[dict[str, object]]) -> list[str]:
    return [message["body"]["value"]["string"] for message in messages]  # type: ignore[index]


def await_counts(flight: Client, queue: str, available: int, acquired: int, within_s: float = 20) -> None:
    """Wait until the queue has these numbers of messages in the two states: a client's outcome may still be on its way."""

    def counts() -> tuple[int, int]:
        stat = flight.call("queue.stat", queue=queue)
        return stat["available"], stat["acquired"]

    until(
        lambda: counts() == (available, acquired),
        lambda: f"{available} available, {acquired} acquired; there are {counts()}",
        limit_s=within_s,
    )


@pytest.fixture(params=ALL)
def client(request: pytest.FixtureRequest, start: Start, broker: Broker) -> Program:
    # A prefetch of JMS would take all messages, which other tests want and these do not.
    return start(request.param, broker.amqp_url, **({"prefetch": 0} if request.param == "qpid_jms" else {}))


def named(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("client", names, indirect=True)


def test_messages_come_in_the_order_they_were_sent(client: Program, queue: str, flight: Client) -> None:
    outcomes = client.send(queue, *(text(str(i)) for i in range(200)))
    assert outcomes == [{"outcome": "accepted"}] * 200
    assert bodies(client.receive(queue, 200)) == [str(i) for i in range(200)]
    client.do("close")
    await_counts(flight, queue, 0, 0)


def test_what_was_accepted_is_gone_and_what_was_held_comes_back_in_place(
    client: Program, queue: str, flight: Client, start: Start, broker: Broker, request: pytest.FixtureRequest
) -> None:
    """W5, C8: a client ends without settling. Its held messages return to their places at the front, counted by the table of
    returns.

    Its link is lost. Without a default outcome, the messages up to the one after the last settled message count. qpid-jms uses
    modified with delivery-failed, which raises the delivery count of all held messages.
    """
    client.send(queue, *texts("a", "b", "c", "d"))
    client.receive(queue, 1)
    assert bodies(client.receive(queue, 2, outcome="hold")) == ["b", "c"]
    await_counts(flight, queue, 1, 2)
    client.kill()
    again = start("proton", broker.amqp_url)
    back = again.receive(queue, 3)
    assert bodies(back) == ["b", "c", "d"]
    behind = 1 if request.node.callspec.params["client"] == "qpid_jms" else 0
    assert [(message["deliveryCount"], message["firstAcquirer"]) for message in back] == [(1, False), (behind, False), (0, True)]


@named(*OTHERS)
def test_a_link_that_ends_gives_back_what_it_held(client: Program, queue: str, flight: Client) -> None:
    client.send(queue, *texts("a", "b"))
    client.receive(queue, 1, outcome="hold")
    client.do("detach", from_=queue)
    await_counts(flight, queue, 2, 0)
    assert bodies(client.receive(queue, 2)) == ["a", "b"]


def test_released_messages_come_again_uncounted(client: Program, queue: str) -> None:
    client.send(queue, *texts("a", "b"))
    client.receive(queue, 1, outcome="release")
    first, second = client.receive(queue, 2)
    assert bodies([first, second]) == ["a", "b"]
    assert first["deliveryCount"] == 0


def test_modified_as_failed_counts_the_attempt(client: Program, queue: str) -> None:
    client.send(queue, text("a"))
    client.receive(queue, 1, outcome={"modify": {"failed": True}})
    (again,) = client.receive(queue, 1)
    assert again["deliveryCount"] == 1


@named(*OTHERS)
def test_modified_annotations_are_merged(client: Program, queue: str) -> None:
    client.send(queue, text("a", annotations={"x-opt-kept": {"int": 1}, "x-opt-changed": {"int": 1}}))
    added = {"x-opt-changed": {"int": 2}, "x-opt-new": {"string": "here"}}
    client.receive(queue, 1, outcome={"modify": {"failed": True, "annotations": added}})
    (again,) = client.receive(queue, 1)
    assert {name: next(iter(value.values())) for name, value in again["annotations"].items()} == {
        "x-opt-kept": 1,
        "x-opt-changed": 2,
        "x-opt-new": "here",
    }


@named(*OTHERS)
def test_Q23_modified_says_when_the_message_comes_again(client: Program, queue: str, flight: Client) -> None:
    """With a delay of an hour it is delayed; without a delay it is available immediately."""
    client.send(queue, *texts("a", "b"))
    later = {"x-opt-delivery-delay": {"int": 3_600_000}}
    client.receive(queue, 1, outcome={"modify": {"failed": True, "annotations": later}})
    assert bodies(client.receive(queue, 1, outcome={"modify": {"failed": True}})) == ["b"]
    (again,) = client.receive(queue, 1)
    assert (bodies([again]), again["deliveryCount"]) == (["b"], 1)
    stat = flight.call("queue.stat", queue=queue)
    assert (stat["delayed"], stat["available"]) == (1, 0)


def test_undeliverable_here_goes_to_somebody_else(client: Program, queue: str, start: Start, broker: Broker) -> None:
    client.send(queue, *texts("a", "b"))
    client.receive(queue, 1, outcome={"modify": {"failed": True, "undeliverable": True}})
    assert bodies(client.receive(queue, 1)) == ["b"]
    (message,) = start("proton", broker.amqp_url).receive(queue, 1)
    assert bodies([message]) == ["a"]
    assert message["deliveryCount"] == 1


def test_rejected_messages_leave_the_queue_with_that_outcome(client: Program, queue: str, flight: Client) -> None:
    client.send(queue, text("a"))
    client.receive(queue, 1, outcome="reject")
    client.do("close")
    await_counts(flight, queue, 0, 0)
    rows = [
        row
        for batch in flight.get(op="browse", queue=queue, columns=["outcome"], states=["archived"])
        for row in batch.to_pylist()
    ]
    assert [row["outcome"] for row in rows] == ["rejected"]


@named(*OTHERS)
def test_a_reason_for_a_rejection_is_taken(client: Program, queue: str, flight: Client) -> None:
    client.send(queue, text("a"))
    client.receive(queue, 1, outcome={"reject": {"condition": "app:spoilt", "description": "smells"}})
    client.do("close")
    await_counts(flight, queue, 0, 0)


@named(*NAMES)
def test_drain_says_when_there_is_nothing_more(client: Program, queue: str) -> None:
    assert client.do("drain", from_=queue, credit=5)["messages"] == []
    client.send(queue, *texts("a", "b"))
    assert bodies(client.do("drain", from_=queue, credit=5)["messages"]) == ["a", "b"]
    client.send(queue, text("c"))
    assert bodies(client.receive(queue, 1)) == ["c"]


def test_credit_is_kept(client: Program, queue: str, flight: Client) -> None:
    client.send(queue, *texts("a", "b", "c", "d"))
    client.receive(queue, 2, credit=2, outcome="hold")
    await_counts(flight, queue, 2, 2)


def test_browsing_takes_nothing(client: Program, queue: str, flight: Client) -> None:
    client.send(queue, *texts("a", "b"))
    assert bodies(client.receive(queue, 2, browse=True)) == ["a", "b"]
    client.do("close")
    await_counts(flight, queue, 2, 0)


def test_the_anonymous_terminus_goes_by_each_message_s_to(client: Program, queue: str, flight: Client) -> None:
    flight.call("queue.declare", queue=f"{queue}-2")
    for to in (queue, f"{queue}-2", queue):
        assert client.send(None, text(to, properties={"to": to})) == [{"outcome": "accepted"}]
    assert bodies(client.receive(queue, 2)) == [queue] * 2
    assert bodies(client.receive(f"{queue}-2", 1)) == [f"{queue}-2"]


def test_the_anonymous_terminus_refuses_an_unknown_to_and_goes_on(client: Program, queue: str) -> None:
    try:
        (outcome,) = client.send(None, text("x", properties={"to": "nowhere"}))
        refused = outcome.get("error", outcome)["condition"]
    except Refused as error:
        refused = error.condition
    assert refused == "amqp:not-found"
    assert client.send(None, text("x", properties={"to": queue})) == [{"outcome": "accepted"}]


@named(*NAMES)
@pytest.mark.parametrize("way", ["send", "receive"])
def test_an_unknown_address_is_refused_and_the_connection_lives_on(client: Program, queue: str, way: str) -> None:
    arguments = {"to": "nowhere", "messages": texts("x")} if way == "send" else {"from_": "nowhere", "count": 1}
    with pytest.raises(Refused) as refused:
        client.do(way, **arguments)
    assert (refused.value.level, refused.value.condition) == ("link", "amqp:not-found")
    client.send(queue, text("a"))
    assert bodies(client.receive(queue, 1)) == ["a"]


def test_two_sessions_are_two_consumers(client: Program, queue: str, flight: Client) -> None:
    client.send(queue, *texts("a", "b"), session=0)
    assert bodies(client.receive(queue, 1, session=1, outcome="hold")) == ["a"]
    assert bodies(client.receive(queue, 1, session=2)) == ["b"]
    await_counts(flight, queue, 0, 1)


def test_large_messages_come_whole(client: Program, queue: str) -> None:
    """Several MiB: dozens of frames each way."""
    body = (bytes(range(256)) * 20_000).hex()
    client.send(queue, {"durable": True, "body": {"data": body}}, text("after"))
    large, after = client.receive(queue, 2)
    assert large["body"]["data"] == body
    assert bodies([after]) == ["after"]


@named(*OTHERS)
def test_settled_when_sent(client: Program, queue: str, flight: Client) -> None:
    client.send(queue, *texts("a", "b"), settled=True)
    assert bodies(client.receive(queue, 2)) == ["a", "b"]


@pytest.mark.parametrize("mechanism", ["none", "ANONYMOUS"])
def test_on_loopback_nobody_needs_a_name(mechanism: str, start: Start, broker: Broker, queue: str) -> None:
    for name in ALL:
        client = start(name, broker.amqp_url, mechanism=mechanism)
        client.send(queue, text(name))
        assert bodies(client.receive(queue, 1)) == [name]
        client.do("close")


def test_header_fields_arrive(client: Program, queue: str) -> None:
    client.send(queue, text("a", priority=7, ttl=60_000), {**text("b"), "durable": False})
    first, second = client.receive(queue, 2)
    assert (first["durable"], first["priority"]) == (True, 7)
    assert second["durable"] is False
    if "ttl" in first:
        assert 0 < first["ttl"] <= 60_000  # the remaining time (Q9)
    else:  # JMS shows the time of expiry instead
        assert first["expiration"] > 0


def test_who_is_idle_stays_connected(start: Start, tmp_path: Path) -> None:
    """Heartbeats, both ways: each end would give up a silent peer after a second or two, and does not.

    proton's blocking connection cannot send heartbeats while its program waits for something else.
    """
    with Broker(tmp_path, fsync="never", amqp_idle_timeout_s=1) as broker:
        clients = {name: start(name, broker.amqp_url, idle=2) for name in ALL if name != "proton"}
        for name, client in clients.items():
            broker.declare(name)
            client.send(name, text("before"))
        time.sleep(5)  # more than twice the limit of either end
        for name, client in clients.items():
            client.send(name, text("after"))
            assert bodies(client.receive(name, 2)) == ["before", "after"]
            client.do("close")
