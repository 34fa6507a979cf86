"""Permissions over Flight (W3): each request and the rights that it needs, on which queue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core import errors
from penstock.broker_core.actions.actions import ACTIONS
from penstock.broker_core.actions.permissions import NODE_OPTIONS
from penstock.broker_core.actions.requests import PUTS, TICKETS
from penstock.broker_core.engine.model import options
from penstock.broker_core.security import Right

from .helpers import numbered
from .peers import ALLOWED, BY_NAME, EVERYBODY, NOBODY, REQUESTS, SEVERAL, SHIFTS, Peer, Site, furnish, part, refused


def test_every_request_has_a_line_in_this_test() -> None:
    known = {*ACTIONS, *TICKETS, *PUTS}
    assert {name.partition(" ")[0] for name in REQUESTS} == known
    assert EVERYBODY.union(SEVERAL, *ALLOWED.values()) == set(REQUESTS)


@pytest.mark.parametrize("right", Right)
def test_a_right_allows_its_requests_and_no_other(site: Site, right: Right) -> None:
    furnish(site, "orders.eu")
    alice = site.user("alice", right, queue="orders.*")
    assert refused(alice, "orders.eu") == set(REQUESTS) - EVERYBODY - ALLOWED[right]


def test_messages_go_to_another_queue_only_with_rights_on_both(site: Site) -> None:
    """Q13 Q20: without the right to send to a queue, a user cannot have messages moved to it, not even as dead letters."""
    furnish(site, "orders")
    root = site.user("root", *Right)
    root.call("queue.declare", queue="mine")
    for rights in ({Right.ADMIN}, {Right.ADMIN, Right.RECEIVE}):
        alice = site.user("alice", *rights, queue="orders")
        for name in sorted(SHIFTS):
            with pytest.raises(errors.NotAllowed):
                alice.call(name, queue="orders", target="mine")
        for name in ("queue.alter", "queue.declare"):
            with pytest.raises(errors.NotAllowed):
                alice.call(name, queue="orders", options={"deadLetterQueue": "mine"})
        assert alice.call("queue.redrive", queue="orders") == {"redriven": 0, "stayed": 0}
    bob = site.user("bob", *Right, queue="*")
    assert bob.call("queue.move", queue="orders", target="mine", messages=3) == {"moved": 3, "full": False}
    root.call("queue.alter", queue="orders", options={"deadLetterQueue": "mine"})
    root.call("lease.settleRow", lease="held orders", sequence=0, outcome="rejected")
    eve = site.user("eve", *Right, queue="mine")
    with pytest.raises(errors.NotAllowed):
        eve.call("queue.redrive", queue="mine")
    carl = site.user("carl", *(set(Right) - {Right.BROWSE}), queue="*")
    with pytest.raises(errors.NotAllowed, match="may not browse"):  # a selector reveals the content of a message
        carl.call("queue.redrive", queue="mine", selector="colour = 'red'")
    assert bob.call("queue.redrive", queue="mine", selector="colour = 'red'") == {"redriven": 0, "stayed": 0}
    assert bob.call("queue.redrive", queue="mine") == {"redriven": 1, "stayed": 0}


def test_an_exchange_leads_only_to_where_its_declarer_may_send(site: Site) -> None:
    """W3: an alternate and a binding are ways to send. The error does not reveal whether their target exists."""
    furnish(site, "secret")
    alice = site.user("alice", Right.ADMIN, Right.SEND, queue="mine.*")

    def answer(name: str) -> str:
        with pytest.raises(errors.NotAllowed) as refusal:
            alice.call("exchange.declare", exchange="mine.x", options={"alternate": name})
        return str(refusal.value).replace(name, "NAME")

    assert answer("secret") == answer("nowhere")
    assert site.user("root", *Right).call("exchange.list") == {"exchanges": []}
    alice.call("queue.declare", queue="mine.q")
    assert alice.call("exchange.declare", exchange="mine.x", options={"alternate": "mine.q"})["created"]
    bob = site.user("bob", Right.ADMIN, queue="mine.*")
    with pytest.raises(errors.NotAllowed, match=r"send to queue 'mine\.q'"):
        bob.call("exchange.bind", exchange="mine.x", queue="mine.q")
    assert alice.call("exchange.bind", exchange="mine.x", queue="mine.q") == {"created": True}


def test_every_option_that_names_a_queue_or_exchange_asks_for_the_right_to_send_there(site: Site) -> None:
    assert set(NODE_OPTIONS) == {"deadLetterQueue", "alternate"}
    assert {name for name, option in options.OPTIONS.items() if isinstance(option.allowed, str)} == {"deadLetterQueue", "key"}


def test_all_rights_on_one_queue_are_none_on_another(site: Site) -> None:
    furnish(site, "orders")
    alice = site.user("alice", *Right, queue="mine")
    alice.call("queue.declare", queue="mine")
    assert refused(alice, "orders") == set(REQUESTS) - NOBODY - BY_NAME
    assert [row["queue"] for row in alice.call("queue.list")["queues"]] == ["mine"]
    assert alice.call("lease.list") == {"leases": []}
    root = site.user("root", *Right)
    assert root.call("queue.stat", queue="orders")["acquired"] == 10
    assert [row["lease"] for row in root.call("lease.list")["leases"]] == ["root:held orders"]


def test_a_user_without_a_permission_may_say_hello(site: Site) -> None:
    furnish(site, "orders")
    bob = site.user("bob")
    assert refused(bob, "orders") == set(REQUESTS) - NOBODY
    assert bob.call("queue.list") == {"queues": []}


def test_a_lease_or_a_stage_of_another_queue_is_neither_reached_nor_told_nor_in_the_way(site: Site) -> None:
    """Each user has names of its own: another's name is answered as one that is not there, and can be taken."""
    furnish(site, "orders")
    alice = site.user("alice", *Right, queue="mine")
    alice.call("queue.declare", queue="mine")

    def answer(request: str, queue: str) -> str:
        with pytest.raises(errors.NotFound) as refusal:
            REQUESTS[request](alice, queue)
        return str(refusal.value).replace(queue, "QUEUE")

    for request in BY_NAME - {"settle", "stage.discard"}:
        assert answer(request, "orders") == answer(request, "nowhere"), request
    assert alice.call("stage.discard", stages=["other orders"]) == {"discarded": 0}
    alice.put(*numbered(3), op="enqueue", queue="mine")
    named = {"queue": "mine", "lease": "held orders", "run": "mine"}
    assert alice.call("lease.advance", **named, epoch=None, finished=0, fresh=True)["batch"] == 1
    alice.put(b"mine", op="stage", queue="mine", stage="s orders")
    assert alice.call("stage.publish", stages=["s orders"]) == {"published": 1, "repeated": False}
    assert {row["lease"] for row in alice.call("lease.list")["leases"]} == {"alice:held orders"}
    root = site.user("root", *Right)
    assert {row["stage"] for row in root.call("stage.list")["stages"]} == {"root:s orders", "root:other orders"}
    assert root.call("stage.publish", stages=["s orders"]) == {"published": 1, "repeated": False}


