"""`penstock.testing` (U8): a broker in the process of a user's tests, used as they use it."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import AcknowledgeMode
from penstock.broker_core import errors
from penstock.testing import InProcessBroker

from ..amqp_client.applications import LIMIT_S
from ..waiting import until

CONFTEST = 'pytest_plugins = ["penstock.testing"]\n'
TESTS = """
import penstock

@penstock.worker("orders", retries=1, retry_after=0.01)
def handle(message):
    if message.json()["id"] == 8:
        raise ValueError("not mine")

def test_an_order_is_shipped(penstock_broker):
    penstock_broker.declare("dead")
    penstock_broker.declare("orders", deadLetterQueue="dead")
    with penstock_broker.connect() as connection:
        connection.send("orders", json={"id": 7})
        connection.send("orders", json={"id": 8})

        penstock_broker.work(handle)
        assert penstock_broker.counts("orders").settled == 2
        assert penstock_broker.counts("orders").dead_lettered == 1
        assert penstock_broker.counts("dead").available == 1

def test_each_test_has_a_broker_of_its_own(penstock_broker):
    penstock_broker.declare("orders")
    assert penstock_broker.counts("orders").settled == 0
"""


def test_a_user_s_tests_run_with_it(repository: Path, tmp_path: Path) -> None:
    """The example of its documentation, in a folder without this repository's own tests."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_shop.py").write_text(TESTS)
    top = str(Path(penstock.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": top}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_nothing_is_left_behind() -> None:
    with InProcessBroker() as broker:
        broker.declare("orders")
        folder = Path(broker._folder)
        url = broker.url
        assert folder.exists()
    assert not folder.exists()
    with pytest.raises(errors.PeerError), penstock.broker_core.client.flight.Client(url) as client:
        client.call("queue.list", timeout_s=1)


def test_a_setting_that_cannot_be_is_said() -> None:
    with pytest.raises(errors.InvalidRequest, match="fsync cannot be"):
        InProcessBroker(fsync="maybe")


def test_advancing_makes_delayed_messages_available_and_expires_others() -> None:
    with InProcessBroker() as broker, broker.connect() as connection:
        broker.declare("later")
        connection.send("later", "in an hour", delay=timedelta(hours=1))
        connection.send("later", "for a minute", ttl=60)
        broker.advance(59)
        assert [message.body for message in connection.peek("later")] == ["for a minute"]
        broker.advance(timedelta(hours=1))
        assert [message.body for message in connection.queue("later").receive(limit=1, timeout=LIMIT_S)] == ["in an hour"]
        assert broker.counts("later")[:3] == (0, 0, 0)


def test_advancing_ends_locks_and_no_connection() -> None:
    """A message that its consumer holds for too long comes again. An idle connection is as it was, even after ten years."""
    with InProcessBroker() as broker, broker.connect() as slow, broker.connect() as idle:
        broker.declare("locked", lockTimeout=60_000)
        idle.send("locked", "x")
        held = slow.session(AcknowledgeMode.INDIVIDUAL).consumer("locked", prefetch=1).receive(LIMIT_S)
        assert held is not None
        broker.advance(59)
        assert broker.counts("locked").acquired == 1
        server = idle.current_server()
        broker.advance(2)
        assert broker.counts("locked").available == 1
        broker.advance(timedelta(days=3600))
        idle.send("locked", "y")
        (again,) = idle.queue("locked").receive(limit=1, timeout=LIMIT_S)
        assert (again.body, idle.current_server() is server) == ("x", True)


def test_a_message_in_the_prefetch_expires_with_the_advanced_time() -> None:
    with InProcessBroker() as broker, broker.connect() as connection:
        broker.declare("prefetched")
        connection.send("prefetched", "old", ttl=60)
        with connection.session() as session:
            consumer = session.consumer("prefetched")
            until(lambda: bool(consumer.arrivals), "the message is prefetched")
            broker.advance(61)
            assert consumer.receive(0) is None
            assert consumer.expired == 1


@pytest.mark.parametrize("wrong", [-1, "1", timedelta(days=-1), 1e12])
def test_a_wrong_time_is_refused(wrong: Any) -> None:
    with InProcessBroker() as broker, pytest.raises(errors.InvalidRequest, match="duration is seconds"):
        broker.advance(wrong)
