"""A peer that wants a token for each address (CBS), as Azure Service Bus does, and ends links whose token has ended."""

from __future__ import annotations

import threading
import time
from typing import Any
from urllib.parse import parse_qs

from penstock.broker_core import amqp
from penstock.broker_core.amqp import Message, SaslServer, decode_message, events
from penstock.broker_core.amqp.performatives import Error, Properties
from penstock.broker_core.amqp.states import LinkState
from penstock.broker_core.client.shared_access import SharedAccess

from .peer import Peer

NODE = "$cbs"
KEY = "bm8gc2VjcmV0"


class ClaimsPeer(Peer):
    """Checks the signature of each token. `tokens` holds the accepted tokens by address, `ended` the ended links."""

    def __init__(self, *, refuse_after: int | None = None, host: str = "127.0.0.1", **settings: Any) -> None:
        super().__init__(sasl=lambda: SaslServer(["ANONYMOUS"]), hook=self._look, **settings)
        self.host = host
        self.refuse_after = refuse_after
        self.tokens: dict[str, list[str]] = {}
        self.ended: list[str] = []
        self._ends: dict[str, float] = {}
        self._answers: dict[amqp.Connection, amqp.Sender] = {}
        self._expired: dict[str, list[bytes]] = {}
        self._lock = threading.Lock()

    @property
    def connection_string(self) -> str:
        """A user's connection string, with the right key."""
        place = f"Endpoint=sb://{self.host}:{self.port}/;UseDevelopmentEmulator=true"
        return f"{place};SharedAccessKeyName=tests;SharedAccessKey={KEY}"

    def expire(self, address: str, then: list[bytes]) -> None:
        """At the next outcome, let the token of this address end and with it a link from there. Then `then` is in the queue."""
        self._expired[address] = then

    def _look(self, _: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Attached):
            return self._attached(machine, event)
        if self._expired and isinstance(event, events.Disposed):
            link = event.deliveries[0].link
            address = str(getattr(link.source, "address", None))
            if isinstance(link, amqp.Sender) and address in self._expired:
                self._ends[address] = 0
                self.queues[address] = self._expired.pop(address)
                self._end(link, address)
                return True
        if isinstance(event, events.Delivered):
            address = event.link.target.address if event.link.target is not None else None
            if address == NODE:
                event.link.session.dispose(event.deliveries, amqp.Accepted())
                for delivery in event.deliveries:
                    self._put(machine, decode_message(delivery.payload))
                return True
            if self._ends[str(address)] <= time.time() and event.link.state is LinkState.ATTACHED:
                self._end(event.link, str(address))
                return True
        return False

    def _attached(self, machine: amqp.Connection, event: events.Attached) -> bool:
        link, attach = event.link, event.attach
        sends = isinstance(link, amqp.Sender)
        address = attach.source.address if sends else attach.target.address
        if address != NODE and self._ends.get(address, 0) <= time.time():
            link.refuse(amqp.Condition.UNAUTHORIZED_ACCESS, f"no token for {address}")
            return True
        if sends and address == NODE:
            self._answers[machine] = link
        return False

    def _end(self, link: amqp.Link, address: str) -> None:
        self.ended.append(address)
        link.detach(closed=True, error=Error(condition=amqp.Condition.UNAUTHORIZED_ACCESS, description="the token has ended"))

    def _put(self, machine: amqp.Connection, request: Message) -> None:
        properties, body = request.application_properties or {}, str(request.value)
        address = str(properties["name"]).removeprefix(f"sb://{self.host}/")
        with self._lock:
            count = sum(map(len, self.tokens.values()))
            refused = self.refuse_after is not None and count >= self.refuse_after
            expiry = int(parse_qs(body.partition(" ")[2])["se"][0])
            right = body == SharedAccess(self.host, "tests", KEY).token(address, expiry)
            status, words = (202, "Accepted") if right and not refused else (401, "InvalidSignature: no such key")
            if status == 202:
                self.tokens.setdefault(address, []).append(body)
                self._ends[address] = expiry
        assert request.properties is not None
        answer = Message(
            properties=Properties(correlation_id=request.properties.message_id),
            application_properties={"status-code": amqp.types.Int(status), "status-description": words},
        )
        self._answers[machine].send(self._count.to_bytes(4, "big"), answer.encode())

    @property
    def _count(self) -> int:
        return len(self.seen)
