"""A whole data directory of an earlier version: the broker opens it, has what was in it, and goes on.

`version_1/` was written by commit a5b92e6 (segments 1, snapshots 1 with state 2, packed blocks 3), closed in order or killed:

- `plain`: 40 messages of Spark's, of which the lease `l` has settled 10 and holds 5 unread; one by the exchange `ex`, two of a
  publish with the key (txn, app, 4), one of an AMQP client; the stage `st2` waits;
- `levels`: two priorities; `values`: an older value replaced by a newer one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from ..flight.helpers import browse, numbered, send

DIRECTORIES = Path(__file__).parent / "version_1"


@pytest.fixture(params=["stopped", "killed"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    shutil.copytree(DIRECTORIES / request.param, tmp_path / "data")
    with Broker(tmp_path / "data") as running:
        yield running


def test_a_directory_of_version_1_has_all_that_was_in_it_and_goes_on(broker: Broker) -> None:
    plain = [b"plain %d" % number for number in range(40)]
    sent = [*plain, b"by exchange", b"staged 1", b"staged 2", b"encoded"]
    for _ in range(2):
        with Client(broker.url) as client:
            archived = browse(client, "plain", "body", "outcome", states=["archived"])
            assert [row["body"] for row in archived] == plain[:10]
            acquired = browse(client, "plain", "body", "subject", states=["acquired"])
            assert [(row["body"], row["subject"]) for row in acquired] == [(plain[n], f"s{n}") for n in range(10, 15)]
            assert [row["body"] for row in browse(client, "plain", "body")] == sent[15:]
            assert [row["body"] for row in browse(client, "levels", "body")] == [b"low", b"high"]
            assert [row["body"] for row in browse(client, "values", "body")] == [b"new"]
            (lease,) = client.call("lease.list")["leases"]
            assert (lease["lease"], lease["finished"], lease["batch"], lease["stage"]) == ("l", 1, 2, "acquired")
            key = {"kind": "txn", "id": "app", "number": 4}
            assert client.call("stage.publish", stages=["st1"], key=key)["repeated"]
            assert client.call("queue.stat", queue="plain")["options"]["maxAttempts"] == 3
        broker.kill()
        broker.start()
    with Client(broker.url) as client:
        assert client.call("stage.publish", stages=["st2"])["published"] == 2
        send(client, "plain", numbered(100))
        named = {"queue": "plain", "lease": "l", "run": "r"}
        taken = client.call("lease.advance", **named, epoch=None, finished=1)
        assert taken["batch"] == 2
        part = {"lease": "l", "run": "r", "epoch": taken["epoch"], "batch": 2, "first": 0, "last": 99}
        (read,) = client.get(op="batch", **part, columns=["body"])
        assert read["body"].to_pylist() == plain[10:15]
        assert client.call("lease.settle", **named, epoch=taken["epoch"], finished=2)["settled"] == 5
    broker.stop()
    broker.start()
    with Client(broker.url) as client:
        bodies = [row["body"] for row in browse(client, "plain", "body")]
        assert bodies == [*sent[15:], b"staged 1", b"staged 2", *numbered(100)]
