"""The options table: allowed and refused values, and refusals that name the option and the remedy."""

from __future__ import annotations

import pickle
import secrets
import time
from datetime import datetime, timezone

import pytest

from penstock.broker_core import moments
from penstock.broker_core.actions.lease_actions import MAX_LEASE_TIMEOUT_S
from penstock.broker_core.client.discovery import Endpoint
from penstock.broker_core.engine.model import lease
from penstock.broker_core.errors import InvalidRequest
from penstock.connector.options import OPTIONS, RANDOM_LEASE, READ, STREAM, TIMES, WRITE, Options
from penstock.connector.task.partition import BrowsePartition

URL = "grpc://127.0.0.1:8815"
BASE = {"url": URL, "queue": "orders"}


def test_the_engine_recognizes_the_lease_of_a_query_without_a_name() -> None:
    """The connector has a pattern of its own, because it cannot import the engine."""
    name = f"q-{secrets.token_hex(16)}"
    assert RANDOM_LEASE.fullmatch(name)
    assert all(lease._RANDOM_NAME.fullmatch(text) for text in (name, f"alice:{name}", f"{name}/orders"))


def test_names_are_case_insensitive_and_absent_ones_have_their_defaults() -> None:
    options = Options({"URL": URL, "Queue": "orders", "maxmessagespertrigger": "10"})
    assert (options["url"], options["queue"], options["maxMessagesPerTrigger"]) == (URL, ("orders",), 10)
    assert options["failOnDataLoss"] is True
    assert options["states"] == ("available",)
    assert options["minPartitions"] == 1
    assert options["lease"] is None


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("url", "grpc://[::1]:8815", "grpc://[::1]:8815"),
        ("url", "grpc://broker.example:1", "grpc://broker.example:1"),
        ("url", "grpc+tls://broker.example:1", "grpc+tls://broker.example:1"),
        ("url", "amqp://broker.example", "amqp://broker.example"),
        ("url", "amqps://[::1]:5671", "amqps://[::1]:5671"),
        ("queue", "orders, returns", ("orders", "returns")),
        ("queue", "orders,,old", ("orders,old",)),
        ("maxBytesPerTrigger", "64m", 64 << 20),
        ("maxBytesPerTrigger", "1 GiB", 1 << 30),
        ("maxBytesPerTrigger", "4096", 4096),
        ("leaseTimeout", "90", 90),
        ("leaseTimeout", "10m", 600),
        ("leaseTimeout", "2 h", 7200),
        ("leaseTimeout", "3650d", MAX_LEASE_TIMEOUT_S),
        ("failOnDataLoss", "FALSE", False),
        ("lease", "nightly", "nightly"),
        ("lease", "q-12", "q-12"),
        ("states", "archived, available", ("available", "archived")),
        ("startingSequence", "0", 0),
        ("startingTimestamp", "1970-01-01T00:00:01Z", 1_000_000),
        ("startingTimestamp", "1970-01-01T01:00:00.000001+01:00", 1),
        ("endingTimestamp", "1970-01-02", 86_400_000_000),
        ("startingTimestamp", "1969-12-31T23:59:59.999999Z", -1),
        ("startingTimestamp", "20260301", 1_772_323_200_000_000),
        ("startingTimestamp", "1772323200123", 1_772_323_200_123_000),
        ("pushdown", "true", True),
        ("mode", "Browse", "browse"),
    ],
)
def test_a_value_is_read(name: str, text: str, value: object) -> None:
    assert Options({name: text})[name] == value


def test_relative_times_are_fixed_when_the_options_are_read() -> None:
    """Spark pickles the source, and its processes must read the same rows."""
    now = datetime(2026, 11, 28, 14, 30, tzinfo=timezone.utc)
    texts = {**BASE, "startingTimestamp": "yesterday", "endingTimestamp": "-2h"}
    for options in (read := Options(texts, now), pickle.loads(pickle.dumps(read)), *read.per_broker()):
        times = [moments.written(options[name]) for name in TIMES]
        assert (times, options.relative) == (["2026-11-27T00:00:00Z", "2026-11-28T12:30:00Z"], set(TIMES))
    assert Options({**texts, "startingTimestamp": "2026-11-27"}, now).relative == {"endingTimestamp"}
    before = time.time_ns() // 1000
    assert before <= Options({"startingTimestamp": "now"})["startingTimestamp"] <= time.time_ns() // 1000
    with pytest.raises(InvalidRequest, match=r"startingTimestamp, .*Z, is not before endingTimestamp"):
        Options({"startingTimestamp": "now", "endingTimestamp": "now"})


