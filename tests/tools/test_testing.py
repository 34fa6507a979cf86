"""`penstock.testing` (U8): a broker in the process of a user's tests, used as they use it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.broker_core import errors
from penstock.testing import InProcessBroker

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
