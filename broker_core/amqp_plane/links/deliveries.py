"""Stored messages as AMQP says them when they leave, each with its tag."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ... import errors
from ...amqp import RemoteProtocolError
from ...messages.encoding.leaving import leaving
from ...reading.stored import Cut, OnDamage, Stretch, stretches

if TYPE_CHECKING:
    from ...service.broker import BrokerService


def messages_of(service: BrokerService, cut: Cut, damaged: OnDamage) -> Iterator[tuple[list[bytes], list[bytes] | Exception]]:
    """The messages of a cut in order, some at a time: their tags, and they themselves encoded, or why AMQP cannot say them.
    `damaged` is told of those that cannot be read."""
    now = service.wall_ms()
    for stretch in stretches(service.journal, cut, damaged):
        tags = [number.to_bytes(8, "big") for number in stretch.sequences().tolist()]
        try:
            messages = leaving(stretch.payload, stretch.attempts, stretch.returned, stretch.overlays, stretch.ttl(now))
        except (errors.InvalidRequest, RemoteProtocolError):
            yield from _one_by_one(stretch, tags, now)
        else:
            yield tags, messages


def _one_by_one(stretch: Stretch, tags: list[bytes], now: int) -> Iterator[tuple[list[bytes], list[bytes] | Exception]]:
    count, overlays, ttl = len(tags), stretch.overlays, stretch.ttl(now)
    attempts, returned = np.broadcast_to(stretch.attempts, count), np.broadcast_to(stretch.returned, count)
    for row, tag in enumerate(tags):
        laid = {0: overlays[row]} if row in overlays else {}
        try:
            left = None if ttl is None else ttl[row : row + 1]
            [message] = leaving(stretch.payload.slice(row, 1), int(attempts[row]), int(returned[row]), laid, left)
        except (errors.InvalidRequest, RemoteProtocolError) as error:
            yield [tag], error
        else:
            yield [tag], [message]
