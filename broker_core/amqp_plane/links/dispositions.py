"""AMQP's delivery states (3.4) as the engine's dispositions, and tags as messages.

A delivery's tag begins with its message's sequence number, eight octets big-endian, so no table is needed. A dialect's tags are
longer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...amqp import Accepted, Modified, Rejected, Released
from ...amqp.deliveries import Delivery
from ...amqp.encoder import encode
from ...amqp.performatives import DeliveryState
from ...engine.columns.rowset import RowSet
from ...engine.columns.states import Cause, Outcome
from ...engine.model.batch_outcomes import shortened
from ...engine.model.dispositions import DeliveryEnd, Retry
from ...messages import delivery_times
from ...messages.annotations import DELIVERY_DELAY, DELIVERY_TIME, RETRY_DELAY

ACCEPTED = DeliveryEnd(outcome=Outcome.ACCEPTED)
RETURNED = DeliveryEnd(cause=Cause.RELEASED)
NUMBER = 8  # octets of a sequence number in a tag
NOT_HERE = DeliveryEnd(cause=Cause.RELEASED, exclude=True)


def disposition_of(state: DeliveryState | None, default: DeliveryEnd | None, now: int) -> DeliveryEnd | None:
    """Map a delivery state, or return the default of a state without an outcome (3.5.3).

    `now`: milliseconds since 1970. Raises InvalidRequest for an invalid delivery time.
    """
    if isinstance(state, Accepted):
        return ACCEPTED
    if isinstance(state, Rejected):
        why = state.error
        error = None if why is None else shortened(f"{why.condition}: {why.description or ''}")
        return DeliveryEnd(outcome=Outcome.REJECTED, error=error)
    if isinstance(state, Released):
        return RETURNED
    if isinstance(state, Modified):
        notes = dict(state.message_annotations or {})
        delivery_times.check(notes, now)
        retry = _retry(notes.pop(DELIVERY_TIME, None), notes.pop(DELIVERY_DELAY, None), notes.pop(RETRY_DELAY, None))
        return DeliveryEnd(
            cause=Cause.MODIFIED if state.delivery_failed else Cause.MODIFIED_UNCOUNTED,
            exclude=bool(state.undeliverable_here),
            annotations=encode(notes) if notes else None,
            retry=retry,
        )
    return default


def _retry(time: Any, delay: Any, otherwise: Any) -> Retry | None:
    """Return when the receiver wants the message again, by annotations that RabbitMQ's clients use.

    `otherwise`: a delay for queues without a delay of their own.
    """
    if time is not None:
        return Retry(time=int(time))
    if delay is not None:
        return Retry(after=max(0, int(delay)))
    return None if otherwise is None else Retry(after=max(0, int(otherwise)), gives_way=True)


def left_behind(default: DeliveryEnd | None) -> DeliveryEnd:
    """Return the outcome of messages that a link holds at its end."""
    if default is None:
        return DeliveryEnd(cause=Cause.LINK_LOST)
    cause = Cause.MODIFIED_BY_DEFAULT if default.cause is Cause.MODIFIED else default.cause
    return default._replace(cause=cause, exclude=False)


def rows_of(deliveries: list[Delivery]) -> RowSet:
    return rows_of_tags([delivery.tag for delivery in deliveries])


def rows_of_tags(tags: list[bytes]) -> RowSet:
    """Return the rows of messages in any order."""
    if tags and len(tags[0]) > NUMBER:
        tags = [tag[:NUMBER] for tag in tags]
    if len(tags) == 1:
        return RowSet.single(int.from_bytes(tags[0], "big"))
    numbers = np.frombuffer(b"".join(tags), ">i8").astype(np.int64)
    numbers.sort()
    return RowSet.of_sequences(numbers)


def rows_of_numbers(numbers: list[int]) -> RowSet:
    return RowSet.of_sequences(np.unique(np.array(numbers, np.int64)))


def tags_of(rows: RowSet) -> list[bytes]:
    return [number.to_bytes(8, "big") for number in rows.sequences().tolist()]
