"""The list of scenarios for the vendor's SDKs, continued: deferred messages, sessions, rules and transactions."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

import penstock
from penstock import Broker
from penstock.broker_core.client.flight import Client

from ...waiting import until
from ..service_bus import Message, Sdk, bodies, declared, unsettled

_numbers = itertools.count()
TIMEOUTS = ("operationtimeout", "servicetimeout", "timeoutexception")  # Python, JavaScript, Java


@pytest.fixture
def carts(flight: Client) -> str:
    """A queue with sessions."""
    return declared(flight, f"carts-{next(_numbers)}", groups="held")


# ---- deferred messages


def defer(sdk: Sdk, queue: str, *sent: str) -> list[int]:
    """Send messages, and defer them; return their sequence numbers."""
    sdk.send(queue, *sent, together=True)
    messages = sdk.receive(queue, len(sent))
    sdk.settle(*messages, how="defer")
    return [message["sequence_number"] for message in messages]


def misses(sdk: Sdk, from_: str, *numbers: int) -> None:
    if sdk.name == "java":  # its SDK ignores this failure
        assert sdk.deferred(from_, *numbers) == []
        return
    with sdk.fails("messagenotfound"):
        sdk.deferred(from_, *numbers)


def test_a_deferred_message_is_received_by_its_number_alone(sdk: Sdk, flight: Client, queue: str) -> None:
    sdk.send(queue, {"body": "later", "session_id": "of a queue without sessions"}, "next")
    later, following = sdk.receive(queue, 2)
    sdk.settle(later, how="defer")
    assert unsettled(flight, queue) == {"acquired": 1, "deferred": 1}
    (message,) = sdk.deferred(queue, 1)
    assert (message["body"], message["sequence_number"], message["delivery_count"]) == ("later", 1, 1)
    assert message["state"] == "DEFERRED"
    assert 59 < message["locked_until_utc"] - message["enqueued_time_utc"] < 75
    sdk.settle(message, following)
    assert unsettled(flight, queue) == {}
    misses(sdk, queue, 1)


def test_outcomes_of_deferred_messages(sdk: Sdk, flight: Client, queue: str) -> None:
    first, second = sdk.deferred(queue, *defer(sdk, queue, "one", "two"))
    assert sdk.do("renew", token=first["token"])["until"] >= first["locked_until_utc"]
    sdk.settle(first, how="abandon")
    sdk.settle(second, how="dead_letter", reason="Odd", description="It is odd.")
    assert unsettled(flight, queue) == {"deferred": 1}
    (again,) = sdk.deferred(queue, 1)
    assert (again["delivery_count"], again["token"] != first["token"]) == (2, True)
    sdk.settle(again, how="defer")
    letters = sdk.receive(f"{queue}/dead", 2)
    assert [(letter["body"], letter["dead_letter_reason"], letter["delivery_count"]) for letter in letters] == [
        ("two", "Odd", 0),
        ("one", "MaxDeliveryCountExceeded", 0),
    ]
    sdk.settle(letters[0], how="defer")
    sdk.settle(*sdk.deferred(f"{queue}/dead", letters[0]["sequence_number"]))
    assert unsettled(flight, f"{queue}-dead") == {"acquired": 1}


def test_changed_properties(sdk: Sdk, queue: str) -> None:
    if sdk.name.startswith("python"):
        pytest.skip("azure-servicebus for Python changes no properties")
    sdk.send(queue, "refused", {"body": "x", "application_properties": {"shop": "north", "step": "new"}})
    refused, message = sdk.receive(queue, 2)
    with sdk.fails("general"):
        sdk.settle(refused, how="abandon", changed={"step": "x" * 5000})
    sdk.settle(message, how="abandon", changed={"step": "again"})
    again = sdk.take(queue)
    assert (again["properties"], again["delivery_count"]) == ({"shop": "north", "step": "again"}, 1)
    sdk.settle(again, how="defer", changed={"step": "later"})
    (later,) = sdk.deferred(queue, again["sequence_number"])
    assert later["properties"]["step"] == "later"
    sdk.settle(later, how="dead_letter", reason="Odd", description="It is odd.", changed={"step": "never"})
    letter = sdk.take(f"{queue}/dead")
    assert (letter["properties"]["shop"], letter["properties"]["step"]) == ("north", "never")


def test_several_deferred_messages_are_received_in_the_order_of_the_request_or_none(sdk: Sdk, flight: Client, queue: str) -> None:
    one, two = defer(sdk, queue, "one", "two")
    misses(sdk, queue, one, 99)
    assert unsettled(flight, queue) == {"deferred": 2}
    messages = sdk.deferred(f"{queue}#2", two, one, delete=True)
    assert [(message["body"], message["state"]) for message in messages] == [("two", "DEFERRED"), ("one", "DEFERRED")]
    until(lambda: unsettled(flight, queue) == {}, "the messages are settled")


def test_peek_shows_deferred_messages(sdk: Sdk, queue: str) -> None:
    defer(sdk, queue, "deferred")
    sdk.send(queue, "waiting")
    peeked = sdk.peek(queue, 9, number=1)
    assert [(message["body"], message["state"]) for message in peeked] == [("deferred", "DEFERRED"), ("waiting", "ACTIVE")]


# ---- sessions


def of(session: str, *sent: str) -> list[Message]:
    return [{"body": body, "session_id": session} for body in sent]


def consumers(flight: Client, queue: str) -> int:
    count: int = flight.call("queue.stat", queue=queue)["consumers"]
    return count


def leaves(sdk: Sdk, flight: Client, receiver: str) -> None:
    """Close a receiver of a session."""
    queue = receiver.partition("#")[0]
    before = consumers(flight, queue)
    sdk.do("close", from_=receiver)
    until(lambda: consumers(flight, queue) < before, "the receiver has gone")


def test_the_next_session_and_a_given_one(sdk: Sdk, flight: Client, carts: str) -> None:
    sdk.send(carts, *of("red", "r1"), *of("blue", "b1"), *of("red", "r2"), batch=True)
    assert (sdk.accept(f"{carts}#a"), sdk.accept(f"{carts}#b", session="blue")) == ("red", "blue")
    red = sdk.receive(f"{carts}#a", 2)
    assert [(message["body"], message["session_id"], message["sequence_number"]) for message in red] == [
        ("r1", "red", 1),
        ("r2", "red", 3),
    ]
    assert bodies(sdk.receive(f"{carts}#b")) == ["b1"]
    assert bodies(sdk.peek(f"{carts}#a", 9, number=1)) == ["r1", "r2"]
    sdk.settle(*red)
    assert unsettled(flight, carts) == {"acquired": 1}


def test_a_receiver_waits_for_a_session(sdk: Sdk, broker: Broker, flight: Client, carts: str) -> None:
    with sdk.fails(*TIMEOUTS):
        sdk.accept(f"{carts}#a", wait=1)
    until(lambda: consumers(flight, carts) == 0, "the first receiver has gone")
    sdk.program.start("accept", from_=f"{carts}#b")
    until(lambda: consumers(flight, carts) == 1, "the second receiver waits")
    with penstock.connect(broker.amqp_url) as connection:
        connection.send(carts, "r1", group_id="red")
    assert sdk.program.finish()["session"] == "red"
    assert bodies(sdk.receive(f"{carts}#b")) == ["r1"]


def test_a_session_has_one_receiver_and_then_another(sdk: Sdk, flight: Client, carts: str) -> None:
    sdk.send(carts, *of("red", "r1", "r2"))
    sdk.accept(f"{carts}#a", session="red")
    sdk.settle(sdk.take(f"{carts}#a"))
    with sdk.fails("sessioncannotbelocked"):
        sdk.accept(f"{carts}#b", session="red", wait=5)
    leaves(sdk, flight, f"{carts}#a")
    sdk.accept(f"{carts}#b", session="red", wait=5)
    message = sdk.take(f"{carts}#b")
    assert (message["body"], message["delivery_count"]) == ("r2", 0)


def test_two_queues_have_a_session_of_one_name(sdk: Sdk, flight: Client, carts: str) -> None:
    """Java's SDK gives both links the name of the session."""
    other = declared(flight, f"{carts}-other", groups="held")
    for queue in (carts, other):
        sdk.send(queue, *of("red", queue))
        sdk.accept(queue, session="red")
    assert bodies([sdk.take(carts), sdk.take(other)]) == [carts, other]


