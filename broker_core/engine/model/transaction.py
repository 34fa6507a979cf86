"""Open transactions (part 4 of AMQP 1.0). They end with the broker.

Posted messages are in a stage: journaled, unseen, without sequence numbers. Outcomes are provisional until the commit: the
messages stay ACQUIRED by their link, also after a rollback. The last outcome of a message counts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import TransactionRolledBack
from ..columns.counters import add_to
from ..columns.limits import NEVER
from ..columns.rowset import RowSet
from ..columns.series import Ints

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...errors import PenstockError
    from .dispositions import DeliveryEnd

STAGE = "\0transaction "  # no name contains \0
COMPACT = 4096  # rows from which on replaced outcomes are removed


def stage_of(number: int) -> str:
    return f"{STAGE}{number}"


def is_transactional(stage: str) -> bool:
    return stage.startswith(STAGE)


class ProvisionalOutcome(NamedTuple):
    """`disposition` applies after a commit, `default` to settled messages after a rollback."""

    disposition: DeliveryEnd
    default: DeliveryEnd
    settled: bool


class ProvisionalOutcomes:
    """Outcomes of one transaction for messages of one holder."""

    __slots__ = ("_compacted", "_distinct", "_first", "_last", "_latest", "_numbers", "_rows", "count", "queue", "taker")

    def __init__(self, queue: str, taker: str | None) -> None:
        self.queue = queue
        self.taker = taker
        self.count = 0  # rows, replaced ones included
        self._rows: list[Ints] = []
        self._numbers: list[int] = []  # parallel: the number of the outcome; -1: removed
        self._distinct: dict[ProvisionalOutcome, int] = {}
        self._compacted = 0
        self._first, self._last = NEVER, -1
        self._latest: tuple[Ints, Ints] | None = None

    def set(self, rows: RowSet, outcome: ProvisionalOutcome | None) -> None:
        """`outcome`: None removes it."""
        self._first, self._last = min(self._first, rows.first), max(self._last, rows.last)
        self._latest = None
        self._rows.append(rows.sequences())
        self._numbers.append(-1 if outcome is None else self._distinct.setdefault(outcome, len(self._distinct)))
        self.count += rows.count
        if self.count > 2 * self._compacted + COMPACT:
            self._compact()

    def __iter__(self) -> Iterator[tuple[ProvisionalOutcome, RowSet]]:
        sequences, numbers = self.latest()
        for outcome, number in self._distinct.items():
            rows = sequences[numbers == number]
            if len(rows):
                yield outcome, RowSet.of_sequences(rows)

    @property
    def rows(self) -> RowSet:
        return RowSet.of_sequences(self.latest()[0])

    def may_have(self, first: int, last: int) -> bool:
        """A fast check, because a link may have many transactions."""
        return self._first <= last and first <= self._last

    def has_any(self, sequences: Ints) -> bool:
        """`sequences` ascend."""
        mine = self.latest()[0]
        at = np.minimum(np.searchsorted(mine, sequences), len(mine) - 1)
        return len(mine) > 0 and bool((mine[at] == sequences).any())

    def latest(self) -> tuple[Ints, Ints]:
        """Return the sequence numbers, ascending, and the numbers of their last outcomes."""
        if self._latest is None:
            sequences = np.concatenate([np.zeros(0, np.int64), *self._rows])[::-1]
            numbers = np.repeat(np.array(self._numbers, np.int64), [len(rows) for rows in self._rows])[::-1]
            sequences, last = np.unique(sequences, return_index=True)
            is_set = numbers[last] >= 0
            self._latest = sequences[is_set], numbers[last][is_set]
        return self._latest

    def _compact(self) -> None:
        sequences, latest = self.latest()
        order = np.argsort(latest, kind="stable")
        numbers, starts = np.unique(latest[order], return_index=True)
        self._rows, self._numbers = np.split(sequences[order], starts[1:]) if len(numbers) else [], numbers.tolist()
        self.count = self._compacted = len(sequences)


@dataclass
class Transaction:
    """An open transaction."""

    number: int
    owner: int
    user: str | None
    began: int | None = None  # uptime of its first work, in microseconds
    bytes: int = 0
    posted: int = 0
    failed: PenstockError | None = None  # the reason, if it can only be rolled back
    outcomes: dict[int, ProvisionalOutcomes] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        """Posted and retired messages."""
        return self.posted + sum(outcomes.count for outcomes in self.outcomes.values())

    def works(self, up: int) -> None:
        """The age counts from the first work, because clients declare transactions long before."""
        if self.began is None:
            self.began = up


class Transactions:
    """All open transactions."""

    def __init__(self) -> None:
        self.open: dict[int, Transaction] = {}
        self.next = 1
        self.by_owner: Counter[int] = Counter()  # connections
        self.by_user: Counter[str | None] = Counter()
        self._holders: dict[int, set[int]] = {}  # by holder: transactions with outcomes for its messages

    def begin(self, number: int, owner: int, user: str | None) -> None:
        self.open[number] = Transaction(number, owner, user)
        self.next = number + 1
        self.by_owner[owner] += 1
        self.by_user[user] += 1

    def retire(self, number: int, queue: str, holder: int, taker: str | None, rows: RowSet, outcome: ProvisionalOutcome) -> None:
        self.open[number].outcomes.setdefault(holder, ProvisionalOutcomes(queue, taker)).set(rows, outcome)
        self._holders.setdefault(holder, set()).add(number)

    def take_back(self, holder: int, rows: RowSet, *, lost: bool) -> None:
        """`lost`: the holder did not return the messages itself, so their transactions fail."""
        for number, outcomes in self.having(holder, rows):
            transaction = self.open[number]
            if lost and transaction.failed is None:
                transaction.failed = TransactionRolledBack(
                    f"a message of {outcomes.queue!r} that it settles was taken from its link"
                )
            outcomes.set(rows, None)

    def outcomes_of(self, holder: int) -> list[tuple[int, ProvisionalOutcomes]]:
        return [(number, self.open[number].outcomes[holder]) for number in self._holders.get(holder, ())]

    def having(self, holder: int, rows: RowSet, beside: int | None = None) -> list[tuple[int, ProvisionalOutcomes]]:
        """As `outcomes_of`, of transactions with some of these rows, without the transaction `beside`."""
        if holder not in self._holders or not rows:
            return []
        first, last = rows.first, rows.last
        near = [entry for entry in self.outcomes_of(holder) if entry[0] != beside and entry[1].may_have(first, last)]
        if not near:
            return []
        sequences = rows.sequences()
        return [entry for entry in near if entry[1].has_any(sequences)]

    def taker_of(self, holder: int) -> str | None:
        return next((outcomes.taker for _, outcomes in self.outcomes_of(holder)), None)

    def retired(self, holder: int) -> RowSet:
        sequences = [outcomes.latest()[0] for _, outcomes in self.outcomes_of(holder)]
        return RowSet.of_sequences(np.unique(np.concatenate(sequences))) if sequences else RowSet()

    def forget_work(self, number: int) -> None:
        transaction = self.open[number]
        for holder in transaction.outcomes:
            numbers = self._holders[holder]
            numbers.discard(number)
            if not numbers:
                del self._holders[holder]
        transaction.outcomes, transaction.bytes, transaction.posted, transaction.began = {}, 0, 0, None

    def end(self, number: int) -> None:
        self.forget_work(number)
        ended = self.open.pop(number)
        add_to(self.by_owner, ended.owner, -1)
        add_to(self.by_user, ended.user, -1)
