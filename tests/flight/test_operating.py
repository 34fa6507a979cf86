"""U3: an operator's requests to a broker: connections, users, messages, and the broker itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core import __version__, amqp, errors
from penstock.broker_core.actions import message_rows
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.amqp_plane import AmqpPlane
from penstock.broker_core.amqp_plane.connections import listing
from penstock.broker_core.client import timeouts
from penstock.broker_core.client.amqp import connect
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS
from penstock.broker_core.security import Right
from penstock.broker_core.service import watch

from ..waiting import until
from .helpers import numbered
from .peers import Peer, Site, furnish

PATIENCE_S = 20.0


@pytest.fixture
def amqp_url(site: Site) -> Iterator[str]:
    """The address of an AMQP plane next to the Flight plane of the site."""
    plane = AmqpPlane(site.service, site.service.settings.amqp_listeners, access=site.access, tls_context=None, flight=None)
    yield plane.urls[0]
    plane.close()


def of_amqp(peer: Peer) -> list[dict[str, Any]]:
    return [connection for connection in peer.call("connection.list")["connections"] if connection["protocol"] == "amqp"]


def test_a_connection_is_listed_with_its_links(site: Site, amqp_url: str) -> None:
    root = site.user("root", *Right)
    for queue in ("orders", "bills"):
        root.call("queue.declare", queue=queue)
    root.put(*numbered(10), op="enqueue", queue="orders")
    with connect(amqp_url, "root", "secret") as connection:
        receiver = connection.receiver("orders", credit=4)
        connection.sender("bills")
        assert len(receiver.receive(4, timeout_s=PATIENCE_S)) == 4
        (listed,) = of_amqp(root)
        known = {name: listed[name] for name in ("protocol", "user", "tls", "sessions", "slow", "stalled", "linkCount")}
        assert known == {
            "protocol": "amqp",
            "user": "root",
            "tls": False,
            "sessions": 1,
            "slow": False,
            "stalled": False,
            "linkCount": 2,
        }
        assert abs(listed["since"] / 1e6 - time.time()) < PATIENCE_S
        links = {link["role"]: link for link in listed["links"]}
        assert links["consumer"] | {"name": "", "heldSeconds": 0, "sentPerSecond": 0, "settledPerSecond": 0} == {
            "name": "",
            "role": "consumer",
            "queue": "orders",
            "selector": None,
            "priority": 0,
            "credit": 0,
            "unsettled": 4,
            "heldSeconds": 0,
            "sentPerSecond": 0,
            "settledPerSecond": 0,
            "lastSettled": None,
            "groups": [],
            "slow": False,
        }
        assert (links["producer"]["queue"], links["producer"]["heldSeconds"]) == ("bills", None)
        assert links["producer"]["credit"] > 0

        root.call("queue.declare", queue="grouped", options={"groups": "held"})
        groups = pa.record_batch({"body": [b"x"] * 5, "groupId": ["a", "b", "a", "c", None]})
        root.put_batch(groups, op="enqueue", queue="grouped")
        for credit in (3, 2):
            assert len(connection.receiver("grouped", credit, limit=credit).receive(timeout_s=PATIENCE_S)) == credit
        held = [link["groups"] for link in of_amqp(root)[0]["links"] if link["queue"] == "grouped"]
        assert held == [["a", "b"], ["c"]]
    until(lambda: not of_amqp(root), "the connection is gone")


def test_a_flight_connection_is_listed_and_can_be_closed(site: Site) -> None:
    root, second = site.user("root", *Right), site.user("other", *Right)
    second.call("hello")
    by_user = {connection["user"]: connection for connection in root.call("connection.list")["connections"]}
    assert by_user["root"]["calls"] == ["DoAction"]
    assert by_user["other"]["protocol"] == "flight"
    assert root.call("connection.close", id=by_user["other"]["id"]) == {"id": by_user["other"]["id"], "closed": True}
    until(lambda: len(root.call("connection.list")["connections"]) == 1, "the other connection is closed")
    second.call("hello")  # a later login succeeds


def test_a_connection_that_is_closed_is_told_why_and_what_it_held_is_back(site: Site, amqp_url: str) -> None:
    root = site.user("root", *Right)
    root.call("queue.declare", queue="orders")
    root.put(*numbered(3), op="enqueue", queue="orders")
    with connect(amqp_url, "root", "secret") as connection:
        receiver = connection.receiver("orders", credit=3)
        assert len(receiver.receive(3, timeout_s=PATIENCE_S)) == 3
        (listed,) = of_amqp(root)
        root.call("connection.close", id=listed["id"], reason="you are too slow")
        until(lambda: root.call("queue.stat", queue="orders")["available"] == 3, "the messages are available again")
        with pytest.raises(errors.PenstockError, match="you are too slow"):
            receiver.receive(1, timeout_s=PATIENCE_S)
        assert root.call("connection.close", id=listed["id"]) == {"id": listed["id"], "closed": False}


@pytest.mark.parametrize("reason", [None, "maintenance", "two\nlines"])
@pytest.mark.parametrize("protocol", ["amqp", "flight"])
def test_the_log_names_once_who_closed_which_connection(
    site: Site, amqp_url: str, caplog: pytest.LogCaptureFixture, protocol: str, reason: str | None
) -> None:
    root, bob = site.user("root", *Right), site.user("bob", *Right)
    caplog.set_level("INFO", "penstock")
    until(site.access.refresh, "the users are read again")
    bob.call("hello")
    with connect(amqp_url, "bob", "secret"):
        connections = root.call("connection.list")["connections"]
        (target,) = [
            connection for connection in connections if (connection["user"], connection["protocol"]) == ("bob", protocol)
        ]
        assert root.call("connection.close", id=target["id"], reason=reason)["closed"]
        until(lambda: target not in root.call("connection.list")["connections"], "the connection is gone")
    lines = [record for record in caplog.records if "closed" in record.getMessage()]
    assert len(lines) == 1, caplog.messages
    text = lines[0].getMessage()
    assert text.startswith(f"connection {target['id']} of bob at {target['peer']} was closed by root at ")
    assert text.endswith({None: ", without a reason", "maintenance": ": maintenance"}.get(reason, ": 'two\\nlines'"))


def test_others_connections_are_for_administrators_of_everything(site: Site, amqp_url: str) -> None:
    root, alice = site.user("root", *Right), site.user("alice", *Right, queue="orders")
    until(site.access.refresh, "the users are read again")  # the AMQP plane reads them on its own, from time to time
    with connect(amqp_url, "root", "secret"), connect(amqp_url, "alice", "secret"):
        assert {connection["user"] for connection in of_amqp(root)} == {"root", "alice"}
        assert {connection["user"] for connection in of_amqp(alice)} == {"alice"}
        foreign = next(connection["id"] for connection in of_amqp(root) if connection["user"] == "root")
        assert alice.call("connection.close", id=foreign) == {"id": foreign, "closed": False}
        assert len(of_amqp(root)) == 2


def test_a_consumer_that_holds_while_messages_wait_is_slow(site: Site, amqp_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "SLOW_S", 0.3)
    root = site.user("root", *Right)
    root.call("queue.declare", queue="orders")
    root.put(*numbered(2), op="enqueue", queue="orders")
    with connect(amqp_url, "root", "secret") as connection:
        receiver = connection.receiver("orders", credit=1)
        (delivery,) = receiver.receive(1, timeout_s=PATIENCE_S)
        until(lambda: of_amqp(root)[0]["slow"], "the consumer is slow")
        receiver.accept([delivery])
        (delivery,) = receiver.receive(1, timeout_s=PATIENCE_S)  # the last one: nothing waits
        until(lambda: of_amqp(root)[0]["links"][0]["heldSeconds"] > 0.5, "the message is held for 0.5 s")
        assert not of_amqp(root)[0]["slow"]


def test_a_consumer_that_can_be_sent_more_is_not_slow(site: Site, amqp_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer is not slow if it has credit and no message for it waits, nor if it settles its messages, even out of order."""
    monkeypatch.setattr(listing, "SLOW_S", 0.3)
    root = site.user("root", *Right)
    root.call("queue.declare", queue="orders")
    root.put(*numbered(5), op="enqueue", queue="orders")
    with connect(amqp_url, "root", "secret") as connection:
        receiver = connection.receiver("orders", credit=3)
        oldest, *others = receiver.receive(3, timeout_s=PATIENCE_S)
        until(lambda: of_amqp(root)[0]["slow"], "the consumer is slow")
        receiver.accept(others[:1])  # its credit is used up, and messages wait; it is at work
        until(lambda: not of_amqp(root)[0]["slow"], "the consumer is slow no longer")
        receiver.accept([oldest, *others[1:]])
    with connect(amqp_url, "root", "secret") as connection:
        receiver = connection.receiver("orders", credit=9)
        assert len(receiver.receive(2, timeout_s=PATIENCE_S)) == 2
        root.call("queue.pause", queue="orders")
        root.put(*numbered(1), op="enqueue", queue="orders")
        until(lambda: of_amqp(root)[0]["links"][0]["heldSeconds"] > 0.6, "the messages are held for 0.6 s")
        assert not of_amqp(root)[0]["slow"]


