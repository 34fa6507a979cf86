"""`penstock events`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

from .conftest import Run, enqueue


def test_events_are_shown_and_followed(broker: Broker, client: Client, penstock: Run) -> None:
    off = penstock("events", url=broker.url)
    assert off.returncode == 1
    assert "writes no event messages: `penstock queue declare '$events' --option maxMessages=10000" in off.stderr
    client.call("queue.declare", queue="$events", options={"maxMessages": 10, "overflow": "ring"})
    assert penstock("events", url=broker.url).stdout == ""
    command = [sys.executable, "-m", "penstock", "events", "--follow", "--json"]
    environment = {**os.environ, "PENSTOCK_URL": broker.url}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as following:
        enqueue(client, "orders", b"m")
        client.call("queue.alter", queue="orders", options={"maxMessages": 1, "overflow": "reject"})
        assert following.stdout is not None
        event = json.loads(following.stdout.readline())
        following.send_signal(signal.SIGINT)
        assert following.wait(60) == 130
    assert (event["event"], event["queue"]) == ("alarm", "orders")
    shown = penstock("events", url=broker.url).stdout
    assert shown.startswith(f"{event['time']} alarm orders queue-full is raised: the queue has 1 of 1 messages")
    received = penstock("receive", "$events", "--count", "1", url=broker.amqp_url).stdout
    assert json.loads(received) == event, "programs consume the events like any messages"