def test_a_name_with_a_slash_is_the_address_of_another_broker_and_no_queue_of_ours() -> None:
    options = Options({**BASE, "queue": "/amq/queue/orders"})
    options.check_for(WRITE)
    with pytest.raises(InvalidRequest, match="use 'orders' "):
        options.check_for(READ)
    with pytest.raises(InvalidRequest, match="use 'orders' "):
        options.check_names()
    with pytest.raises(InvalidRequest, match="without '/'"):
        Options({**BASE, "queue": "orders/eu"}).check_names()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("url", "http://127.0.0.1:80"),
        ("url", "grpc://127.0.0.1"),
        ("url", "grpc+tls://127.0.0.1"),
        ("url", "amqp://"),
        ("url", "amqp://127.0.0.1/orders"),
        ("url", "amqp+tls://127.0.0.1"),
        ("userName", ""),
        ("caFile", ""),
        ("url", "grpc://127.0.0.1:8815/orders"),
        ("url", "amqp://a,http://b"),
        ("url", "amqp://a,"),
        ("url", ",".join(f"amqp://b{i}" for i in range(65))),
        ("failOnBrokerLoss", "perhaps"),
        ("queue", ""),
        ("queue", " "),
        ("queue", "a,"),
        ("queue", "a, ,b"),
        ("queue", "a,b,a"),
        ("queue", ",".join(f"q{i}" for i in range(129))),
        ("queue", "x" * 256),
        ("exchange", ""),
        ("exchange", "/key"),
        ("exchange", "x/" + "k" * 256),
        ("maxMessagesPerTrigger", "0"),
        ("maxMessagesPerTrigger", "-1"),
        ("maxMessagesPerTrigger", "many"),
        ("maxMessagesPerTrigger", "1.5"),
        ("maxMessagesPerTrigger", str(2**63)),
        ("maxBytesPerTrigger", "0"),
        ("maxBytesPerTrigger", "64x"),
        ("maxBytesPerTrigger", "b64"),
        ("leaseTimeout", "59"),
        ("leaseTimeout", "3651d"),
        ("leaseTimeout", "10 mb"),
        ("failOnDataLoss", "yes"),
        ("lease", "q-" + "0" * 32),
        ("lease", ""),
        ("mode", "steal"),
        ("minPartitions", "0"),
        ("maxMessagesPerPartition", "0"),
        ("states", "waiting"),
        ("states", ""),
        ("startingSequence", "-1"),
        ("startingTimestamp", "tomorrow"),
        ("endingTimestamp", "-2"),
        ("operation", "delete"),
        ("txnVersion", "-1"),
        ("ignoreUnknownColumns", "1"),
    ],
)
def test_a_wrong_value_is_refused_by_name_with_what_is_allowed(name: str, text: str) -> None:
    allowed = next(option.allowed for option in OPTIONS if option.name == name)
    with pytest.raises(InvalidRequest) as refusal:
        Options({name: text})
    assert f"option {name} " in str(refusal.value)
    assert repr(text) in str(refusal.value)
    assert allowed in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"maxMesagesPerTrigger": "1"},
            "no option 'maxMesagesPerTrigger': did you mean maxMessagesPerTrigger\\? Allowed are .*maxMessagesPerTrigger",
        ),
        ({"path": "orders"}, "option queue"),
        ({"url": "amqp://ann:hunter2@127.0.0.1"}, "userName and password"),
        ({"userName": "ann"}, "give both, or neither"),
        ({"password": "hunter2"}, "give both, or neither"),
        ({"keyFile": "key.pem"}, "without certFile"),
        ({"caFile": "nowhere.pem"}, "options .*caFile.*nowhere.pem cannot be read"),
        ({"url": "grpc://broker.example:1", "userName": "ann", "password": "hunter2"}, "in the open: use grpc"),
        ({"operation": "settle", "queue": "orders"}, "the column 'delivery' names the message"),
        ({"exchange": "logs", "queue": "orders"}, "name one of them"),
        ({"selector": "color = "}, "option selector: the selector is wrong at character 9: found the end; allowed here: a name"),
        ({"provider": "amqp", "option.url": URL, **BASE}, "a table of Spark's catalog cannot be a queue.* CREATE TEMPORARY VIEW"),
        ({"txnAppId": "job"}, "name both, or neither"),
        ({"txnVersion": "1"}, "name both, or neither"),
        ({"startingSequence": "5", "endingSequence": "4"}, "startingSequence"),
        ({"startingTimestamp": "2025-01-01", "endingTimestamp": "2025-01-01"}, "startingTimestamp"),
    ],
)
def test_a_refusal_says_what_to_do(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        Options(options)


@pytest.mark.parametrize(("text", "selector"), [("", None), (" \t", None), ("JMSPriority > 4", "JMSPriority > 4")])
def test_a_selector_is_kept_as_it_was_written(text: str, selector: str | None) -> None:
    """Another broker need not know `amqp.priority`, the canonical name."""
    assert Options({**BASE, "selector": text})["selector"] == selector


def test_a_password_is_never_repeated_in_an_error() -> None:
    for options in (
        {"password": "hunter2"},
        {"url": "amqp://ann:hunter2@h"},
        {"url": "grpc://broker.example:1", "userName": "ann", "password": "hunter2"},
    ):
        with pytest.raises(InvalidRequest) as refusal:
            Options(options)
        assert "hunter2" not in str(refusal.value)


def test_a_password_travels_and_does_not_show() -> None:
    options = Options({**BASE, "url": "amqp://broker.example", "userName": "ann", "password": "hunter2"})
    assert (options.access.credentials.user, options.access.credentials.password) == ("ann", "hunter2")
    assert pickle.loads(pickle.dumps(options)).access == options.access
    assert "hunter2" not in repr((options, dict(options), options.access, vars(options)))
    part = BrowsePartition(Endpoint("grpc://broker.example:1", "a-token"), {"op": "browse"})
    assert "hunter2" not in repr(part)
    assert "a-token" not in repr((part, vars(part)))


@pytest.mark.parametrize(
    ("place", "options", "says"),
    [
        (STREAM, {"queue": "orders"}, "url is missing"),
        (STREAM, {"url": URL}, "queue is missing"),
        (READ, {"url": URL}, "queue is missing"),
        (STREAM, {**BASE, "states": "archived"}, "states has no meaning for spark.readStream; it is for spark.read"),
        (STREAM, {**BASE, "mode": "browse"}, "for spark.read"),
        (READ, {**BASE, "mode": "acquire"}, "availableNow"),
        (READ, {**BASE, "maxMessagesPerTrigger": "1"}, "it is for spark.readStream"),
        (WRITE, {**BASE, "lease": "me"}, "has no meaning for df.write"),
        (WRITE, {**BASE, "queue": "a,b"}, "names 2 queues; .* needs one, or a column 'queue'"),
        (
            STREAM,
            {**BASE, "queue": "a," + "b" * 200, "lease": "c" * 55},
            "choose a shorter lease, or give queue 'b+' a query",
        ),
        (READ, {**BASE, "txnAppId": "a", "txnVersion": "1"}, "it is for df.write"),
    ],
)
def test_what_has_no_meaning_in_a_place_is_refused(place: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        Options(options).check_for(place)


def test_each_place_takes_its_own_options() -> None:
    Options({**BASE, "mode": "acquire", "lease": "c", "maxBytesPerTrigger": "1m", "leaseTimeout": "1h"}).check_for(STREAM)
    Options({**BASE, "mode": "browse", "states": "archived", "startingSequence": "3", "pushdown": "true"}).check_for(READ)
    Options({"url": URL, "operation": "send", "checkpointLocation": "/c", "ignoreUnknownColumns": "true"}).check_for(WRITE)


def test_the_outcomes_are_the_engines() -> None:
    from penstock.broker_core.engine.columns.states import Outcome
    from penstock.connector.options import OUTCOMES

    assert [o.name.lower().replace("_", "-") for o in Outcome if o is not Outcome.NONE] == list(OUTCOMES)


def test_an_outcome_is_of_settled_messages() -> None:
    assert Options({**BASE, "states": "archived", "outcome": "Rejected"})["outcome"] == "rejected"
    with pytest.raises(InvalidRequest, match="states to archived"):
        Options({**BASE, "outcome": "rejected"})
    with pytest.raises(InvalidRequest, match=r"outcome cannot be 'lost'.*rejected"):
        Options({**BASE, "states": "archived", "outcome": "lost"})
    assert Options({**BASE, "states": "archived", "recordedAfter": "3"})["recordedAfter"] == 3
    with pytest.raises(InvalidRequest, match="recordedAfter is for settled messages"):
        Options({**BASE, "recordedAfter": "3"})
