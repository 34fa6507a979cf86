"""S12: one query over several brokers, without Spark: the reader's methods in Spark's order, against real brokers."""

from __future__ import annotations

import json
import logging
import random
import threading
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.broker_core import errors
from penstock.connector import identity
from penstock.connector.brokers import consumer as brokers
from penstock.connector.brokers import member
from penstock.connector.brokers.consumer import BrokersConsumer
from penstock.connector.identity import Identity
from penstock.connector.stream.credit import Credit
from penstock.connector.stream.protocols import BrokerConsumer
from penstock.connector.stream.reader import StreamReader

from .helpers import INITIAL, LIMIT, Site


def pushed(site: Site, reader: StreamReader, start: dict[str, Any], letters: str) -> dict[str, Any]:
    """Send a message to each of these, and read a batch; return the offset after it."""
    for letter in letters:
        site.send(letter, 1)
    end = reader.latestOffset(start, LIMIT)
    assert sorted(body[0] for body in site.read(reader, start, end)) == sorted(letters)
    return end


# --- One batch of all ------------------------------------------------------------------------------------------------------


def test_a_batch_has_the_messages_of_all_brokers_and_settles_them_everywhere(site: Site) -> None:
    for letter in "abc":
        site.send(letter, 3)
    reader = site.reader()
    end = reader.latestOffset(INITIAL, LIMIT)
    assert (end["kind"], end["rotation"], list(end["brokers"])) == ("brokers", 1, sorted(map(site.id, "abc")))
    assert sorted(site.read(reader, INITIAL, end)) == site.expected()
    assert reader.reportLatestOffset()["queues"][site.queue]["inFlight"] == 9
    assert json.dumps(reader.latestOffset(end, LIMIT)) == json.dumps(end)  # idle: the same text
    assert site.counts() == dict.fromkeys("abc", (0, 0, 3))


def test_several_queues_at_several_brokers(site: Site) -> None:
    for letter in "ab":
        site.call(letter, "queue.declare", queue="other")
    site.send("a", 2)
    site.send("b", 2)
    reader = site.reader("ab", queue=f"{site.queue},other")
    assert [sorted(batch) for batch in site.drained(reader, INITIAL)[0]] == [["a0", "a1", "b0", "b1"]]


def test_the_limit_holds_for_all_brokers_together_and_nobody_starves(site: Site) -> None:
    for letter, count in (("a", 25), ("b", 8), ("c", 3)):
        site.send(letter, count)
    batches, _ = site.drained(site.reader(maxMessagesPerTrigger="10"), INITIAL)
    assert [len(batch) for batch in batches] == [10, 10, 10, 6]
    assert sorted(body for batch in batches for body in batch) == site.expected()
    assert {body[0] for batch in batches[:3] for body in batch} == {"a", "b", "c"}


def test_credit_is_divided_to_the_last_message() -> None:
    shares = Credit(10, 100).divided(3)
    assert [share.limits(None, exclude=False)[:2] for share in shares] == [(4, 34), (3, 33), (3, 33)]
    assert [share.spent for share in Credit(2, None).divided(3)] == [False, False, True]


def test_what_is_reserved_is_taken_off_messages_and_bytes_and_no_large_message_is_taken_alone_then() -> None:
    credit = Credit(10, 100)
    credit.reserve(Credit(5, 50).divided(2)[0])
    limits = credit.limits(None, exclude=False)
    assert (limits.messages, limits.bytes, limits.alone) == (7, 75, False)
    credit.reserve(Credit(0, 0))
    assert credit.limits(None, exclude=False) == limits
    unlimited = Credit(None, 100)
    unlimited.reserve(Credit(None, 30))
    assert unlimited.limits(None, exclude=False)[:2] == (None, 70)


def test_available_now_takes_what_is_there_at_each(site: Site) -> None:
    site.send("a", 2)
    site.send("b", 1)
    reader = site.reader()
    reader.prepareForTriggerAvailableNow()
    site.send("a", 1)
    site.send("c", 1)
    end = reader.latestOffset(INITIAL, LIMIT)
    assert sorted(site.read(reader, INITIAL, end)) == ["a0", "a1", "b0"]
    assert reader.latestOffset(end, LIMIT) == end


# --- Waiting ---------------------------------------------------------------------------------------------------------------


