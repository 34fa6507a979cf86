"""Confirmations: which messages of a commit are in their queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...errors import PenstockError, QueueFull
from ...messages.encoding.arriving import ArrivedMessages
from ...service.nodes import Nodes
from ..conditions import Refusal
from .parties import Parts

Refused = list[tuple[int, Exception]]  # by the number of a delivery, why


class EnqueueResult(NamedTuple):
    """The refused deliveries, or why all are refused; for their senders once the log is durable up to `end`."""

    refused: Refused
    error: PenstockError | None
    end: int


class NoRoute(Refusal):
    """Refusal of a message for which there is no queue."""


def confirm(parts: Parts, refused: Refused, error: PenstockError | None) -> None:
    """Report the result to each sender. The numbers of `refused` count through all parts."""
    reasons = dict(refused)
    start = 0
    for sender, deliveries in parts:
        if error is not None:
            sender.refused(deliveries, error)
        elif not reasons:
            sender.confirmed(deliveries)
        else:
            sender.confirmed([d for i, d in enumerate(deliveries, start) if i not in reasons])
            for index, delivery in enumerate(deliveries, start):
                if index in reasons:
                    sender.refused([delivery], reasons[index])
        start += len(deliveries)


def kept_out(nodes: Nodes, queue: str, arrived: ArrivedMessages, rows: Sequence[int]) -> Refused:
    """Return the refused deliveries of a batch, including `rows`, for which the queue has no capacity."""
    error = QueueFull(
        f"the queue {queue!r} is full{also_staged(nodes, queue)}: its limits keep this message out;"
        " drain it, or raise them (`penstock queue alter`)"
    )
    numbers = arrived.numbers
    return [*arrived.refused, *((numbers[row], error) for row in rows)]


def also_staged(nodes: Nodes, queue: str) -> str:
    staged = nodes.staged(queue)
    if not staged:
        return ""
    return f" ({staged} of its messages are staged, by writes and transactions that are not committed)"
