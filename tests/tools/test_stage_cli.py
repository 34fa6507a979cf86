"""`penstock stage …`: lists and discards the stages of unfinished writes (W15)."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client


def penstock(broker: Broker, *arguments: str) -> str:
    command = [sys.executable, "-m", "penstock", *arguments, "--url", broker.url]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_what_a_killed_driver_left_is_counted_listed_and_discarded_also_after_a_restart(broker: Broker) -> None:
    broker.declare("orders")
    batch = pa.record_batch({"body": pa.array([b"abc"] * 5)})
    with Client(broker.url) as client:
        for attempt in (1, 2):
            client.put({"op": "stage", "queue": "orders", "write": "left", "attempt": attempt}, batch.schema, [batch])
    broker.kill()
    broker.start()
    stat = json.loads(penstock(broker, "queue", "stat", "orders", "--json"))
    assert (stat["staged"], stat["available"]) == (10, 0)
    assert stat["stagedBytes"] >= 30
    assert "staged" in penstock(broker, "queue", "list")
    (listed,) = json.loads(penstock(broker, "stage", "list", "--json"))
    assert (listed["stage"], listed["queues"], listed["attempts"], listed["messages"]) == ("left", ["orders"], 2, 10)
    assert "orders" in penstock(broker, "stage", "list")
    assert "2 stages of left discarded" in penstock(broker, "stage", "discard", "left")
    with pytest.raises(subprocess.CalledProcessError) as again:
        penstock(broker, "stage", "discard", "left", "--json")
    assert (again.value.returncode, json.loads(again.value.stderr)["error"]["code"]) == (1, "STAGE_NOT_FOUND")
    assert json.loads(penstock(broker, "queue", "stat", "orders", "--json"))["staged"] == 0
    assert json.loads(penstock(broker, "stage", "list", "--json")) == []