def test_outcomes_keep_the_order_of_a_session(sdk: Sdk, flight: Client, carts: str) -> None:
    sdk.send(carts, *of("red", "0", "1", "2"), batch=True)
    sdk.accept(carts)
    first, second = sdk.receive(carts, 2)
    sdk.settle(first, how="abandon")
    sdk.settle(second, how="dead_letter", reason="No", description="Not again.")
    again = sdk.take(carts)
    assert (again["body"], again["delivery_count"]) == ("0", 1)
    sdk.settle(again)
    assert bodies(sdk.receive(carts)) == ["2"]
    assert (unsettled(flight, carts), unsettled(flight, f"{carts}-dead")) == ({"acquired": 1}, {"available": 1})


def test_the_lock_of_a_session_ends_unless_it_is_renewed(sdk: Sdk, flight: Client, carts: str) -> None:
    flight.call("queue.alter", queue=carts, options={"lockTimeout": 1000})
    sdk.send(carts, *of("red", "r1", "r2"))
    sdk.accept(carts)
    message, other = sdk.receive(carts, 2)
    before = time.time()
    assert sdk.do("renew_session", from_=carts)["until"] > before + 0.9
    sdk.settle(message)
    until(lambda: unsettled(flight, carts) == {"available": 1}, "the lock has ended")
    for fails in (
        lambda: sdk.do("renew_session", from_=carts),
        lambda: sdk.do("state", from_=carts),
        lambda: sdk.settle(other),
    ):
        with sdk.fails("sessionlocklost"):
            fails()
    sdk.accept(f"{carts}#b", session="red", wait=5)
    again = sdk.take(f"{carts}#b")
    assert (again["body"], again["delivery_count"]) == ("r2", 1)


