"""Queries of a user: the broker stores their leases with an owner, which the connector does not see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from penstock.broker_core import errors
from penstock.broker_core.security import Right
from penstock.connector.options import Options
from penstock.connector.schema import source_schema
from penstock.connector.stream import lease
from penstock.connector.stream.reader import StreamReader

from ..waiting import until
from .peers import Site

INITIAL = {"v": 1, "kind": "initial"}
LIMIT = ReadMaxRows(2**63 - 1)
Rows = list[tuple[str, int]]


class Queries:
    """Readers of queues a and b, as users who have all rights."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.peers = {name: site.user(name, *Right) for name in ("alice", "bob")}
        self._readers: list[StreamReader] = []
        for queue in "ab":
            self.peers["alice"].call("queue.declare", queue=queue)

    def send(self, queue: str) -> None:
        self.peers["alice"].put(b"1", op="enqueue", queue=queue)

    def reader(self, user: str, queues: str = "a,b") -> StreamReader:
        login = {"url": self.site.plane.url, "userName": user, "password": "secret"}
        self._readers.append(StreamReader(Options({**login, "queue": queues, "lease": "me"}), source_schema(("queue",))))
        return self._readers[-1]

    def read(self, reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
        batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
        return [row["queue"] for batch in batches for row in batch.to_pylist()]

    def close(self) -> None:
        for reader in self._readers:
            reader.stop()


@pytest.fixture
def queries(site: Site) -> Iterator[Queries]:
    made = Queries(site)
    yield made
    made.close()


@pytest.mark.parametrize("another", [False, True])
def test_a_fresh_checkpoint_on_a_lease_that_holds_a_read_batch_touches_no_other_lease(queries: Queries, another: bool) -> None:
    """As without users (connector/test_several.py); also where another user's query of the same name holds one."""
    old = queries.reader("alice")
    queries.send("a")
    first = old.latestOffset(INITIAL, LIMIT)
    queries.read(old, INITIAL, first)
    queries.send("b")
    second = old.latestOffset(first, LIMIT)
    assert queries.read(old, first, second) == ["b"]  # b's batch is read, a's lease is idle
    queries.send("a")
    if another:
        bob = queries.reader("bob", "a,b")
        queries.read(bob, INITIAL, bob.latestOffset(INITIAL, LIMIT))
        queries.send("a")
    with pytest.raises(errors.InUse, match=r"another query uses lease 'alice:me/b' now"):
        queries.reader("alice").latestOffset(INITIAL, LIMIT)
    going_on = queries.reader("alice")
    third = going_on.latestOffset(second, LIMIT)
    assert queries.read(going_on, second, third) == ["a"]


def test_a_query_that_goes_on_under_another_user_renews_its_lease(queries: Queries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_S", 0.05)
    queries.send("a")
    queries.send("a")
    old = queries.reader("alice", "a")
    first = old.latestOffset(INITIAL, LIMIT)
    queries.read(old, INITIAL, first)
    old.stop()
    queries.send("a")
    queries.reader("bob", "a").latestOffset(INITIAL, LIMIT)  # a lease of the same name
    going_on = queries.reader("bob", "a")
    assert queries.read(going_on, INITIAL, first) == ["a", "a"]
    lease_state = queries.site.service.state.leases["alice:me"]
    taken = lease_state.renewed
    until(lambda: lease_state.renewed != taken, "the lease is renewed")
