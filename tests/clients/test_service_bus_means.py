"""Features of Azure Service Bus that queue options and bindings of Penstock provide, over the unmodified Python SDK."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock.broker_core.client.flight import Client

from .driving import Program, Refused
from .service_bus import SETTINGS, unsettled


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return SETTINGS


def bodies(sdk: Program, entity: str, count: int = 10) -> list[str]:
    return [message["body"] for message in sdk.receive(entity, count, wait=1, delete=True)]


def test_a_repeated_message_id_is_dropped(sdk: Program, flight: Client) -> None:
    flight.call("queue.declare", queue="once", options={"duplicateWindow": 1000})
    first = {"body": "one", "message_id": "m1"}
    sdk.do("send", to="once", messages=[first])
    sdk.do("send", to="once", messages=[first, {"body": "two", "message_id": "m2"}, first], batch=True)
    assert bodies(sdk, "once") == ["one", "two"]
    sdk.do("send", to="once", messages=[first])
    assert unsettled(flight, "once") == {}, "the id is remembered"


def test_a_partition_key_is_kept(sdk: Program, flight: Client) -> None:
    flight.call("queue.declare", queue="parts")
    sdk.do("send", to="parts", messages=[{"body": "x", "partition_key": "p"}])
    (message,) = sdk.receive("parts", delete=True)
    assert message["partition_key"] == "p"


def test_a_subscription_forwards_to_a_queue(sdk: Program, flight: Client) -> None:
    """A binding of any queue takes the place of a subscription with auto-forwarding."""
    flight.call("exchange.declare", exchange="orders", type="topic")
    for queue in ("orders.all", "billing"):
        flight.call("queue.declare", queue=queue)
        flight.call("exchange.bind", exchange="orders", queue=queue, key="#")
    sdk.do("send", to="orders", messages=[{"body": "one"}, {"body": "two"}], batch=True)
    assert bodies(sdk, "billing") == bodies(sdk, "orders/all") == ["one", "two"]


def test_dead_letters_are_forwarded_to_a_queue(sdk: Program, flight: Client) -> None:
    """The dead-letter queue of a queue can be any queue, also the one of several."""
    flight.call("queue.declare", queue="morgue")
    flight.call("queue.declare", queue="work", options={"deadLetterQueue": "morgue"})
    sdk.do("send", to="work", messages=[{"body": "bad"}])
    (message,) = sdk.receive("work")
    sdk.do("settle", token=message["token"], how="dead_letter", reason="Odd", description="It is.")
    (letter,) = sdk.receive("morgue", delete=True)
    assert (letter["body"], letter["dead_letter_source"]) == ("bad", "work")


def test_a_batch_to_a_topic_arrives_whole_or_not_at_all(sdk: Program, flight: Client) -> None:
    flight.call("exchange.declare", exchange="events", type="fanout")
    for queue, options in (("events.all", {}), ("events.few", {"maxMessages": 2})):
        flight.call("queue.declare", queue=queue, options=options)
        flight.call("exchange.bind", exchange="events", queue=queue)
    with pytest.raises(Refused) as refused:
        sdk.do("send", to="events", messages=[{"body": f"{number}"} for number in range(3)], batch=True)
    assert refused.value.level == "ServiceBusQuotaExceededError"
    assert unsettled(flight, "events.all") == unsettled(flight, "events.few") == {}
    sdk.do("send", to="events", messages=[{"body": "one"}, {"body": "two"}], batch=True)
    assert bodies(sdk, "events/few") == bodies(sdk, "events/all") == ["one", "two"]


def test_a_full_queue_refuses_scheduled_messages_together(sdk: Program, flight: Client) -> None:
    flight.call("queue.declare", queue="small", options={"maxMessages": 2})
    messages = [{"body": f"{number}"} for number in range(3)]
    with pytest.raises(Refused) as refused:
        sdk.do("schedule", to="small", messages=messages, at=time.time() + 600)
    assert refused.value.level == "ServiceBusQuotaExceededError"
    assert unsettled(flight, "small") == {}


def test_a_message_that_waits_for_its_retry_is_not_scheduled(sdk: Program, flight: Client) -> None:
    flight.call("queue.declare", queue="slow", options={"retryDelay": 60_000})
    sdk.do("send", to="slow", messages=[{"body": "again"}])
    (message,) = sdk.receive("slow")
    sdk.do("settle", token=message["token"], how="abandon")
    assert unsettled(flight, "slow") == {"delayed": 1}
    assert [peeked["state"] for peeked in sdk.do("peek", from_="slow", number=1)["messages"]] == ["ACTIVE"]
    with pytest.raises(Refused, match="was delivered before"):
        sdk.do("cancel", to="slow", numbers=[message["sequence_number"]])


def test_messages_are_scheduled_for_a_topic_by_their_property(sdk: Program, flight: Client) -> None:
    flight.call("exchange.declare", exchange="later", type="fanout")
    flight.call("queue.declare", queue="later.all")
    flight.call("exchange.bind", exchange="later", queue="later.all")
    with pytest.raises(Refused, match="send with the scheduled time as a property"):
        sdk.do("schedule", to="later", messages=[{"body": "x"}], at=time.time() + 600)
    sdk.do("send", to="later", messages=[{"body": "x", "scheduled_enqueue_time_utc": time.time() + 600}])
    assert unsettled(flight, "later.all") == {"delayed": 1}


def test_a_message_for_no_subscription_is_refused(sdk: Program, flight: Client) -> None:
    """The SDK waits for ever for another outcome than *accepted* and *rejected*."""
    flight.call("exchange.declare", exchange="nobody", type="topic")
    with pytest.raises(Refused, match="leads it to no queue: bind a queue") as refused:
        sdk.do("send", to="nobody", messages=[{"body": "x"}])
    assert refused.value.level == "MessagingEntityNotFoundError"
    flight.call("exchange.declare", exchange="anybody", type="topic", options={"unroutable": "drop"})
    sdk.do("send", to="anybody", messages=[{"body": "x"}])
