"""One delivery, as either end of a link sees it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import serial

if TYPE_CHECKING:
    from .links import Link
    from .performatives import DeliveryState


class Delivery:
    """A message under way, from its first transfer until it is settled.

    `id` is the session's number, `tag` the sender's name for it on the link; `payload` the encoded message (a receiver's, once
    it is complete). `state` is what we said last, `remote_state` what the peer said last; `settled` and `remote_settled` who
    has forgotten it. `rcv_settle_mode` is what holds for this delivery.
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


def in_range(unsettled: dict[int, Delivery], first: int, span: int) -> Iterable[Delivery]:
    """The unsettled deliveries from `first` on, `span` steps further at most, in their order."""
    if span < len(unsettled):
        found = (unsettled.get(serial.add(first, step)) for step in range(span + 1))
        return [delivery for delivery in found if delivery is not None]
    inside = [d for d in unsettled.values() if 0 <= serial.difference(d.id, first) <= span]
    return sorted(inside, key=lambda d: serial.difference(d.id, first))
