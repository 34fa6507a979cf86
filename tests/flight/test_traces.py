"""message.trace shows a user the messages of queues that they may browse, and settled ones with the right replay."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker_core import errors
from penstock.broker_core.security import Right

from .peers import Site


def places(answer: dict[str, Any]) -> set[tuple[str, str]]:
    return {(stay["queue"], stay["state"]) for message in answer["messages"] for stay in message["stays"]}


def test_a_trace_shows_what_the_user_may_see(site: Site) -> None:
    root = site.user("root", *Right)
    for queue in ("orders", "secret"):
        root.call("queue.declare", queue=queue)
        root.put(b"one", b"two", op="enqueue", queue=queue)
        root.call("queue.discard", queue=queue, sequence=0)
    everything = root.call("message.trace", selector="JMSPriority = 4")
    assert places(everything) == {(queue, state) for queue in ("orders", "secret") for state in ("archived", "available")}
    alice = site.user("alice", Right.BROWSE, queue="orders")
    some = alice.call("message.trace", selector="JMSPriority = 4")
    assert places(some) == {("orders", "available")}
    assert some["hints"] == ["settled messages of orders were not searched: that needs the right replay"]
    with pytest.raises(errors.MessageNotFound):
        alice.call("message.trace", queue="orders", sequence=0)
    bob = site.user("bob", Right.BROWSE, Right.REPLAY, queue="orders")
    assert places(bob.call("message.trace", selector="JMSPriority = 4")) == {("orders", "archived"), ("orders", "available")}
    place = {"queue": "secret", "sequence": 0}
    assert places(alice.call("message.trace", selector="JMSPriority = 4", resume=place)) == set()
    carol = site.user("carol", Right.SEND, queue="orders")
    with pytest.raises(errors.NotAllowed, match="may not browse any queue"):
        carol.call("message.trace", id="m")
    for peer in (alice, carol):
        with pytest.raises(errors.NotAllowed, match="'secret'"):
            peer.call("message.trace", id="m", queue="secret")