def test_the_state_of_a_session(sdk: Sdk, flight: Client, carts: str) -> None:
    def state(receiver: str) -> Any:
        return sdk.do("state", from_=f"{carts}#{receiver}")["state"]

    sdk.accept(f"{carts}#a", session="red")
    sdk.accept(f"{carts}#b", session="blue")
    assert state("a") is None
    sdk.do("set_state", from_=f"{carts}#a", state="half of it")
    assert (state("a"), state("b")) == ("half of it", None)
    leaves(sdk, flight, f"{carts}#a")
    sdk.accept(f"{carts}#a", session="red")
    assert state("a") == "half of it"
    sdk.do("set_state", from_=f"{carts}#a", state=None)
    assert state("a") is None


def test_a_deferred_message_of_a_session_needs_its_receiver(sdk: Sdk, flight: Client, carts: str) -> None:
    sdk.send(carts, *of("red", "r1", "r2"), *of("blue", "b1"))
    sdk.accept(f"{carts}#a", session="red")
    sdk.accept(f"{carts}#b", session="blue")
    sdk.settle(sdk.take(f"{carts}#a"), how="defer")
    assert bodies(sdk.receive(f"{carts}#a")) == ["r2"]
    misses(sdk, f"{carts}#b", 1)
    with sdk.fails("sessionlocklost"):
        sdk.deferred(carts, 1)
    (message,) = sdk.deferred(f"{carts}#a", 1)
    assert (message["body"], message["session_id"], message["delivery_count"]) == ("r1", "red", 1)
    leaves(sdk, flight, f"{carts}#a")
    assert unsettled(flight, carts) == {"available": 2, "deferred": 1}
    sdk.accept(f"{carts}#a", session="red")
    (message,) = sdk.deferred(f"{carts}#a", 1)
    assert message["delivery_count"] == 2
    sdk.settle(message)
    assert unsettled(flight, carts) == {"available": 2}


def test_sessions_of_a_subscription(sdk: Sdk, flight: Client) -> None:
    topic = f"news-{next(_numbers)}"
    flight.call("exchange.declare", exchange=topic, type="fanout")
    flight.call("exchange.bind", exchange=topic, queue=declared(flight, f"{topic}.all", groups="held"))
    sdk.send(topic, *of("red", "r1"), *of("blue", "b1"))
    assert sdk.accept(f"{topic}/all") == "red"
    sdk.settle(sdk.take(f"{topic}/all"), how="defer")
    sdk.settle(*sdk.deferred(f"{topic}/all", 1))
    assert unsettled(flight, f"{topic}.all") == {"available": 1}