def test_a_broker_that_has_not_answered_yet_keeps_nobody_waiting(site: Site) -> None:
    """A later trigger looks at its answer."""
    reader = site.reader()
    offset = pushed(site, reader, INITIAL, "abc")
    consumer = reader._kept
    assert isinstance(consumer, BrokersConsumer)
    slow = consumer._members[1]
    assert reader.latestOffset(offset, ReadAllAvailable()) == offset  # settled, and asked to wait no more
    gate, start = threading.Event(), offset["brokers"][slow.id]
    slow.poll = member.Poll(start, slow.ask(lambda _: dict(start) if gate.wait(60) else {}), Credit(0, 0))
    for letters in ("a", "ac", "c"):
        offset = pushed(site, reader, offset, letters)
    site.send("b", 1)
    offset = pushed(site, reader, offset, "a")
    gate.set()
    while (end := reader.latestOffset(offset, LIMIT)) == offset:
        pass
    assert site.read(reader, offset, end) == ["b1"]


def test_a_message_that_comes_to_any_broker_while_the_query_waits_is_the_next_batch(site: Site) -> None:
    reader, offset, bodies = site.reader(maxMessagesPerTrigger="1"), INITIAL, []
    for letter in "abcab":
        assert reader.latestOffset(offset, LIMIT) == offset  # all have been asked to wait
        site.send(letter, 1)
        while (end := reader.latestOffset(offset, LIMIT)) == offset:
            pass
        bodies += site.read(reader, offset, end)
        offset = end
    assert bodies == ["a0", "b0", "c0", "a1", "b1"]


def test_a_query_holds_no_more_than_its_limit_while_a_broker_waits_for_messages(site: Site) -> None:
    """An open share is subtracted from the credit of the others."""
    reader = site.reader("ab", maxMessagesPerTrigger="10")
    offset = pushed(site, reader, INITIAL, "ab")
    offset = pushed(site, reader, offset, "a")  # b's batch is settled
    consumer = reader._kept
    assert isinstance(consumer, BrokersConsumer)
    waiting = next(member for member in consumer._members if member.id == site.id("b"))
    gate, start, share = threading.Event(), offset["brokers"][waiting.id], Credit(10, None).divided(2)[1]

    def wait(asked: BrokerConsumer) -> dict[str, Any]:
        assert gate.wait(60)
        return asked.advance(start, wait_ms=0, credit=share)

    waiting.poll = member.Poll(start, waiting.ask(wait), share)
    site.send("a", 20)
    first = reader.latestOffset(offset, LIMIT)
    site.send("b", 20)
    gate.set()
    waiting.poll.answer.result(60)
    assert {letter: counts[1] for letter, counts in site.counts("ab").items()} == {"a": 5, "b": 5}
    assert len(site.read(reader, offset, first)) == 5
    second = reader.latestOffset(first, LIMIT)
    assert len(site.read(reader, first, second)) == 5
    third = reader.latestOffset(second, LIMIT)
    assert len(site.read(reader, second, third)) == 10  # without other waits


# --- A broker that is away -------------------------------------------------------------------------------------------------


