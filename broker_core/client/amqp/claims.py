"""Claims-based security (AMQP CBS 1.0, as in Azure Service Bus): a token for each address, put at the node `$cbs`.

The broker ends links whose token has ended, so a token is replaced in time, during other work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ... import amqp, errors
from ...amqp import Accepted, Message, decode_message, events
from ...amqp.performatives import Properties
from ...amqp.types import Timestamp
from ..shared_access import SharedAccess
from .links import ClientLink, LinkConnection

NODE = "$cbs"
TOKEN_TYPE = "servicebus.windows.net:sastoken"
#: Part of a token's life after which the next one is put.
RENEW_AFTER = 0.75
#: Seconds until a token is put again without an answer.
AGAIN_S = 10.0
#: Limit of addresses in one connection.
MAX_ADDRESSES = 256
#: Credit for answers: at most one request is open for each address.
ANSWERS = 2 * MAX_ADDRESSES


class _Requests(ClientLink):
    link: amqp.Sender

    def __init__(self, connection: LinkConnection, session: amqp.Session) -> None:
        super().__init__(connection, NODE)
        name = connection.new_link_name()
        self.link = session.sender(name)
        self._attach(source=amqp.Source(address=name), target=amqp.Target(address=NODE))

    def ready(self) -> bool:
        self.check()
        return self.link.can_send


class _Answers(ClientLink):
    link: amqp.Receiver

    def __init__(self, connection: LinkConnection, session: amqp.Session, take: Callable[[Message], None]) -> None:
        super().__init__(connection, NODE)
        self.name = connection.new_link_name()
        self._take = take
        self.link = session.receiver(self.name)
        self._attach(source=amqp.Source(address=NODE), target=amqp.Target(address=self.name))
        self.link.grant(ANSWERS)

    def on_event(self, event: events.Event) -> None:
        if not isinstance(event, events.Delivered):
            super().on_event(event)
            return
        for delivery in event.deliveries:
            try:
                self._take(decode_message(delivery.payload))
            except amqp.DecodeError:
                continue  # the token is put again
        self.link.session.dispose([delivery for delivery in event.deliveries if not delivery.settled], Accepted())
        if self.link.link_credit < ANSWERS // 2 and self.usable:
            self.link.grant(ANSWERS)


class _Token(NamedTuple):
    """A token that was put. `due` of the next one, and `ends`, are on the monotonic clock."""

    address: str
    due: float
    ends: float


class Claims:
    """Tokens of one connection. Its calls raise the broker's refusal: Unauthenticated, NotFound, PeerError."""

    def __init__(self, connection: LinkConnection, session: amqp.Session, key: SharedAccess) -> None:
        self._connection = connection
        self._session = session
        self._key = key
        self._links: tuple[_Requests, _Answers] | None = None
        self._due: dict[str, float] = {}  # by address
        self._ends: dict[str, float] = {}  # by address
        self._unanswered: dict[str, _Token] = {}  # by message id
        self._count = 0
        self._opening = False
        self._failure: errors.PenstockError | None = None

    def admit(self, address: str) -> None:
        if address in self._ends:
            return
        if len(self._due) >= MAX_ADDRESSES:
            raise errors.ResourceLimit(f"a connection has tokens for at most {MAX_ADDRESSES} addresses: open another")
        self._put(address)
        self._connection.wait_until(lambda: self._admitted(address), f"it does not answer a token for {address!r}")

    def renew(self, now: float) -> float | None:
        """Put due tokens. Return the seconds until the next one is due, or None."""
        if self._opening or self._links is None:
            return None
        self._check()
        for address in [address for address, due in self._due.items() if due <= now]:
            if address in self._ends and self._ends[address] <= now:
                raise errors.Unauthenticated(f"the token for {address!r} has ended, and the broker has taken no new one in time")
            self._put(address)
        return min((due - now for due in self._due.values()), default=None)

    def _open_links(self) -> tuple[_Requests, _Answers]:
        """Return the links, with credit. The broker may have ended idle ones."""
        self._opening = True  # steps that wait for the links renew no tokens
        try:
            if self._links is None or any(link.failure is not None for link in self._links):
                requests = _Requests(self._connection, self._session)
                self._links = requests, _Answers(self._connection, self._session, self._answered)
            self._connection.wait_until(self._links[0].ready, f"it gives no credit for {NODE}, where it takes tokens")
            return self._links
        finally:
            self._opening = False

    def _admitted(self, address: str) -> bool:
        self._check()
        return address in self._ends

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _put(self, address: str) -> None:
        requests, answers = self._open_links()
        now = time.monotonic()
        self._count += 1
        message_id = f"{answers.name}-{self._count}"
        expiry = int(time.time()) + self._key.token_s
        life = expiry - time.time()
        request = Message(
            properties=Properties(message_id=message_id, to=NODE, reply_to=answers.name),
            application_properties={
                "operation": "put-token",
                "type": TOKEN_TYPE,
                "name": self._key.audience(address),
                "expiration": Timestamp(expiry * 1000),
            },
            value=self._key.token(address, expiry),
            has_value=True,
        )
        self._unanswered[message_id] = _Token(address, now + RENEW_AFTER * life, now + life)
        self._due[address] = now + min(AGAIN_S, (1 - RENEW_AFTER) * life)
        requests.link.send(self._count.to_bytes(8, "big"), request.encode())
        self._connection.flush()

    def _answered(self, answer: Message) -> None:
        message_id = answer.properties.correlation_id if answer.properties is not None else None
        token = self._unanswered.pop(message_id, None) if isinstance(message_id, str) else None
        if token is None:
            return
        address, properties = token.address, answer.application_properties or {}
        status, reason = _property(properties, "status-code"), _property(properties, "status-description")
        if status in (200, 202):
            self._ends[address], self._due[address] = token.ends, token.due
        else:
            kind = errors.NotFound if status == 404 else errors.Unauthenticated if status in (401, 403) else errors.PeerError
            self._failure = kind(
                f"the broker refuses the token for {address!r}: {reason or 'it gives no reason'} (status {status})"
            )


def _property(properties: Any, name: str) -> Any:
    return properties.get(name, properties.get(name.replace("-", "_")))
