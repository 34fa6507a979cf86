"""Stored messages, encoded for AMQP when they leave, each with its tag."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ... import errors
from ...amqp import RemoteProtocolError
from ...messages.encoding.leaving import leaving
from ...messages.payloads import as_batch
from ...reading.records import OnDamage, RecordSlice, record_slices
from ...reading.slices import BlockSlice
from ...service.broker import BrokerService


def messages_of(
    broker: BrokerService, block_slice: BlockSlice, damaged: OnDamage
) -> Iterator[tuple[list[bytes], list[bytes] | Exception]]:
    """Yield the messages of a slice in order, some at a time: their tags, and the encoded messages or the error that prevents it.

    `damaged` is called for messages that cannot be read.
    """
    now = broker.wall_ms()
    for stored in record_slices(broker.journal, block_slice, damaged):
        tags = [number.to_bytes(8, "big") for number in stored.sequences().tolist()]
        try:
            messages = leaving(stored.payload, stored.attempts, stored.returned, stored.overlays, stored.ttl(now))
        except (errors.InvalidRequest, RemoteProtocolError):
            yield from _one_by_one(stored, tags, now)
        else:
            yield tags, messages


def _one_by_one(stored: RecordSlice, tags: list[bytes], now: int) -> Iterator[tuple[list[bytes], list[bytes] | Exception]]:
    count, overlays, ttl = len(tags), stored.overlays, stored.ttl(now)
    payload = as_batch(stored.payload)
    attempts, returned = np.broadcast_to(stored.attempts, count), np.broadcast_to(stored.returned, count)
    for row, tag in enumerate(tags):
        laid = {0: overlays[row]} if row in overlays else {}
        try:
            left = None if ttl is None else ttl[row : row + 1]
            [message] = leaving(payload.slice(row, 1), int(attempts[row]), int(returned[row]), laid, left)
        except (errors.InvalidRequest, RemoteProtocolError) as error:
            yield [tag], error
        else:
            yield [tag], [message]