def test_a_slow_consumer_is_an_alarm_said_once_and_over_once(
    site: Site, amqp_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """U7: only users with rights on the queue see it."""
    monkeypatch.setattr(listing, "SLOW_S", 0.3)
    monkeypatch.setattr(watch, "SLOW_LOOK_S", 0.0)
    monkeypatch.setattr(watch, "SLOW_OVER_S", 0.5)
    caplog.set_level("INFO", "penstock.alarms")
    site.service.watch._consumers_at = 0.0
    root, second = site.user("root", *Right), site.user("other", Right.BROWSE, queue="bills")
    root.call("queue.declare", queue="orders")
    root.put(*numbered(3), op="enqueue", queue="orders")

    def raised(peer: Peer) -> list[tuple[str, str]]:
        return [(alarm["name"], alarm["queue"]) for alarm in peer.call("broker.status")["alarms"]]

    with connect(amqp_url, "root", "secret") as connection:
        receiver = connection.receiver("orders", credit=1)
        (delivery,) = receiver.receive(1, timeout_s=PATIENCE_S)
        until(lambda: raised(root) == [("slow-consumer", "orders")], "the alarm is raised")
        assert raised(second) == []
        receiver.accept([delivery])
        assert len(receiver.receive(1, timeout_s=PATIENCE_S)) == 1
        root.call("queue.purge", queue="orders")  # nothing waits any more
        until(lambda: raised(root) == [], "the alarm is over")
    alarms = [text.partition(":")[0] for text in caplog.messages if text.startswith("alarm slow-consumer")]
    assert [text.partition(" is ")[0] for text in alarms] == ["alarm slow-consumer of queue 'orders'"] * 2
    assert alarms[0].endswith("is raised")
    assert " is over after " in alarms[1]


def test_users_are_listed_without_anything_secret(site: Site) -> None:
    root = site.user("root", *Right)
    site.user("alice", Right.SEND, Right.BROWSE, queue="orders.*")
    users = root.call("user.list")
    assert users["enforced"] is True
    assert users["users"][0] == {
        "user": "alice",
        "password": True,
        "certificates": [],
        "rights": {"orders.*": ["browse", "send"]},
    }
    assert not {"salt", "storedKey", "stored_key", "secret"} & {*str(users).replace("'", " ").split()}
    with pytest.raises(errors.NotAllowed):
        site.user("eve", *Right, queue="orders").call("user.list")


def test_the_broker_says_what_it_is(site: Site) -> None:
    root, alice = site.user("root", *Right), site.user("alice", Right.SEND, queue="orders")
    status = root.call("broker.status")
    assert (status["version"], status["users"]) == (__version__, 2)
    assert status["uptimeSeconds"] >= 0
    assert status["directory"] == str(site.service.settings.data)
    assert "directory" not in alice.call("broker.status")


def test_messages_are_shown_page_by_page_and_by_selector(site: Site, amqp_url: str) -> None:
    root = site.user("root", *Right)
    root.call("queue.declare", queue="orders")
    with connect(amqp_url, "root", "secret") as connection:
        sender = connection.sender("orders")
        numbers = [
            amqp.Message(data=[b"%d" % n], properties=Properties(subject=f"s{n}"), application_properties={"n": n})
            for n in range(7)
        ]
        sender.send([message.encode() for message in numbers])
        sender.flush()
    seen, first = [], 0
    while first is not None:
        answer = root.call("queue.messages", queue="orders", first=first, count=3)
        seen += [row["subject"] for row in answer["messages"]]
        first = answer["next"]
    assert seen == [f"s{n}" for n in range(7)]
    messages = root.call("queue.messages", queue="orders", selector="n >= 5")
    assert [row["properties"] for row in messages["messages"]] == [{"n": "5"}, {"n": "6"}]
    row = messages["messages"][0]
    assert (row["state"], row["body"], row["bodyBytes"], row["cut"]) == ("available", {"text": "5"}, 1, [])
    last_hour = root.call("queue.messages", queue="orders", since="-1h", until="now", selector="n >= 5")
    assert last_hour == messages
    assert root.call("queue.messages", queue="orders", since="yesterday", until="-1h")["messages"] == []
    for wrong in (
        *({"count": 0}, {"count": message_rows.MAX_SHOWN + 1}, {"selector": "n >"}, {"states": ["dead"]}),
        *({"since": "tomorrow"}, {"until": 0}, {"since": "now", "until": "-1h"}),
    ):
        with pytest.raises(errors.InvalidRequest):
            root.call("queue.messages", queue="orders", **wrong)


def test_a_selector_that_matches_nothing_does_not_search_for_ever(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_rows, "SEARCH_S", -1.0)
    monkeypatch.setattr(timeouts, "ALIVE_S", 0.0)
    root = site.user("root", *Right)
    root.call("queue.declare", queue="orders")
    root.put(*numbered(BLOCK_ROWS + 10), op="enqueue", queue="orders")
    with pytest.raises(errors.ResourceLimit, match="no message matched"):
        root.call("queue.messages", queue="orders", selector="subject = 'none'")


def test_what_is_too_long_to_look_at_is_cut_and_said(site: Site) -> None:
    root = site.user("root", *Right)
    root.call("queue.declare", queue="orders")
    text = "ä" * 4000
    root.put(text.encode(), b"\xff\x00" * 4000, b"", b"\x1b[2J", op="enqueue", queue="orders")
    long, binary, empty, control = root.call("queue.messages", queue="orders")["messages"]
    assert (long["body"], long["bodyBytes"], long["cut"]) == ({"text": "ä" * (message_rows.TEXT_BYTES // 2)}, 8000, ["body"])
    assert (binary["body"].keys(), binary["cut"]) == ({"base64"}, ["body"])
    assert (empty["body"], empty["bodyBytes"]) == ({"text": ""}, 0)
    assert control["body"].keys() == {"base64"}  # a terminal must not obey it


def test_dead_letters_are_counted_by_reason(site: Site) -> None:
    root = site.user("root", *Right)
    root.call("queue.declare", queue="dead")
    furnish(site, "orders")
    root.call("queue.alter", queue="orders", options={"deadLetterQueue": "dead"})
    for sequence in (0, 1):
        root.call("lease.settleRow", lease="held orders", sequence=sequence, outcome="rejected")
    assert root.call("queue.stat", queue="dead")["deadLetters"] == {"rejected": 2}
    assert root.call("queue.stat", queue="orders")["deadLetters"] == {}
