"""Receiving in blocks, without an object for each message."""

from __future__ import annotations

from collections.abc import Sequence

from ... import amqp
from ...amqp import Accepted, events
from ...amqp.deliveries import DeliveryBlock
from .receiving import ReceivingLink, ReceivingTerms, SteppedConnection

_ACCEPTED = Accepted()


class BlockReceiver(ReceivingLink):
    """A link made by `Connection.block_receiver`.

    A block has `payloads` (the encoded messages), `first` (the delivery id of the first one; the others follow it) and `settled`
    (True if the broker expects no outcome). It does not refer to the link, so a program may keep millions.
    """

    def __init__(self, connection: SteppedConnection, session: amqp.Session, address: str, terms: ReceivingTerms) -> None:
        super().__init__(connection, session, address, terms)
        self.link.in_blocks = True  # no transfer has been read yet: the credit is still on its way

    def receive_blocks(self, timeout_s: float | None = None) -> list[DeliveryBlock]:
        """Return the blocks that have come, in order. Waits at most `timeout_s` seconds for the first one; None: without a
        limit. Raises PenstockError if the link or the connection has ended.
        """
        return self._take(None, timeout_s)

    def accept_ids(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Accept ranges of messages by first and last delivery id, both included, one frame for each. Ids have 32 bits and
        wrap. Does not wait. Raises PenstockError if the link or the connection has ended.
        """
        self.check()
        if ranges:
            self.link.session.dispose_ids(ranges, _ACCEPTED)
            self.connection.flush()

    def _count(self) -> int:
        return sum([len(block.payloads) for block in self._waiting])

    def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Arrived):
            self._add(event.block)
        elif isinstance(event, events.Delivered):
            for delivery in event.deliveries:
                self._add(DeliveryBlock(delivery.id, [delivery.payload], delivery.settled))
                delivery.payload = b""  # the session keeps the delivery until it is settled
        else:
            super().on_event(event)

    def _add(self, block: DeliveryBlock) -> None:
        self.received += len(block.payloads)
        self._waiting.append(block)
