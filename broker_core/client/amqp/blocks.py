"""Receiving in blocks: payloads and a range of delivery ids, no object for each message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...amqp import Accepted, events
from ...amqp.deliveries import Block
from .receiving import ReceivingLink

_ACCEPTED = Accepted()


class BlockReceiver(ReceivingLink):
    """A receiving link, made by `Connection.block_receiver`, whose messages come in blocks: `receive_blocks`, `accept_ids`.

    A block has `payloads`, the encoded messages; `first`, the delivery id of the first, those of the others following it; and
    `settled`, True for what the broker asks no outcome of. It needs the link for nothing else, so a program may keep millions.
    """

    def __init__(self, *terms: Any) -> None:
        super().__init__(*terms)
        self.link.in_blocks = True  # no transfer was read yet: the credit is on its way

    def receive_blocks(self, timeout_s: float | None = None) -> list[Block]:
        """Return the blocks that have come, in order. Empty when none came.

        Args:
            timeout_s: Seconds to wait for the first of them at most. None waits without a limit.

        Raises:
            PenstockError: The broker has ended the link, or the connection has failed.
        """
        found: list[Block] = self._take(None, timeout_s)
        return found

    def accept_ids(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Accept messages by their delivery ids; each range is a frame. Nothing is waited for.

        Args:
            ranges: The first and the last id of each, both included; ids are of 32 bits and wrap.

        Raises:
            PenstockError: The broker has ended the link, or the connection has failed.
        """
        self.check()
        if ranges:
            self.link.session.dispose_ids(ranges, _ACCEPTED)
            self.connection.flush()

    def _count(self) -> int:
        return sum([len(block.payloads) for block in self._waiting])

    # --- for the connection

    def on_event(self, event: events.Event) -> None:
        """Handle an event of this link."""
        if isinstance(event, events.Arrived):
            self._come(event.block)
        elif isinstance(event, events.Delivered):
            for delivery in event.deliveries:
                self._come(Block(delivery.id, [delivery.payload], delivery.settled))
                delivery.payload = b""  # the session keeps the delivery until it is settled
        else:
            super().on_event(event)

    def _come(self, block: Block) -> None:
        self.received += len(block.payloads)
        self._waiting.append(block)
