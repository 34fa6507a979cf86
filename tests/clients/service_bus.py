"""The vendor's SDKs for Azure Service Bus, as programs that a test drives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from ..waiting import until
from .driving import Program, Refused

#: SDK → its program (see building.py) with its arguments.
SDKS = {
    "python": ("servicebus", ()),
    "python-aio": ("servicebus", ("aio",)),
    "javascript": ("servicebus_js", ()),
    "java": ("servicebus_java", ()),
}

#: Of a broker whose last listener is one for Service Bus.
SETTINGS: dict[str, Any] = {"listeners": [{"port": 0}, {"port": 0, "dialect": "service-bus"}]}

Message = dict[str, Any]


def port_of(broker: Broker, scheme: str = "amqp") -> int:
    """The port of the last listener with a scheme."""
    ready = until(lambda: re.search(r"ready at (.*)", broker.log()), lambda: f"the broker is ready: {broker.log()}")
    assert ready is not None
    return int(re.findall(rf"{scheme}://[^:]+:(\d+)", ready[1])[-1])


def connection_string(
    broker: Broker, name: str = "RootManageSharedAccessKey", key: str = "SAS_KEY_VALUE", port: int | None = None
) -> str:
    place = f"Endpoint=sb://127.0.0.1:{port or port_of(broker)};UseDevelopmentEmulator=true"
    return f"{place};SharedAccessKeyName={name};SharedAccessKey={key}"


class Sdk:
    """A program with one SDK."""

    def __init__(self, name: str, program: Program) -> None:
        self.name, self.program = name, program
        self.do = program.do

    def send(self, to: str, *messages: str | Message, **how: bool) -> None:
        several = [{"body": message} if isinstance(message, str) else message for message in messages]
        self.do("send", to=to, messages=several, **how)

    def receive(self, from_: str, count: int = 1, **mode: Any) -> list[Message]:
        return self.program.receive(from_, count, **mode)

    def take(self, from_: str, **mode: Any) -> Message:
        """Receive one message."""
        (message,) = self.receive(from_, **mode)
        return message

    def peek(self, from_: str, count: int = 1, **first: int) -> list[Message]:
        messages: list[Message] = self.do("peek", from_=from_, count=count, **first)["messages"]
        return messages

    def deferred(self, from_: str, *numbers: int, **mode: bool) -> list[Message]:
        """Receive deferred messages by their sequence numbers."""
        messages: list[Message] = self.do("receive_deferred", from_=from_, numbers=numbers, **mode)["messages"]
        return messages

    def accept(self, from_: str, **how: Any) -> str:
        """Accept a session; return its id."""
        session: str = self.do("accept", from_=from_, **how)["session"]
        return session

    def settle(self, *messages: Message, how: str = "complete", **details: Any) -> None:
        for message in messages:
            self.do("settle", token=message["token"], how=how, **details)

    @contextmanager
    def fails(self, *reasons: str) -> Iterator[None]:
        """Expect a failure for a reason. SDKs write it as MessageLockLostError, MessageLockLost or MESSAGE_LOCK_LOST."""
        with pytest.raises(Refused) as refused:
            yield
        assert re.sub("[^a-z]|error$", "", refused.value.level.lower()) in reasons, refused.value


def declared(flight: Client, name: str, **options: Any) -> str:
    """Declare a queue with a dead-letter queue, locks of a minute and three attempts, or with these options."""
    flight.call("queue.declare", queue=f"{name}-dead")
    options = {"deadLetterQueue": f"{name}-dead", "lockTimeout": 60_000, "maxAttempts": 3} | options
    flight.call("queue.declare", queue=name, options=options)
    return name


def bodies(messages: list[Message]) -> list[Any]:
    return [message["body"] for message in messages]


def unsettled(flight: Client, queue: str) -> dict[str, int]:
    stat = flight.call("queue.stat", queue=queue)
    return {state: stat[state] for state in ("available", "acquired", "delayed", "deferred") if stat[state]}
