"""The vendor's Python SDK for Azure Service Bus, unmodified, at a listener with its dialect."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from ..waiting import until
from .conftest import command_or_skip
from .driving import Program, Refused

_numbers = itertools.count()


def port_of(broker: Broker) -> int:
    """The port of the last listener, the one with the dialect."""
    ready = until(lambda: re.search(r"ready at (.*)", broker.log()), lambda: f"the broker is ready: {broker.log()}")
    assert ready is not None
    return int(re.findall(r"amqp://127\.0\.0\.1:(\d+)", ready[1])[-1])


def connection_string(broker: Broker, name: str = "RootManageSharedAccessKey", key: str = "SAS_KEY_VALUE") -> str:
    place = f"Endpoint=sb://127.0.0.1:{port_of(broker)};UseDevelopmentEmulator=true"
    return f"{place};SharedAccessKeyName={name};SharedAccessKey={key}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    listeners = [{"port": 0}, {"port": 0, "dialect": "service-bus"}]
    with Broker(tmp_path_factory.mktemp("broker") / "data", fsync="never", listeners=listeners) as running:
        yield running
        assert "Traceback" not in running.log()


@pytest.fixture(scope="module")
def flight(broker: Broker) -> Iterator[Client]:
    with Client(broker.url) as connected:
        yield connected


@pytest.fixture
def queue(flight: Client) -> str:
    """A queue with a dead-letter queue, locks of a minute and three attempts."""
    name = f"queue-{next(_numbers)}"
    flight.call("queue.declare", queue=f"{name}-dead")
    options = {"deadLetterQueue": f"{name}-dead", "lockTimeout": 60_000, "maxAttempts": 3}
    flight.call("queue.declare", queue=name, options=options)
    return name


@pytest.fixture(scope="module")
def sdk(broker: Broker) -> Iterator[Program]:
    with Program(command_or_skip("servicebus")) as program:
        program.do("open", connection=connection_string(broker))
        yield program


def test_a_message_arrives(sdk: Program, flight: Client, queue: str) -> None:
    sdk.do("send", to=queue, messages=[{"body": "hello", "subject": "greeting"}])
    assert flight.call("queue.stat", queue=queue)["available"] == 1


def test_a_batch_is_its_messages(sdk: Program, flight: Client, queue: str) -> None:
    sdk.do("send", to=queue, messages=[{"body": f"{number}"} for number in range(100)], batch=True)
    assert flight.call("queue.stat", queue=queue)["available"] == 100


def test_an_unknown_queue_has_the_vendor_s_error(sdk: Program) -> None:
    with pytest.raises(Refused) as refused:
        sdk.do("send", to="nowhere", messages=[{"body": "x"}])
    assert refused.value.level == "ServiceBusAuthenticationError"  # the SDK makes this of status 404 of $cbs, as with the vendor


# ---- users


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, str]]:
    """A broker with the user `shop`, and a key of this user."""
    data = tmp_path_factory.mktemp("guarded") / "data"
    with Broker(data, fsync="never") as broker, Client(broker.url) as client:
        client.call("queue.declare", queue="orders")
        client.call("queue.declare", queue="secrets")
    penstock("user", "add", "shop", "--password-file", "-", data=data, stdin="a password\n")
    penstock("permit", "shop", "orders", "send,receive", data=data)
    line = penstock("user", "key", "shop", data=data)
    key = line.partition(";SharedAccessKey=")[2].strip()
    with Broker(data, fsync="never", listeners=[{"port": 0, "dialect": "service-bus"}]) as broker:
        yield broker, key
        assert "Traceback" not in broker.log()


def penstock(*arguments: str, data: Path, stdin: str = "") -> str:
    command = [sys.executable, "-m", "penstock", *arguments, "--data", str(data)]
    return subprocess.run(command, input=stdin, text=True, check=True, capture_output=True).stdout


def test_a_key_of_a_user_opens_what_the_user_may_use(guarded: tuple[Broker, str]) -> None:
    broker, key = guarded
    with Program(command_or_skip("servicebus")) as program:
        program.do("open", connection=connection_string(broker, "shop", key))
        program.do("send", to="orders", messages=[{"body": "mine"}])
        with pytest.raises(Refused) as refused:
            program.do("send", to="secrets", messages=[{"body": "x"}])
        assert refused.value.level == "ServiceBusAuthenticationError"


@pytest.mark.parametrize(("name", "key"), [("shop", "d3Jvbmc="), ("nobody", None)])
def test_another_key_is_refused(guarded: tuple[Broker, str], name: str, key: str | None) -> None:
    broker, right = guarded
    with Program(command_or_skip("servicebus")) as program:
        program.do("open", connection=connection_string(broker, name, key or right))
        with pytest.raises(Refused) as refused:
            program.do("send", to="orders", messages=[{"body": "x"}])
    assert refused.value.level == "ServiceBusAuthenticationError"
