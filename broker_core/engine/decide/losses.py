"""Counts of refused and dropped messages. Each attempt of a sender counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ... import errors
from .. import commands as c
from .. import events as e
from ..columns.losses import DISK_FULL, FULL, OTHER, UNROUTABLE
from ..model.state import BrokerState
from .decision import Decision, decides

_REASONS: dict[type[Exception], str] = {
    errors.QueueFull: FULL,
    errors.DiskFull: DISK_FULL,
    errors.Unroutable: UNROUTABLE,
}


@decides(c.CountRefused)
def count_refused(state: BrokerState, command: c.CountRefused, now: c.Now) -> Decision[None]:
    reason = next((reason for kind, reason in _REASONS.items() if isinstance(command.error, kind)), OTHER)
    decision = Decision([], None, waits=False)
    decision.extend((e.SentToExchange(command.node, command.messages), e.MessagesLost(command.node, reason, command.messages)))
    error = command.error
    if isinstance(error, errors.QueueFull) and error.queue is not None and error.queue != command.node:  # behind an exchange
        decision.add(e.MessagesLost(error.queue, FULL, error.messages))
    return decision


def losses(node: str, counts: Mapping[str, int]) -> Iterator[e.Event]:
    return (e.MessagesLost(node, reason, messages) for reason, messages in counts.items() if messages)
