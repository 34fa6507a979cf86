"""Prefetch 0: explicit pull. One message is asked for when the application asks, and never does more than one stay here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.broker_core.messaging.received import RELEASED, ReceivedMessage

if TYPE_CHECKING:
    from penstock.broker_core.messaging.consumer import Consumer
    from penstock.broker_core.messaging.source_link import SourceLink


def pull(consumer: Consumer, deadline: float | None) -> ReceivedMessage | None:
    """The next message of any source, or None at `deadline`. Under the lock.

    With one source: credit 1, and a drain when the time is over. With several they are first asked in turn, one message each with
    a drain, so that of full queues only one gives something away; if all are empty each gets credit 1, and what a second one
    sends meanwhile goes back, undelivered.
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
            link.ask(drain=False)
    consumer.session.flush()
    # Also when the connection was made anew: those links are to be asked.
    consumer.wait_for(lambda: bool(consumer.arrivals) or consumer.links != links, deadline)
    return _settled_down(consumer, links) if consumer.links == links else None


def _sweep(consumer: Consumer) -> ReceivedMessage | None:
    """What is there now: the sources in turn, beginning with another one each time."""
    links = consumer.links
    if links:
        links.append(links.pop(0))
    for link in list(links):
        while link in links:
            link.ask(drain=True)
            consumer.session.drain([link])
            if not consumer.arrivals:
                break
            if (message := consumer.take()) is not None:
                return message
    return None


def _settled_down(consumer: Consumer, links: list[SourceLink]) -> ReceivedMessage | None:
    """Take all credit back, then the first that has come; a second one was not asked for, and goes back."""
    for link in links:
        if not link.stopped:
            link.ask(drain=True)
    consumer.session.drain(links)
    message = consumer.take()
    if message is not None:
        consumer.session.dispose([delivery for delivery, _ in consumer.arrivals.clear()], RELEASED)
    return message