def test_a_broker_that_is_away_is_left_out_and_joins_again(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    monkeypatch.setattr(member, "AGAIN_S", 0.0)
    reader = site.reader("ab", failOnBrokerLoss="false")
    offset = pushed(site, reader, INITIAL, "ab")
    site.send("b", 2)
    site.broker("b").kill()
    offset = pushed(site, reader, offset, "a")
    assert len(offset["held"]) == 2  # b's batch is not known to be settled
    offset = pushed(site, reader, offset, "a")
    site.broker("b").start()
    while (end := reader.latestOffset(offset, LIMIT)) == offset:
        pass
    assert site.read(reader, offset, end) == ["b1", "b2"]
    assert reader.latestOffset(end, LIMIT) == end
    assert site.counts("ab") == {"a": (0, 0, 3), "b": (0, 0, 3)}
    assert [text for text in caplog.messages if "continues without the broker" in text]
    assert [text for text in caplog.messages if "answers again" in text]


def test_a_query_begins_without_a_broker_that_is_away_and_takes_it_up_later(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "AGAIN_S", 0.0)
    first = site.reader("ab")
    offset = pushed(site, first, INITIAL, "ab")
    first.commit(offset)
    first.stop()
    site.send("b", 1)
    site.broker("b").stop()
    with pytest.raises(errors.Unreachable):
        site.reader("ab").latestOffset(offset, LIMIT)
    reader = site.reader("ab", failOnBrokerLoss="false")
    offset = pushed(site, reader, offset, "a")
    assert len(offset["brokers"]) == 2  # b's place is kept
    site.broker("b").start()
    while (end := reader.latestOffset(offset, LIMIT)) == offset:
        pass
    assert site.read(reader, offset, end) == ["b1"]


def test_a_batch_that_is_begun_needs_its_brokers(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "RECONNECT_S", 0.1)
    site.send("a", 1)
    site.send("b", 1)
    end = site.reader("ab").latestOffset(INITIAL, LIMIT)
    site.broker("b").stop()
    after = site.reader("ab", failOnBrokerLoss="false")
    with pytest.raises(errors.Unreachable, match="this one batch needs it"):
        after.partitions(INITIAL, end)
    site.broker("b").start()
    monkeypatch.setattr(member, "AGAIN_S", 0.0)
    assert sorted(site.read(site.reader("ab"), INITIAL, end)) == ["a0", "b0"]


def test_by_default_a_query_waits_for_a_broker_that_restarts(site: Site) -> None:
    reader = site.reader("ab")
    offset = pushed(site, reader, INITIAL, "ab")
    site.broker("b").kill()
    site.broker("b").start()
    assert sorted(pushed(site, reader, offset, "ab")["brokers"]) == sorted(map(site.id, "ab"))


# --- Brokers that come and go between runs ---------------------------------------------------------------------------------


def test_the_checkpoint_of_one_broker_goes_on_with_two_and_back(site: Site) -> None:
    single = site.reader("a")
    first = pushed(site, single, INITIAL, "a")
    assert first["kind"] == "queues"
    two = site.reader("ab")
    second = pushed(site, two, first, "ab")
    third = pushed(site, two, second, "a")
    back = site.reader("a")
    back.prepareForTriggerAvailableNow()
    site.send("b", 1)
    assert back.latestOffset(third, LIMIT) == third
    following = site.reader("a")
    fourth = pushed(site, following, third, "a")
    assert list(fourth["brokers"]) == [site.id("a")]
    assert site.counts("ab") == {"a": (0, 1, 3), "b": (1, 0, 1)}


def test_a_broker_that_holds_a_batch_is_not_taken_out(site: Site) -> None:
    reader = site.reader("ab")
    offset = pushed(site, reader, INITIAL, "ab")
    for call in (
        lambda: site.reader("a").latestOffset(offset, LIMIT),
        lambda: site.reader("a").partitions(INITIAL, offset),
        lambda: site.reader("ac").commit(offset),
    ):
        with pytest.raises(errors.WrongOffset, match=r"holds a batch of this query.*put it back"):
            call()


def test_other_brokers_than_the_checkpoint_s_are_refused(site: Site) -> None:
    reader = site.reader("ab")
    offset = {**pushed(site, reader, INITIAL, "ab"), "held": []}
    with pytest.raises(errors.WrongOffset, match="none of the brokers"):
        site.reader("c").latestOffset(offset, LIMIT)


def test_a_broker_under_two_names_is_refused(site: Site) -> None:
    both = f"{site.broker('a').url},{site.broker('a').amqp_url}"
    with pytest.raises(errors.InvalidOption, match="one broker twice"):
        site.reader("a", url=both).latestOffset(INITIAL, LIMIT)
    with pytest.raises(errors.InvalidOption, match="twice"):
        site.options("aa")


def test_amqp_urls_are_discovered_at_each(site: Site) -> None:
    site.send("a", 1)
    site.send("b", 1)
    reader = site.reader("ab", url=",".join(str(site.broker(letter).amqp_url) for letter in "ab"))
    assert sorted(site.read(reader, INITIAL, reader.latestOffset(INITIAL, LIMIT))) == ["a0", "b0"]


def test_different_versions_are_told(caplog: pytest.LogCaptureFixture) -> None:
    identity.check_identities({"grpc://a:1": Identity("1", "penstock/1.0"), "grpc://b:1": Identity("2", "penstock/1.1")})
    assert "penstock/1.0 at grpc://a:1, penstock/1.1 at grpc://b:1" in caplog.text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rotation": -1}, "invalid rotation"),
        ({"held": ["nobody"]}, "of each broker"),
        ({"brokers": {}}, "no list of brokers"),
        ({"epoch": 1}, "exactly the fields"),
        ({"v": 7}, "newer connector"),
    ],
)
def test_an_offset_that_is_damaged_is_refused(site: Site, change: dict[str, Any], says: str) -> None:
    offset = {"v": 1, "kind": "brokers", "rotation": 1, "held": [], "brokers": {site.id("a"): INITIAL}, **change}
    with pytest.raises(errors.WrongOffset, match=says):
        site.reader().latestOffset(offset, LIMIT)


