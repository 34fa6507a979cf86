"""Dispositions of deliveries: a message is settled with an outcome, or comes back for a cause. Which of them are failed attempts,
and when the message is tried again.
"""

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
    """Time of a message's next delivery, as its consumer asks for it: a time, or else so long after its return."""

    after: int = 0  # milliseconds
    time: int | None = None  # milliseconds since 1970
    gives_way: bool = False  # a queue with a delay of its own has its way

    def at(self, now: int) -> int:
        """Return the time, in milliseconds since 1970 as `now`, which is that of the return."""
        return now + self.after if self.time is None else self.time


class Disposition(NamedTuple):
    """The end of a delivery: either `outcome` or `cause` is set. `error` belongs to REJECTED, the other fields to a `cause`."""

    outcome: Outcome | None = None
    cause: Cause | None = None
    error: str | None = None
    exclude: bool = False  # undeliverable here: not offered to this link again
    annotations: bytes | None = None
    retry: Retry | None = None  # None: as the queue's options say


ROLLED_BACK = Disposition(cause=Cause.ROLLBACK)

_GROWS = MAX_MILLISECONDS.bit_length()  # so often a delay doubles, at most, until it is longer than any


def counts_attempt(queue: Queue, cause: Cause) -> bool:
    """Say whether a delivery that ends for this cause raises the delivery count: the table, and the queue's own rules."""
    rule = COUNTS_BY_RULE.get(cause)
    return RETURN_COUNTS_ATTEMPT[cause] if rule is None else bool(getattr(queue.rules, rule))


def is_failure(queue: Queue, cause: Cause) -> bool:
    """Say whether such a delivery is a failed attempt, after which a message waits for its retry."""
    rule = LIMITED_BY_RULE.get(cause)
    return counts_attempt(queue, cause) and (rule is None or bool(getattr(queue.rules, rule)))


def counts_towards_limit(queue: Queue, cause: Cause) -> bool:
    """Say whether such a delivery counts towards the queue's limit of attempts."""
    return is_failure(queue, cause) and cause not in UNLIMITED


def failures(queue: Queue, block: Block, rows: Rows) -> Ints | int:
    """Return by row the number of failed attempts."""
    return _less(block.attempts.get(rows), 0 if queue.rules.default_outcome_counts else block.defaulted.get(rows))


def attempts_towards_limit(queue: Queue, block: Block, rows: Rows) -> Ints | int:
    """Return by row the number of failed attempts that count towards the queue's limit."""
    return _less(failures(queue, block, rows), block.leased.get(rows))


def _less(counts: Ints | int, some: Ints | int) -> Ints | int:
    return counts if isinstance(counts, int) or isinstance(some, int) else counts.astype(np.int64) - some


def retry_times(queue: Queue, rows: RowSet, now: int) -> Iterator[tuple[int, RowSet]]:
    """Yield when ACQUIRED messages may be tried again that come back after a failed attempt, in milliseconds since 1970 as `now`:
    each time once, with its messages. Those that may at once are left out."""
    parts: dict[int, list[tuple[int, Rows]]] = {}
    for number, part in rows.items():
        before = failures(queue, queue.blocks[number], part)
        if isinstance(before, int):
            parts.setdefault(_delay(queue.rules, before), []).append((number, part))
            continue
        found, which = np.unique(before, return_inverse=True)
        delays = np.array([_delay(queue.rules, count) for count in found.tolist()])[which]
        for delay in np.unique(delays).tolist():
            parts.setdefault(delay, []).append((number, as_array(part)[delays == delay]))
    for delay, some in parts.items():
        if delay:
            yield now + delay, RowSet.of(some)


def _delay(rules: Rules, before: int) -> int:
    """Return the milliseconds that a message waits which has failed so often before it failed now."""
    grown: int = rules.retry_delay * rules.retry_backoff ** min(before, _GROWS)
    return min(grown, longest_delay(rules))


def longest_delay(rules: Rules) -> int:
    """Return the most milliseconds that a message waits for its retry."""
    return rules.max_retry_delay or MAX_MILLISECONDS
