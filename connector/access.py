"""Access to a broker: its address and our credentials, in one value that travels to executors.

It holds secrets, so it travels only inside readers and writers, which Spark keeps in memory: no offset, commit message or
partition holds it. With a CA bundle it has hundreds of kilobytes, and Spark pickles partitions one by one.

With an AMQP url the planner discovers the Flight endpoint, and passes it to tasks in their partitions, so that they need no
login. A token ends after an hour, or with the broker's process; a task then discovers the endpoint again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ..broker_core import executor_modules
from ..broker_core.client import discovery, timeouts
from ..broker_core.client.credentials import NOBODY, Credentials
from ..broker_core.client.discovery import SCHEMES, Endpoint, Foreign
from ..broker_core.client.flight import Client


@dataclass(frozen=True)
class BrokerAccess:
    """`known`: the last discovered endpoint. `largest`: bytes of a message from a foreign broker; None: the client's default."""

    url: str
    credentials: Credentials = field(default=NOBODY, repr=False)
    known: Endpoint | None = field(default=None, repr=False)
    largest: int | None = None

    def client(self) -> Client:
        return Client(self.url, self.credentials, known=self.known, program="spark")

    def amqp(self, timeout_s: float) -> Any:
        """Return a `client.amqp.Connection`, whose every wait ends after `timeout_s`.

        This code may travel by value: call it within `executor_modules.own_errors`.
        """
        limits = {} if self.largest is None else {"max_message_octets": self.largest}
        return executor_modules.module("client.amqp").login(self.url, self.credentials, timeout_s=timeout_s, **limits)

    def of(self, url: str) -> BrokerAccess:
        """An empty url is its own."""
        return self if url in ("", self.url) else replace(self, url=url, known=None)

    def at(self, known: Endpoint | None) -> BrokerAccess:
        return replace(self, known=known)

    def look(self) -> Endpoint | Foreign | None:
        """Ask the broker for its product; None for a url that is not AMQP's: it is a Penstock's."""
        if not self.url.startswith(SCHEMES):
            return None
        return discovery.look(self.url, self.credentials, timeouts.SILENCE_S)

    def discovered(self) -> BrokerAccess:
        if not self.url.startswith(SCHEMES):
            return self
        with self.client() as client:
            return self.at(client.endpoint)