def test_a_query_goes_on_under_another_user_and_an_operator_reaches_its_lease(site: Site) -> None:
    """A checkpoint names its run, which finds the lease; a command names the lease alone, if that is one."""
    furnish(site, "orders")
    alice, bob = site.user("alice", Right.RECEIVE, queue="orders"), site.user("bob", Right.RECEIVE, Right.SETTLE, queue="orders")
    again = {"queue": "orders", "lease": "held orders", "run": "r", "epoch": None}
    assert alice.call("lease.advance", **again, finished=0)["batch"] == 1
    with pytest.raises(errors.WrongOffset):
        alice.call("lease.advance", **{**again, "run": "another"}, finished=1)
    assert alice.call("lease.advance", **{**again, "run": "new"}, finished=0, fresh=True, messages=1)["batch"] == 1
    with pytest.raises(errors.InvalidRequest, match="name one of 'alice:held orders', 'root:held orders'"):
        bob.call("lease.release", lease="held orders", how="return")
    assert bob.call("lease.release", lease="root:held orders", how="return") == {"messages": 10}


def test_a_query_under_another_user_means_its_own_run_in_all_that_it_says(site: Site) -> None:
    """Several users have leases of one name on the queue. The run identifies the one that a query has taken up."""
    peers = {name: site.user(name, *Right) for name in ("alice", "bob", "carol")}
    peers["alice"].call("queue.declare", queue="q")
    peers["alice"].put(*numbered(9), op="enqueue", queue="q")
    for name, peer in peers.items():
        fresh = {"queue": "q", "lease": "etl", "run": f"run of {name}", "epoch": None, "finished": 0, "fresh": True}
        assert peer.call("lease.advance", **fresh, messages=3)["batch"] == 1
        ticket = {"op": "batch", "lease": "etl", "run": f"run of {name}", "epoch": 1, "batch": 1, "first": 0, "last": 8}
        assert len(peer.get(**ticket, columns=["sequenceNumber"])) == 3
    bob, dave = peers["bob"], site.user("dave", Right.RECEIVE)
    for peer in (bob, dave):  # one has a lease of this name, one has not
        again = {"lease": "etl", "run": "run of alice"}
        epoch = peer.call("lease.advance", queue="q", **again, epoch=None, finished=0)["epoch"]
        assert peer.call("lease.renew", **again, epoch=epoch) == {"lease": "alice:etl"}
        assert peer.call("lease.setAside", **again, epoch=epoch, batch=1, reasons={}) == {"messages": 0}
    assert bob.call("lease.renew", lease="etl", epoch=1) == {"lease": "bob:etl"}
    with pytest.raises(errors.InvalidRequest, match="name one of 'alice:etl', 'bob:etl', 'carol:etl'"):
        dave.call("lease.renew", lease="etl", epoch=1)
    names = {row["lease"]: row["name"] for row in bob.call("lease.list")["leases"]}
    assert names == {"alice:etl": "alice:etl", "bob:etl": "etl", "carol:etl": "carol:etl"}


