"""Who may ask for what over Flight (W3): each request and the rights that it needs, on which queue."""

from __future__ import annotations

import pyarrow as pa
import pytest

from broker_core import errors
from broker_core.engine import options
from broker_core.flight_plane.permissions import NEEDS, NODE_OPTIONS
from broker_core.flight_plane.requests import ACTIONS, PUTS, TICKETS
from broker_core.security import Right

from .peers import ALLOWED, EVERYBODY, NOBODY, REQUESTS, SEVERAL, SHIFTS, Site, furnish, part, refused


def test_every_request_has_a_line_in_the_table_and_in_this_test() -> None:
    known = {*ACTIONS, *TICKETS, *PUTS}
    assert set(NEEDS) == known
    assert {name.partition(" ")[0] for name in REQUESTS} == known
    assert EVERYBODY.union(SEVERAL, *ALLOWED.values()) == set(REQUESTS)


@pytest.mark.parametrize("right", Right)
def test_a_right_allows_its_requests_and_no_other(site: Site, right: Right) -> None:
    furnish(site, "orders.eu")
    alice = site.user("alice", right, queue="orders.*")
    assert refused(alice, "orders.eu") == set(REQUESTS) - EVERYBODY - ALLOWED[right]


def test_messages_go_to_another_queue_only_with_rights_on_both(site: Site) -> None:
    """Q13 Q20: who may send nowhere else cannot have messages moved there, nor as dead letters, nor back from there."""
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
    assert bob.call("queue.redrive", queue="mine") == {"redriven": 1, "stayed": 0}


def test_an_exchange_leads_only_to_where_its_declarer_may_send(site: Site) -> None:
    """W3: an alternate and a binding are ways to send. Whether what they name is there is not told either."""
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
    assert refused(alice, "orders") == set(REQUESTS) - NOBODY
    assert [row["queue"] for row in alice.call("queue.list")["queues"]] == ["mine"]
    assert alice.call("lease.list") == {"leases": []}
    root = site.user("root", *Right)
    assert root.call("queue.stat", queue="orders")["acquired"] == 10
    assert [row["lease"] for row in root.call("lease.list")["leases"]] == ["held orders"]


def test_a_user_without_a_permission_may_say_hello(site: Site) -> None:
    furnish(site, "orders")
    bob = site.user("bob")
    assert refused(bob, "orders") == set(REQUESTS) - NOBODY
    assert bob.call("queue.list") == {"queues": []}


def test_a_lease_or_a_stage_of_another_queue_is_not_reached_by_naming_ones_own(site: Site) -> None:
    furnish(site, "orders")
    alice = site.user("alice", *Right, queue="mine")
    alice.call("queue.declare", queue="mine")
    named = {"queue": "mine", "lease": "held orders", "run": "r"}
    for request in (
        lambda: alice.call("lease.advance", **named, epoch=None, finished=0, fresh=True),
        lambda: alice.call("lease.plan", **named, epoch=1, after=0, batch=1),
        lambda: alice.call("lease.settle", **named, epoch=None, finished=1),
        lambda: alice.put(b"mine", op="stage", queue="mine", stage="s orders"),
        lambda: alice.call("stage.publish", stages=["not there", "s orders"]),
        lambda: alice.call("stage.discard", stages=["s orders"]),
    ):
        with pytest.raises(errors.NotAllowed):
            request()


def test_outcomes_are_published_by_who_may_receive_and_messages_by_who_may_send(site: Site) -> None:
    furnish(site, "q")
    receiver, sender = site.user("receiver", Right.RECEIVE), site.user("sender", Right.SEND)
    (row, *_) = receiver.get(op="batch", columns=["delivery"], **part("q"))
    outcome = pa.record_batch({"delivery": pa.array([row["delivery"]], pa.binary()), "outcome": ["rejected"]})
    for stage in ("mine", "mixed"):
        receiver.put_batch(outcome, op="settle", stage=stage, lease="held q")
    site.user("root", *Right).put(b"x", op="stage", queue="q", stage="mixed")
    for peer, stage in ((sender, "mine"), (sender, "mixed"), (receiver, "mixed")):
        with pytest.raises(errors.NotAllowed):
            peer.call("stage.publish", stages=[stage])
    assert receiver.call("stage.publish", stages=["mine"]) == {"published": 0, "repeated": False}


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
