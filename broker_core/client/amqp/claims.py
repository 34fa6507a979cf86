"""Claims-based security (AMQP CBS 1.0, as Azure Service Bus has it): a token for each address, put at the node `$cbs`.

A connection that was opened with a key puts a token before it attaches a link, and puts a new one before the old one ends, in the
midst of its other work: the broker ends links whose token has ended. A refusal fails the connection with the broker's words.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ... import amqp, errors
from ...amqp import Accepted, Message, decode_message, events
from ...amqp.performatives import Properties
from ...amqp.states import LinkState
from ...amqp.types import Timestamp
from .links import ClientLink, LinkConnection

NODE = "$cbs"
TOKEN_TYPE = "servicebus.windows.net:sastoken"
#: Part of a token's life after which the next one is put: a quarter of it is left for a broker that does not answer at once.
RENEW_AFTER = 0.75
#: Seconds after which a token is put again that was not answered.
AGAIN_S = 10.0
#: Limit of addresses with a token in one connection. Each costs a request in three quarters of a token's life.
MAX_ADDRESSES = 256
#: Credit for answers: one comes for each request, and a request for each address at most.
ANSWERS = 2 * MAX_ADDRESSES


class SignsTokens(Protocol):
    """The key of a connection; `client.shared_access.SharedAccess` is one."""

    @property
    def token_s(self) -> int:
        """Seconds that a token is good for."""

    def audience(self, address: str) -> str:
        """Return the resource that a token for this address names."""

    def token(self, address: str, expiry: int) -> str:
        """Sign a token, good until `expiry`, in seconds since 1970."""


class _Requests(ClientLink):
    link: amqp.Sender

    def __init__(self, connection: LinkConnection, name: str) -> None:
        super().__init__(connection, NODE)
        self.link = connection.session.sender(name)
        self._attach(source=amqp.Source(address=name), target=amqp.Target(address=NODE))

    def ready(self) -> bool:
        self.check()
        return self.link.can_send

    @property
    def ended(self) -> bool:
        return self._failure is not None


class _Answers(ClientLink):
    link: amqp.Receiver

    def __init__(self, connection: LinkConnection, name: str, take: Callable[[Message], None]) -> None:
        super().__init__(connection, NODE)
        self.name = name
        self._take = take
        self.link = connection.session.receiver(name)
        self._attach(source=amqp.Source(address=NODE), target=amqp.Target(address=name))
        self.link.grant(ANSWERS)

    @property
    def ended(self) -> bool:
        return self._failure is not None

    def on_event(self, event: events.Event) -> None:
        if not isinstance(event, events.Delivered):
            super().on_event(event)
            return
        for delivery in event.deliveries:
            try:
                self._take(decode_message(delivery.payload))
            except amqp.DecodeError:
                continue  # an answer that cannot be read is none: the token is put again
        self.link.session.dispose([delivery for delivery in event.deliveries if not delivery.settled], Accepted())
        if self.link.link_credit < ANSWERS // 2 and self.link.state is LinkState.ATTACHED:
            self.link.grant(ANSWERS)


class _Asked(NamedTuple):
    """A token that was put: when the next one is due once it is taken, and when it ends, by the monotonic clock."""

    address: str
    due: float
    ends: float


class Claims:
    """Tokens of one connection. Its calls raise the broker's refusal: Unauthenticated, NotFound, PeerError."""

    def __init__(self, connection: LinkConnection, name: str, key: SignsTokens) -> None:
        self._connection = connection
        self._name = name
        self._key = key
        self._links: tuple[_Requests, _Answers] | None = None
        self._due: dict[str, float] = {}  # by address, when its next token is put
        self._ends: dict[str, float] = {}  # by address, when its last confirmed token ends
        self._asked: dict[str, _Asked] = {}  # by message id
        self._count = 0
        self._opening = False
        self._failure: errors.PenstockError | None = None

    def admit(self, address: str) -> None:
        """Put a token for an address, unless it has one; return when the broker has taken it."""
        if address in self._ends:
            return
        if len(self._due) >= MAX_ADDRESSES:
            raise errors.ResourceLimit(f"a connection has tokens for at most {MAX_ADDRESSES} addresses: open another")
        self._put(self._ready(), address)
        self._connection.wait_until(lambda: self._admitted(address), f"it does not answer a token for {address!r}")

    def renew(self, now: float) -> float | None:
        """Put what is due; return the seconds until the next is, None if none will be. Answers come in later steps."""
        if self._opening or self._links is None:
            return None
        self._check()
        for address in [address for address, due in self._due.items() if due <= now]:
            if address in self._ends and self._ends[address] <= now:
                raise errors.Unauthenticated(f"the token for {address!r} has ended, and the broker has taken no new one in time")
            self._put(self._ready(), address)
        return min((due - now for due in self._due.values()), default=None)

    def _ready(self) -> _Requests:
        """Return a link with credit, opened again where the broker has ended it: it may end those that are idle for minutes."""
        self._opening = True  # the steps that wait for it renew nothing
        try:
            if self._links is None or any(link.ended for link in self._links):
                names = f"{self._name}-put-{self._count}", f"{self._name}-cbs-{self._count}"
                self._links = _Requests(self._connection, names[0]), _Answers(self._connection, names[1], self._answered)
            requests = self._links[0]
            self._connection.wait_until(requests.ready, f"it gives no credit for {NODE}, where it takes tokens")
            return requests
        finally:
            self._opening = False

    def _admitted(self, address: str) -> bool:
        self._check()
        return address in self._ends

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _put(self, requests: _Requests, address: str) -> None:
        assert self._links is not None
        now = time.monotonic()
        self._count += 1
        number = f"{self._name}-{self._count}"
        expiry = int(time.time()) + self._key.token_s
        life = expiry - time.time()  # less than a second shorter
        request = Message(
            properties=Properties(message_id=number, to=NODE, reply_to=self._links[1].name),
            application_properties={
                "operation": "put-token",
                "type": TOKEN_TYPE,
                "name": self._key.audience(address),
                "expiration": Timestamp(expiry * 1000),
            },
            value=self._key.token(address, expiry),
            has_value=True,
        )
        self._asked[number] = _Asked(address, now + RENEW_AFTER * life, now + life)
        self._due[address] = now + min(AGAIN_S, (1 - RENEW_AFTER) * life)
        requests.link.send(self._count.to_bytes(8, "big"), request.encode())
        self._connection.flush()

    def _answered(self, answer: Message) -> None:
        number = answer.properties.correlation_id if answer.properties is not None else None
        asked = self._asked.pop(number, None) if isinstance(number, str) else None
        if asked is None:
            return
        address = asked.address
        said = answer.application_properties or {}
        status, words = _said(said, "status-code"), _said(said, "status-description")
        if status in (200, 202):
            self._ends[address], self._due[address] = asked.ends, asked.due
        else:
            kind = errors.NotFound if status == 404 else errors.Unauthenticated if status in (401, 403) else errors.PeerError
            self._failure = kind(f"the broker refuses the token for {address!r}: {words or 'it says not why'} (status {status})")


def _said(properties: Any, name: str) -> Any:
    """Read a property by its standard name or, as some peers write it, with an underscore."""
    return properties.get(name, properties.get(name.replace("-", "_")))
