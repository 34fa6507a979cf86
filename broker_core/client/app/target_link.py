"""Sending link of a producer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ... import amqp, errors
from ...amqp import LocalProtocolError, events
from ...amqp.performatives import SND_UNSETTLED, DeliveryState
from ..amqp.links import ClientLink
from ..amqp.sender import MAX_UNSETTLED
from .server import ServerConnection


class TooLarge(errors.ResourceLimit):
    """A message larger than the broker takes; nothing was sent."""


class TargetLink(ClientLink):
    """A sending link, attached when made. The pump calls `settled(sequence, state)` and `failed(error)` under the lock."""

    link: amqp.Sender

    def __init__(
        self,
        server: ServerConnection,
        session: amqp.Session,
        address: str,
        settled: Callable[[int, object], None],
        failed: Callable[[errors.PenstockError], None],
        target: object | None = None,
    ) -> None:
        super().__init__(server, address)
        self._settled, self._failed = settled, failed
        self.link = session.sender(server.new_link_name())
        self._attach(
            source=amqp.Source(outcomes=("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")),
            target=amqp.Target(address=address) if target is None else target,
            snd_settle_mode=SND_UNSETTLED,
        )

    @property
    def ready(self) -> bool:
        return self.usable and self.link.can_send and len(self.link.unsettled) < MAX_UNSETTLED and not self.connection.congested

    def put(self, sequence: int, payload: bytes, state: DeliveryState | None = None) -> None:
        """Send a message; only when `ready`. `sequence` becomes its delivery tag. If the connection is ending, the message is
        lost with it.
        """
        limit = self.link.max_message_size
        if limit and len(payload) > limit:
            raise TooLarge(f"a message of {len(payload):,} octets was not sent: {self.address!r} takes {limit:,}")
        with suppress(LocalProtocolError):
            self.link.send(sequence.to_bytes(8, "big"), payload, state=state)
        self.connection.flush()

    def put_many(self, sequences: Sequence[int], payloads: Sequence[bytes]) -> int:
        """Send the first messages for which credit, window and frame size suffice. Return their number; only when `ready`."""
        sent = 0
        with suppress(LocalProtocolError):
            sent = len(self.link.send_many([sequence.to_bytes(8, "big") for sequence in sequences], payloads))
        self.connection.flush()
        return sent

    def on_event(self, event: events.Event) -> None:
        before = self.failure
        super().on_event(event)
        if isinstance(event, events.Flowed):
            self.link.drained()
        elif isinstance(event, events.Detached | events.Violated):
            self.connection.links.pop(self.link, None)
            if before is None and self.failure is not None:
                self._failed(self.failure)

    def on_outcome(self, deliveries: list[Any], state: object) -> None:
        for delivery in deliveries:
            self._settled(int.from_bytes(delivery.tag, "big"), state)
