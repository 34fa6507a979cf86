"""Sessions of Azure Service Bus with the Python SDK alone: states, lists. All SDKs: scenarios/."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from ..waiting import until
from .conftest import command_or_skip
from .driving import Program, Refused
from .service_bus import SETTINGS, connection_string, port_of, unsettled

_numbers = itertools.count()
LOCK_S = 60


def program() -> Program:
    folder = Path(command_or_skip("servicebus")[1]).parent
    return Program([sys.executable, str(Path(__file__).with_name("session_program.py")), str(folder)])


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return SETTINGS


@pytest.fixture
def queue(flight: Client) -> str:
    """A queue with sessions, locks of a minute and a dead-letter queue."""
    name = f"queue-{next(_numbers)}"
    flight.call("queue.declare", queue=f"{name}-dead")
    options = {"groups": "held", "lockTimeout": LOCK_S * 1000, "deadLetterQueue": f"{name}-dead"}
    flight.call("queue.declare", queue=name, options=options)
    return name


@pytest.fixture(scope="module")
def running(broker: Broker) -> Iterator[Program]:
    with program() as started:
        started.do("open", connection=connection_string(broker))
        yield started


@pytest.fixture
def sdk(running: Program) -> Iterator[Program]:
    """The program, whose receivers end with the test."""
    yield running
    running.do("leave")


def messages(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"session_id": session, "body": body} for session, body in pairs]


THREE = messages(("red", "r1"), ("blue", "b1"), ("red", "r2"))


def bodies(sdk: Program, name: str, count: int, **more: Any) -> list[str]:
    return [message["body"] for message in sdk.do("receive", name=name, count=count, **more)["messages"]]


# ---- accepting


def test_a_batch_has_messages_of_several_sessions(sdk: Program, flight: Client, queue: str) -> None:
    sdk.do("send", to=queue, messages=THREE, batch=True)
    sdk.do("accept", name="a", from_=queue, session="red")
    assert bodies(sdk, "a", 2) == ["r1", "r2"]
    sdk.do("settle", name="a", number=1)
    sdk.do("settle", name="a", number=3)
    assert unsettled(flight, queue) == {"available": 1}


def test_a_scheduled_message_comes_to_its_session(sdk: Program, queue: str) -> None:
    sdk.do("accept", name="a", from_=queue, session="red")
    sdk.do("send", to=queue, messages=messages(("red", "later"), ("blue", "not here")), at=time.time() + 1)
    assert bodies(sdk, "a", 1) == ["later"]
    assert sdk.do("accept", name="b", from_=queue)["session"] == "blue"


def test_a_queue_without_groups_says_how_to_declare_one(sdk: Program, flight: Client) -> None:
    flight.call("queue.declare", queue="plain")
    with pytest.raises(Refused, match="declare it again with `--option groups=held`"):
        sdk.do("accept", name="a", from_="plain", wait=1)


# ---- settling


def test_receive_and_delete(sdk: Program, flight: Client, queue: str) -> None:
    sdk.do("send", to=queue, messages=THREE)
    sdk.do("accept", name="a", from_=queue, delete=True)
    assert bodies(sdk, "a", 2) == ["r1", "r2"]
    until(lambda: unsettled(flight, queue) == {"available": 1}, "the messages of the session are settled")


# ---- states


def test_a_state_stays_with_its_session(sdk: Program, queue: str) -> None:
    sdk.do("accept", name="a", from_=queue, session="red")
    assert sdk.do("state", name="a")["state"] is None
    sdk.do("set", name="a", state="half of it")
    sdk.do("accept", name="b", from_=queue, session="blue")
    assert sdk.do("state", name="b")["state"] is None
    sdk.do("leave", name="a")
    sdk.do("accept", name="a", from_=queue, session="red")
    assert sdk.do("state", name="a")["state"] == "half of it"
    with pytest.raises(Refused, match="1,048,576 bytes, and at most 262,144 are kept"):
        sdk.do("set", name="a", size=1 << 20)
    assert sdk.do("state", name="a")["state"] == "half of it"
    sdk.do("set", name="a", state=None)
    assert sdk.do("state", name="a")["state"] is None


def test_the_sessions_of_a_queue_and_a_peek_of_one(sdk: Program, queue: str) -> None:
    assert sdk.do("list", from_=queue)["sessions"] == []
    sdk.do("send", to=queue, messages=THREE)
    before = time.time() - 5
    sdk.do("accept", name="a", from_=queue, session="idle")
    sdk.do("set", name="a", state="waits")
    assert sdk.do("list", from_=queue)["sessions"] == ["red", "blue", "idle"]
    assert sdk.do("list", from_=queue, since=before)["sessions"] == ["idle"]
    sdk.do("accept", name="b", from_=queue, session="red")
    assert sdk.do("peek", name="b")["bodies"] == ["r1", "r2"]


def test_many_sessions_are_listed_in_pages(sdk: Program, queue: str) -> None:
    several = messages(*((f"session {number}", "x") for number in range(250)))
    sdk.do("send", to=queue, messages=several, batch=True)
    assert sdk.do("list", from_=queue)["sessions"] == [message["session_id"] for message in several]


def test_the_program_of_the_document_runs(broker: Broker, flight: Client, repository: Path) -> None:
    flight.call("queue.declare", queue="carts", options={"groups": "held", "lockTimeout": 60_000})
    text = (repository / "docs" / "service-bus.md").read_text().partition("## Sessions")[2]
    code = text.partition("```python\n")[2].partition("```")[0].replace("localhost:5672", f"127.0.0.1:{port_of(broker)}")
    folder = Path(command_or_skip("servicebus")[1]).parent
    environment = {**os.environ, "PYTHONPATH": str(folder / "lib")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "cart 7 a hat\ncart 7 a coat\n"


def test_a_state_survives_a_kill_of_the_broker(tmp_path: Path) -> None:
    listeners = [{"port": 0, "dialect": "service-bus"}]
    for life in range(2):
        with Broker(tmp_path / "data", listeners=listeners) as broker, program() as started:
            with Client(broker.url) as client:
                client.call("queue.declare", queue="q", options={"groups": "held"})
            started.do("open", connection=connection_string(broker))
            if not life:
                started.do("send", to="q", messages=THREE)
            assert started.do("accept", name="a", from_="q")["session"] == "red", "no lock outlives the broker"
            assert started.do("state", name="a")["state"] == (None, "half of it")[life]
            assert [message["attempts"] for message in started.do("receive", name="a", count=2)["messages"]] == [0, 0]
            started.do("set", name="a", state="half of it")
            if not life:
                broker.kill()