# ---- rules


def test_subscriptions_with_rules(sdk: Sdk, flight: Client) -> None:
    topic = f"orders-{next(_numbers)}"
    flight.call("exchange.declare", exchange=topic, type="topic", options={"unroutable": "drop"})
    rules = {
        "all": None,
        "large": "amount > 100 AND region = 'eu'",  # an SQL filter
        "mine": "JMSCorrelationID = 'mine' AND region = 'us'",  # a correlation filter
    }
    for subscription, selector in rules.items():
        queue = declared(flight, f"{topic}.{subscription}")
        flight.call("exchange.bind", exchange=topic, queue=queue, key="#", selector=selector, name="a rule")
    messages = [
        {"body": "large", "application_properties": {"amount": 101, "region": "eu"}, "correlation_id": "mine"},
        {"body": "small", "application_properties": {"amount": 100, "region": "eu"}},
        {"body": "far", "application_properties": {"amount": 500, "region": "us"}, "correlation_id": "mine"},
    ]
    sdk.send(topic, *messages, batch=True)
    received = {name: bodies(sdk.receive(f"{topic}/{name}", count)) for name, count in (("all", 3), ("large", 1), ("mine", 1))}
    assert received == {"all": ["large", "small", "far"], "large": ["large"], "mine": ["far"]}
    assert [unsettled(flight, f"{topic}.{name}") for name in rules] == [{"acquired": 3}, {"acquired": 1}, {"acquired": 1}]


def test_a_rule_manager(sdk: Sdk, flight: Client) -> None:
    if sdk.name.startswith("python"):
        pytest.skip("azure-servicebus for Python manages no rules: its administration client does")
    topic = f"rules-{next(_numbers)}"
    flight.call("exchange.declare", exchange=topic, type="topic", options={"unroutable": "drop"})
    flight.call("exchange.bind", exchange=topic, queue=declared(flight, f"{topic}.some"), key="#")
    some = f"{topic}/some"
    sdk.do("create_rule", from_=some, name="large", sql="amount > 100 AND sys.Label = 'order'")
    sdk.do("create_rule", from_=some, name="urgent", correlation={"subject": "news", "properties": {"urgent": True}})
    assert sorted(sdk.do("rules", from_=some)["names"]) == ["$Default", "large", "urgent"]
    sdk.do("delete_rule", from_=some, name="$Default")
    assert sorted(sdk.do("rules", from_=some)["names"]) == ["large", "urgent"]
    with sdk.fails("messagingentityalreadyexists", "serviceerror", "generalerror"):
        sdk.do("create_rule", from_=some, name="large", sql="amount > 1")
    sdk.send(topic, {"body": "1", "subject": "order", "application_properties": {"amount": 101}})
    sdk.send(topic, {"body": "2", "subject": "order", "application_properties": {"amount": 100}})
    sdk.send(topic, {"body": "3", "subject": "news", "application_properties": {"urgent": True}})
    sdk.send(topic, {"body": "4", "subject": "news", "application_properties": {"urgent": False}})
    assert bodies(sdk.receive(some, 2)) == ["1", "3"]
    assert unsettled(flight, f"{topic}.some") == {"acquired": 2}


# ---- transactions


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction(sdk: Sdk, flight: Client, queue: str, commit: bool) -> None:
    """The transaction sends two messages, and completes one of another queue."""
    if sdk.name != "java":
        pytest.skip(f"the SDK of {sdk.name} has no transactions")
    other = declared(flight, f"{queue}-other")
    sdk.send(other, "work")
    token = sdk.take(other)["token"]
    sdk.do("transact", to=queue, messages=[{"body": "one"}, {"body": "two"}], tokens=[token], commit=commit)
    results = unsettled(flight, queue), unsettled(flight, other)
    assert results == (({"available": 2}, {}) if commit else ({}, {"acquired": 1}))
