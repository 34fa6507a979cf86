"""The end of a delivery: by an outcome, or by a return, which may be a failed attempt, so that the next one has to wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...quantities import MAX_MILLISECONDS
from ..columns.rowset import RowSet, as_array
from ..columns.series import Ints, Rows
from ..columns.states import COUNTS_BY_RULE, LIMITED_BY_RULE, RETURN_COUNTS_ATTEMPT, UNLIMITED, Cause, Outcome

if TYPE_CHECKING:
    from ..columns.blocks import Block
    from .options import Rules
    from .queue import Queue


class Retry(NamedTuple):
    """Time of the next delivery, as the consumer asks for it: `time`, or `after` the return."""

    after: int = 0  # milliseconds
    time: int | None = None  # milliseconds since 1970
    gives_way: bool = False  # to the queue's own delay, if it has one

    def at(self, now: int) -> int:
        """`now`: of the return, in milliseconds since 1970."""
        return now + self.after if self.time is None else self.time


class DeliveryEnd(NamedTuple):
    """`outcome` or `cause` is set. `error` belongs to REJECTED, `exclude` and `retry` to a cause."""

    outcome: Outcome | None = None
    cause: Cause | None = None
    error: str | None = None
    exclude: bool = False  # undeliverable here
    annotations: bytes | None = None
    retry: Retry | None = None


ROLLED_BACK = DeliveryEnd(cause=Cause.ROLLBACK)

_GROWS = MAX_MILLISECONDS.bit_length()  # doublings that exceed any allowed delay


def counts_attempt(queue: Queue, cause: Cause) -> bool:
    """Return True if the cause raises the delivery count."""
    rule = COUNTS_BY_RULE.get(cause)
    return RETURN_COUNTS_ATTEMPT[cause] if rule is None else bool(getattr(queue.rules, rule))


def is_failure(queue: Queue, cause: Cause) -> bool:
    """Return True if the message waits for its retry."""
    rule = LIMITED_BY_RULE.get(cause)
    return counts_attempt(queue, cause) and (rule is None or bool(getattr(queue.rules, rule)))


def counts_towards_limit(queue: Queue, cause: Cause) -> bool:
    return is_failure(queue, cause) and cause not in UNLIMITED


def deferred_among(queue: Queue, rows: RowSet, cause: int) -> RowSet:
    """ACQUIRED rows that a return for this cause makes DEFERRED."""
    if cause == Cause.DEFERRED:
        return rows
    if all(queue.blocks[number].deferred.values is None for number in rows.blocks):
        return RowSet()
    return RowSet.of((number, queue.blocks[number].deferred_among(part)) for number, part in rows.items())


def failures(queue: Queue, block: Block, rows: Rows) -> Ints | int:
    return _less(block.attempts.get(rows), 0 if queue.rules.default_outcome_counts else block.defaulted.get(rows))


def attempts_towards_limit(queue: Queue, block: Block, rows: Rows) -> Ints | int:
    return _less(failures(queue, block, rows), block.leased.get(rows))


def _less(counts: Ints | int, some: Ints | int) -> Ints | int:
    return counts if isinstance(counts, int) or isinstance(some, int) else counts.astype(np.int64) - some


def retry_times(queue: Queue, rows: RowSet, now: int) -> Iterator[tuple[int, RowSet]]:
    """Yield the times (milliseconds since 1970) at which ACQUIRED messages may be tried again. Others need not wait."""
    parts: dict[int, list[tuple[int, Rows]]] = {}
    for number, part in rows.items():
        before = failures(queue, queue.blocks[number], part)
        if isinstance(before, int):
            parts.setdefault(_delay(queue.rules, before), []).append((number, part))
            continue
        counts, which = np.unique(before, return_inverse=True)
        delays = np.array([_delay(queue.rules, count) for count in counts.tolist()])[which]
        for delay in np.unique(delays).tolist():
            parts.setdefault(delay, []).append((number, as_array(part)[delays == delay]))
    for delay, some in parts.items():
        if delay:
            yield now + delay, RowSet.of(some)


def _delay(rules: Rules, before: int) -> int:
    """`before`: number of earlier failures."""
    grown: int = rules.retry_delay * rules.retry_backoff ** min(before, _GROWS)
    return min(grown, longest_delay(rules))


def longest_delay(rules: Rules) -> int:
    return rules.max_retry_delay or MAX_MILLISECONDS