def test_a_later_planner_fences_the_earlier_at_every_broker(site: Site) -> None:
    def epochs() -> list[int]:
        return [lease["epoch"] for letter in "abc" for lease in site.call(letter, "lease.list")["leases"]]

    old = site.reader()
    offset = pushed(site, old, INITIAL, "abc")
    before = epochs()
    site.send("a", 1)
    end = old.latestOffset(offset, LIMIT)
    new = site.reader()
    (task,) = new.partitions(offset, end)
    assert len(list(new.read(task))) == 1
    for letter in "bc":
        site.send(letter, 1)
    with pytest.raises(errors.Fenced):
        old.latestOffset(end, LIMIT)
    assert epochs() == [epoch + 1 for epoch in before]


# --- Crashes ---------------------------------------------------------------------------------------------------------------


def test_a_crash_between_two_brokers_changes_nothing(site: Site) -> None:
    """The batch that one broker's lease had acquired is the next one, alone."""
    reader = site.reader("ab", lease="me", maxMessagesPerTrigger="6")
    offset = pushed(site, reader, INITIAL, "ab")
    reader.commit(offset)
    reader.stop()
    for letter in "ab":
        site.send(letter, 4)
    part = offset["brokers"][site.id("a")]
    dying = site.reader("a", lease="me", maxMessagesPerTrigger="6")
    dying.latestOffset(part, LIMIT)  # the planner dies here, before it asks b
    after = site.reader("ab", lease="me", maxMessagesPerTrigger="6")
    end = after.latestOffset(offset, LIMIT)
    assert after.latestOffset(offset, LIMIT) == end
    assert site.read(after, offset, end) == ["a1", "a2", "a3", "a4"]
    assert site.drained(after, end)[0] == [["b1", "b2", "b3", "b4"]]


@pytest.mark.parametrize("seed", range(2))
def test_exactly_once_whatever_dies(site: Site, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch's end is logged before it runs, and a logged batch without a commit runs again; planners and brokers die."""
    monkeypatch.setattr(member, "AGAIN_S", 0.0)
    dice = random.Random(seed)
    log: list[dict[str, Any]] = [INITIAL]
    table: dict[int, list[str]] = {}
    loss = {"failOnBrokerLoss": dice.choice(["true", "false"])}

    def planner() -> StreamReader:
        return site.reader(lease="me", maxMessagesPerTrigger="7", **loss)

    reader, idle, step = planner(), 0, 0
    while idle < 5:
        step += 1
        if step < 30:
            site.send(dice.choice("aabc"), dice.randint(1, 5))
        death = dice.choice(["offered", "logged", "read", "broker", "none", "none"]) if step < 30 else "none"
        if death == "broker":
            broker = site.broker(dice.choice("abc"))
            broker.kill()
            if dice.random() < 0.5 and loss["failOnBrokerLoss"] == "false":
                reader.latestOffset(log[-1], LIMIT)
            broker.start()
        if len(log) - 1 not in table and len(log) > 1:
            end = log[-1]  # it runs again
        else:
            end = reader.latestOffset(log[-1], LIMIT)
            if death == "offered" or end == log[-1]:
                idle = idle + 1 if end == log[-1] and step >= 30 else 0
                reader = planner() if death == "offered" else reader
                continue
            log.append(end)
        if death == "logged":
            reader = planner()
            continue
        rows = site.read(reader, log[-2], end)
        assert len(rows) <= 7
        if death == "read":
            reader = planner()
            assert sorted(site.read(reader, log[-2], end)) == sorted(rows)
        table[len(log) - 1] = rows
        if dice.random() < 0.5:
            reader.commit(end)
    assert sorted(row for rows in table.values() for row in rows) == site.expected()
    assert site.counts() == {letter: (0, 0, site.sent[letter]) for letter in "abc"}


@pytest.mark.parametrize("letters", ["ab", "ba"])
def test_a_second_query_that_one_broker_refuses_touches_no_lease_at_another(site: Site, letters: str) -> None:
    site.send("b", 1)
    site.reader("ab", lease="me").latestOffset(INITIAL, LIMIT)  # and dies: no checkpoint names b's lease
    site.call("b", "queue.pause", queue=site.queue)
    site.send("a", 1)
    reader = site.reader("ab", lease="me")
    first = reader.latestOffset(INITIAL, LIMIT)
    reader.partitions(INITIAL, first)
    (lease,) = site.call("b", "lease.list")["leases"]
    site.call("b", "lease.renew", lease="me", epoch=lease["epoch"])
    with pytest.raises(errors.LeaseInUse, match="another query uses lease 'me' now"):
        site.reader(letters, lease="me").latestOffset(INITIAL, LIMIT)
    site.call("b", "queue.resume", queue=site.queue)
    assert site.drained(reader, INITIAL)[0] == [["a0"], ["b0"]]