def test_a_query_goes_on_when_the_last_user_is_gone(site: Site) -> None:
    furnish(site, "orders")
    site.edit(lambda users: users.remove("root"))
    nobody = site.peer()
    again = {"queue": "orders", "lease": "held orders", "run": "r"}
    with pytest.raises(errors.WrongOffset):
        nobody.call("lease.advance", **{**again, "run": "another"}, epoch=None, finished=0)
    epoch = nobody.call("lease.advance", **again, epoch=None, finished=0)["epoch"]
    assert nobody.call("lease.renew", lease="held orders", run="r", epoch=epoch) == {"lease": "root:held orders"}


def test_an_operator_discards_a_write_by_the_name_that_the_list_gives(site: Site) -> None:
    furnish(site, "orders")
    bob = site.user("bob", Right.ADMIN, Right.SEND, queue="orders")
    (name, *_) = sorted(row["stage"] for row in bob.call("stage.list")["stages"])
    assert name == "root:other orders"
    assert bob.call("stage.discard", write=name) == {"discarded": 1}
    assert bob.call("stage.discard", write="s orders") == {"discarded": 0}


@pytest.mark.parametrize("attempts", [[], [0]], ids=["all of it", "one attempt"])
def test_nobody_discards_the_write_of_another_without_admin(site: Site, attempts: list[int]) -> None:
    peers = {name: site.user(name, *Right) for name in ("root", "alice")}
    peers["root"].call("queue.declare", queue="orders")
    peers["alice"].put(b"x", op="stage", queue="orders", write="w", attempt=0)
    for right in (Right.SEND, Right.SETTLE):
        bob = site.user(f"bob {right.value}", right, queue="orders")
        assert [row["stage"] for row in bob.call("stage.list")["stages"]] == ["alice:w"]
        with pytest.raises(errors.NotAllowed, match=r"discard messages that another user has staged for .* the right admin"):
            bob.call("stage.discard", write="alice:w", attempts=attempts)
    stranger = site.user("stranger", Right.SEND, Right.ADMIN, queue="mine")
    assert stranger.call("stage.discard", write="alice:w", attempts=attempts) == {"discarded": 0}  # as one that is not there
    assert peers["alice"].call("stage.publish", write="w", attempts=[0]) == {"published": 1, "repeated": False}


