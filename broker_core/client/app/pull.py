"""Explicit pull (prefetch 0): the client never keeps more than one message."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .received import RELEASED, ReceivedMessage
from .source_link import SourceLink

if TYPE_CHECKING:
    from .consumer import Consumer


def pull(consumer: Consumer, deadline: float | None) -> ReceivedMessage | None:
    """Return the next message of any source, or None at `deadline`. The caller holds the lock.

    One source gets credit 1, and a drain at the deadline. Several sources first get credit 1 with a drain in turn, so that only
    one of several full queues sends a message. If all are empty, each gets credit 1. A second message that comes meanwhile
    returns undelivered.
    """
    if len(consumer.addresses) > 1 or (deadline is not None and deadline <= time.monotonic()):
        message = _sweep(consumer)
        if message is not None:
            return message
    while deadline is None or deadline > time.monotonic():
        message = _await(consumer, list(consumer.links), deadline)
        if message is not None:
            return message
    return None


def _await(consumer: Consumer, links: list[SourceLink], deadline: float | None) -> ReceivedMessage | None:
    for link in links:
        if link.stopped:
            link.request_one(drain=False)
    consumer.session.flush()
    # A reconnect also ends the wait: the new links need credit.
    consumer.wait_for(lambda: bool(consumer.arrivals) or consumer.links != links, deadline)
    return _drain_and_take(consumer, links) if consumer.links == links else None


def _sweep(consumer: Consumer) -> ReceivedMessage | None:
    """Each sweep begins with the next source."""
    links = consumer.links
    if links:
        links.append(links.pop(0))
    for link in list(links):
        while link in links:
            link.request_one(drain=True)
            consumer.session.drain([link])
            if not consumer.arrivals:
                break
            if (message := consumer.take()) is not None:
                return message
    return None


def _drain_and_take(consumer: Consumer, links: list[SourceLink]) -> ReceivedMessage | None:
    for link in links:
        if not link.stopped:
            link.request_one(drain=True)
    consumer.session.drain(links)
    message = consumer.take()
    if message is not None:
        consumer.session.dispose([delivery for delivery, _ in consumer.arrivals.clear()], RELEASED)
    return message
