"""Access to a broker: its address and our credentials, in one value that travels to executors.

It holds secrets (a password, a private key, a token), so it travels only inside readers and writers, which Spark keeps in memory;
it is in no offset and no commit message, and its repr shows none of them. Of partitions, which Spark pickles one by one, none
has it: with a CA bundle it is hundreds of kilobytes.

With an AMQP url the planner discovers the Flight endpoint, and hands it to its tasks, in their partitions, which then need no
login of their own. A token ends after an hour, or with the broker's process; a task that is refused for that discovers again by
itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..broker_core.client.credentials import NOBODY, Credentials
from ..broker_core.client.discovery import SCHEMES, Endpoint
from ..broker_core.client.flight import Client


@dataclass(frozen=True)
class Access:
    """`url` is the user's; `known` the endpoint that was found there last."""

    url: str
    credentials: Credentials = field(default=NOBODY, repr=False)
    known: Endpoint | None = field(default=None, repr=False)

    def client(self) -> Client:
        """A connection. With an AMQP url of which nothing is known, this asks the broker."""
        return Client(self.url, self.credentials, known=self.known)

    def at(self, known: Endpoint | None) -> Access:
        """Return a copy with the endpoint that somebody else has found."""
        return replace(self, known=known)

    def found_by(self, client: Client) -> Access:
        """Return a copy with the endpoint that this client knows now."""
        return replace(self, known=client.endpoint)

    def found(self) -> Access:
        """Return a copy with the endpoint, discovered now. Raises PenstockError where no broker answers."""
        if not self.url.startswith(SCHEMES):
            return self
        with self.client() as client:
            return self.found_by(client)