def test_the_outcomes_of_another_are_discarded_by_who_has_admin_where_they_hold(site: Site) -> None:
    furnish(site, "q")
    (row, *_) = site.user("root", *Right).get(op="batch", columns=["delivery"], **part("q"))
    outcome = pa.record_batch({"delivery": pa.array([row["delivery"]], pa.binary()), "outcome": ["rejected"]})
    site.user("root", *Right).put_batch(outcome, op="settle", stage="outcomes", lease="held q")
    bob = site.user("bob", Right.RECEIVE, Right.SEND, queue="q")
    with pytest.raises(errors.NotAllowed, match="the right admin"):
        bob.call("stage.discard", write="root:outcomes")
    assert site.user("ada", Right.ADMIN, queue="q").call("stage.discard", write="root:outcomes") == {"discarded": 1}


def test_the_publish_keys_of_one_user_leave_room_for_others(site: Site) -> None:
    site.service.settings = replace(site.service.settings, max_publish_keys_per_user=2)
    alice, bob = site.user("alice", *Right), site.user("bob", *Right)
    alice.call("queue.declare", queue="q")

    def publish(peer: Peer, name: str, number: int = 1) -> dict[str, Any]:
        peer.put(b"x", op="stage", queue="q", stage=name)
        return peer.call("stage.publish", stages=[name], key={"kind": "txn", "id": name, "number": number})

    for name in ("a", "b"):
        assert publish(alice, name) == {"published": 1, "repeated": False}
    with pytest.raises(errors.ResourceLimit, match=r"user 'alice' has 2 publish keys .* max_publish_keys_per_user"):
        publish(alice, "c")
    assert publish(alice, "a", 2) == {"published": 1, "repeated": False}
    assert publish(alice, "b") == {"published": 0, "repeated": True}
    assert publish(bob, "c") == {"published": 1, "repeated": False}


def test_outcomes_are_published_by_who_may_receive_and_messages_by_who_may_send(site: Site) -> None:
    furnish(site, "q")
    (row, *_) = site.user("root", *Right).get(op="batch", columns=["delivery"], **part("q"))
    outcome = pa.record_batch({"delivery": pa.array([row["delivery"]], pa.binary()), "outcome": ["rejected"]})

    def fill(both: Peer) -> None:
        for stage in ("mine", "mixed"):
            both.put_batch(outcome, op="settle", stage=stage, lease="held q")
        both.put(b"x", op="stage", queue="q", stage="mixed")

    for right, stages in ((Right.SEND, ("mine", "mixed")), (Right.RECEIVE, ("mixed",))):
        fill(site.user("alice", Right.SEND, Right.RECEIVE))
        site.edit(lambda users: users.revoke("alice", "*", [Right.SEND, Right.RECEIVE]))
        alice = site.user("alice", right)
        for stage in stages:
            with pytest.raises(errors.NotAllowed):
                alice.call("stage.publish", stages=[stage])
    assert alice.call("stage.publish", stages=["mine"]) == {"published": 0, "repeated": False}


def test_what_is_not_there_and_what_is_not_permitted_are_answered_alike(site: Site) -> None:
    furnish(site, "orders")
    alice = site.user("alice", Right.SEND, queue="mine")

    def answer(request: str, queue: str) -> str:
        with pytest.raises(errors.NotAllowed) as error:
            REQUESTS[request](alice, queue)
        return str(error.value).replace(queue, "QUEUE")

    for request in set(REQUESTS) - NOBODY - {"stage.publish", "stage.discard"}:
        assert answer(request, "orders") == answer(request, "nowhere"), request


def test_looking_at_the_archive_and_at_what_waits_are_two_rights(site: Site) -> None:
    furnish(site, "orders")
    looks = {"browse": Right.BROWSE, "replay": Right.REPLAY}
    for name, right in looks.items():
        peer = site.user(name, right, queue="orders")
        with pytest.raises(errors.NotAllowed):
            peer.get(op="browse", queue="orders", states=["available", "archived"], columns=["body"])
    both = site.user("both", *looks.values(), queue="orders")
    assert len(both.get(op="browse", queue="orders", states=["available", "archived"], columns=["body"])) == 10
