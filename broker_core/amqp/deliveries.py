"""A delivery, as either end of a link sees it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from . import serial

if TYPE_CHECKING:
    from .links import Link
    from .performatives import DeliveryState


class Delivery:
    """A message on its way, from its first transfer until it is settled.

    `id` is its delivery id in the session, `tag` its delivery tag on the link; `payload` the encoded message (at a receiver, once
    it is complete). `state` is our last state, `remote_state` the peer's, `in_short`; `settled` and `remote_settled` say which
    side has settled it. `rcv_settle_mode` is the mode of this delivery.
    """

    __slots__ = (
        "batchable",
        "format",
        "id",
        "link",
        "payload",
        "rcv_settle_mode",
        "remote_settled",
        "remote_state",
        "resumed",
        "settled",
        "state",
        "tag",
    )

    def __init__(self, link: Link, id: int, tag: bytes, format: int, payload: bytes, settled: bool, mode: int) -> None:
        self.link = link
        self.id = id
        self.tag = tag
        self.format = format
        self.payload = payload
        self.settled = settled
        self.remote_settled = settled
        self.rcv_settle_mode = mode
        self.state: DeliveryState | None = None
        self.remote_state: DeliveryState | None = None
        self.resumed = False
        self.batchable = False

    def __repr__(self) -> str:
        return f"Delivery(id={self.id}, tag={self.tag!r}, {len(self.payload)} octets, settled={self.settled})"


class Block(NamedTuple):
    """Complete messages whose delivery ids follow each other, from `first` on.

    Nothing else is kept of them (`Receiver.in_blocks`).
    """

    first: int
    payloads: list[bytes]
    settled: bool = False


def in_range(unsettled: dict[int, Delivery], first: int, span: int) -> list[Delivery]:
    """Return the unsettled deliveries from `first` on, `span` steps further at most, in their order."""
    if span < len(unsettled):
        found = (unsettled.get(serial.add(first, step)) for step in range(span + 1))
        return [delivery for delivery in found if delivery is not None]
    inside = [d for d in unsettled.values() if 0 <= serial.difference(d.id, first) <= span]
    return sorted(inside, key=lambda d: serial.difference(d.id, first))


class Lost:
    """Deliveries of ours that ended before their receiver gave them a state: with their link, or aborted.

    A later state from the receiver changes nothing, but one in a transaction must be reported. Ids are kept as ranges, at most
    `RANGES`: beyond that the two oldest become one, with all between them.
    """

    __slots__ = ("_ranges",)

    RANGES = 1000  # a few kilobytes for each session; links end with neighbouring deliveries, so that few are needed

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []  # first and last, in the order in which they were lost

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, ids: Iterable[int]) -> None:
        """Add delivery ids."""
        self._ranges += serial.ranges(list(ids))
        self._limit()

    def take(self, ranges: Sequence[tuple[int, int]]) -> bool:
        """Return True if any of these ranges names a lost delivery. Each is reported once: named ones are forgotten."""
        found = False
        for first, last in ranges if self._ranges else ():
            kept: list[tuple[int, int]] = []
            for low, high in self._ranges:
                if serial.difference(high, first) < 0 or serial.difference(last, low) < 0:
                    kept.append((low, high))
                    continue
                found = True
                if serial.difference(first, low) > 0:
                    kept.append((low, serial.add(first, -1)))
                if serial.difference(high, last) > 0:
                    kept.append((serial.add(last, 1), high))
            self._ranges = kept
        self._limit()
        return found

    def _limit(self) -> None:
        beyond = len(self._ranges) - self.RANGES
        if beyond > 0:
            self._ranges[: beyond + 1] = [(self._ranges[0][0], self._ranges[beyond][1])]
