"""Names in the archive of users whose commands end messages, and of the queries that tasks read for."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker_core import errors
from penstock.broker_core.security import Right

from .helpers import numbered
from .peers import Peer, Site

RANDOM_LEASE = f"q-{'0af9' * 8}"


@pytest.fixture
def root(site: Site) -> Peer:
    peer = site.user("root", *Right)
    peer.call("queue.declare", queue="dead")
    peer.call("queue.declare", queue="q", options={"deadLetterQueue": "dead"})
    peer.put(*numbered(8), op="enqueue", queue="q")
    return peer


def holders(peer: Peer, queue: str) -> list[tuple[int, str, str | None]]:
    columns = ["sequenceNumber", "outcome", "holder"]
    rows = peer.get(op="browse", queue=queue, columns=columns, states=["archived"], first=0, last=1000)
    return [(row["sequenceNumber"], row["outcome"], row["holder"]) for row in rows]


def take(peer: Peer, lease: str, **query: Any) -> dict[str, Any]:
    """Read a batch of one message, as a task does."""
    planner = {"queue": "q", "lease": lease, "run": "r"}
    answer = peer.call("lease.advance", **planner, epoch=None, finished=0, fresh=True, messages=1)
    ticket = {"lease": lease, "run": "r", "epoch": answer["epoch"], "batch": answer["batch"], "first": 0, "last": 1000}
    peer.get(op="batch", columns=["body"], **ticket, **query)
    return {**planner, "epoch": answer["epoch"], "finished": answer["batch"]}


def test_a_command_that_ends_messages_names_its_user(root: Peer, site: Site) -> None:
    take(root, "etl")
    bob = site.user("bob", *Right)
    bob.call("lease.settleRow", lease="root:etl", sequence=0, outcome="rejected", error="no")
    root.call("queue.discard", queue="q", sequence=1)
    bob.call("queue.move", queue="q", target="dead", messages=1)
    root.call("queue.purge", queue="q")
    bob.call("queue.redrive", queue="dead")
    ended = [(0, "dead-lettered", "bob"), (1, "purged", "root"), (2, "moved", "bob")]
    assert holders(root, "q") == [*ended, *((number, "purged", "root") for number in range(3, 8))]
    assert holders(root, "dead") == [(0, "moved", "bob")]


@pytest.mark.parametrize(
    ("lease", "query", "holder"),
    [
        (RANDOM_LEASE, {"query": "6f0d", "queryBatch": 0, "queryName": "nightly"}, "nightly (root)"),
        (RANDOM_LEASE, {"query": "6f0d", "queryBatch": 0}, "6f0d (root)"),
        ("etl", {"query": "6f0d", "queryBatch": 0, "queryName": "nightly"}, "nightly (root:etl)"),
        ("etl", {}, "root:etl"),
    ],
)
def test_a_settled_batch_names_its_query(root: Peer, lease: str, query: dict[str, Any], holder: str) -> None:
    batch = take(root, lease, **query)
    names = [row["query"] for row in root.call("lease.list")["leases"]]
    assert names == [query.get("queryName", query.get("query"))]
    oldest = root.call("queue.stat", queue="q")["oldest"]
    assert (oldest["state"], oldest["holder"]) == ("acquired", holder)
    root.call("lease.settle", **batch)
    assert holders(root, "q") == [(0, "accepted", holder)]


def test_a_query_name_of_another_type_is_refused(root: Peer) -> None:
    with pytest.raises(errors.InvalidRequest, match="queryName"):
        take(root, "etl", query="6f0d", queryBatch=0, queryName=5)
