"""Q24: operators see deferred messages on the command line, and a backup contains them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.broker_core.cli import main
from penstock.broker_core.client.amqp import connect
from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause
from penstock.broker_core.server.child import Broker
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings

from ..service.helpers import enqueue


def with_deferred(data: Path) -> None:
    """Make a data directory with a queue of which a consumer has deferred the first two of three messages."""
    service = BrokerService(Settings(data=data, fsync="never"))
    try:
        service.submit(c.DeclareQueue("orders"), enqueue("orders", b"one", b"two", b"three"))
        link = service.submit(c.Subscribe("orders", user="shop"))
        service.submit(c.Acquire("orders", link, 2), c.Release("orders", link, RowSet.range(0, 2), Cause.DEFERRED))
    finally:
        service.close()


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    with_deferred(tmp_path / "data")
    return Broker(tmp_path / "data", fsync="never")


def test_each_command_shows_them(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    with broker, Client(broker.url) as client:

        def run(*arguments: str) -> str:
            code = main([*arguments, "--url", broker.url])
            shown = capsys.readouterr()
            return shown.out if code == 0 else f"refused: {shown.err}"

        assert "deferred" in run("queue", "list").partition("\n")[0]
        assert json.loads(run("queue", "stat", "orders", "--json"))["deferred"] == 2
        peeked = json.loads(run("queue", "peek", "orders", "--states", "deferred", "--json"))
        assert [(row["sequenceNumber"], row["deliveryCount"]) for row in peeked] == [(0, 1), (1, 1)]
        with connect(broker.amqp_url) as connection:
            receiver = connection.receiver("orders", credit=9)
            receiver.accept(receiver.receive(timeout_s=30))
            explained = run("explain", "queue", "orders")
        assert explained.startswith("orders: 0 waiting, 0 held, 0 delayed, 2 deferred; 1 consumer\n")
        assert "does not receive: 2 deferred messages, and no other one" in explained
        assert "(`penstock queue peek orders --states deferred`)" in explained
        event = client.call("message.trace", queue="orders", sequence=0)["messages"][0]["events"][-1]
        place = "orders (sequence number 0)"
        assert (event["event"], event["text"]) == ("deferred", f"deferred in {place}, until a consumer asks for it")
        assert "refused: penstock: queue orders has 2 messages that would be lost" in run("queue", "delete", "orders")
        assert "2 messages of orders purged" in run("queue", "purge", "orders")


def test_a_backup_contains_them(broker: Broker, tmp_path: Path) -> None:
    data, store, restored = (str(tmp_path / name) for name in ("data", "store", "restored"))
    with broker:
        assert main(["backup", "--data", data, "--to", store]) == 0
    assert main(["restore", "--from", store, "--data", restored]) == 0
    service = BrokerService(Settings(data=Path(restored), fsync="never"))
    try:
        link = service.submit(c.Subscribe("orders", by_number=True))
        assert not service.submit(c.AcquireDeferred("orders", link, RowSet.range(0, 2)))
    finally:
        service.close()
