"""Open transactions (part 4 of AMQP 1.0): what they hold until they are discharged. Nothing of one outlives the broker.

Messages that were posted in it are a stage, as the sink's tasks make them: journaled, unseen, without sequence numbers. What was
said of messages that links hold is a list of words by holder, the last word about a message being the one that counts; their
rows stay ACQUIRED by their link until the commit, and after a rollback.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import TransactionRolledBack
from ..columns.rowset import RowSet
from ..columns.series import Ints

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...errors import PenstockError
    from .dispositions import Ending

STAGE = "\0transaction "  # no stage of the sink can have such a name: it has a character that names must not have
COMPACT = 4096  # words' rows in a list before those are looked for that later ones have replaced


def stage_of(number: int) -> str:
    """Name the stage of a transaction."""
    return f"{STAGE}{number}"


def is_transactional(stage: str) -> bool:
    """Say whether a stage is a transaction's."""
    return stage.startswith(STAGE)


class Word(NamedTuple):
    """Outcome that a link gives messages in a transaction: `ending` if it commits; else `default` for those it has settled."""

    ending: Ending
    default: Ending
    settled: bool


class Words:
    """Outcomes of one transaction for the messages of one holder."""

    __slots__ = ("_compacted", "_rows", "_said", "_words", "count", "queue")

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.count = 0  # rows in the list, those that were replaced included
        self._rows: list[Ints] = []
        self._said: list[int] = []  # for each of them, which word; -1: taken back
        self._words: dict[Word, int] = {}
        self._compacted = 0

    def say(self, rows: RowSet, word: Word | None) -> None:
        """`None` takes back what was said of these rows, if anything was."""
        self._rows.append(rows.sequences())
        self._said.append(-1 if word is None else self._words.setdefault(word, len(self._words)))
        self.count += rows.count
        if self.count > 2 * self._compacted + COMPACT:
            self._compact()

    def __iter__(self) -> Iterator[tuple[Word, RowSet]]:
        """(word, rows) for each word that is still the last about some messages."""
        sequences, said = self._last_words()
        for word, number in self._words.items():
            rows = sequences[said == number]
            if len(rows):
                yield word, RowSet.of_sequences(rows)

    @property
    def rows(self) -> RowSet:
        """Rows of these messages."""
        return RowSet.of_sequences(self._last_words()[0])

    def _last_words(self) -> tuple[Ints, Ints]:
        """Sequence numbers, ascending, and for each which word holds."""
        if not self._rows:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        sequences = np.concatenate(self._rows)[::-1]
        said = np.repeat(self._said, [len(rows) for rows in self._rows])[::-1]
        sequences, last = np.unique(sequences, return_index=True)
        said = said[last]
        kept = said >= 0
        return sequences[kept], said[kept]

    def _compact(self) -> None:
        sequences, said = self._last_words()
        order = np.argsort(said, kind="stable")
        numbers, starts = np.unique(said[order], return_index=True)
        self._rows, self._said = np.split(sequences[order], starts[1:]) if len(numbers) else [], numbers.tolist()
        self.count = self._compacted = len(sequences)


@dataclass
class Transaction:
    """Open transaction: what it has staged, and the outcomes it holds back."""

    number: int
    owner: int  # whose it is: a connection
    began: int | None = None  # broker uptime in microseconds of the first work in it
    bytes: int = 0  # staged
    posted: int = 0  # messages
    failed: PenstockError | None = None  # it can only be rolled back any more, and why
    words: dict[int, Words] = field(default_factory=dict)  # by holder

    @property
    def messages(self) -> int:
        """Posted and retired."""
        return self.posted + sum(words.count for words in self.words.values())

    def works(self, up: int) -> None:
        """Its age counts from the first work: clients declare the next transaction long before they use it."""
        if self.began is None:
            self.began = up


class Transactions:
    """All that are open."""

    def __init__(self) -> None:
        self.open: dict[int, Transaction] = {}
        self.next = 1
        self._owners: dict[int, int] = {}  # how many each has
        self._holders: dict[int, set[int]] = {}  # by holder, the transactions that say something of its messages

    def of_owner(self, owner: int) -> int:
        """Count the open transactions of a connection."""
        return self._owners.get(owner, 0)

    def begin(self, number: int, owner: int) -> None:
        """Open a transaction."""
        self.open[number] = Transaction(number, owner)
        self.next = number + 1
        self._owners[owner] = self.of_owner(owner) + 1

    def retire(self, number: int, queue: str, holder: int, rows: RowSet, word: Word) -> None:
        """Note an outcome for messages, to be done at the commit."""
        words = self.open[number].words.setdefault(holder, Words(queue))
        words.say(rows, word)
        self._holders.setdefault(holder, set()).add(number)

    def take_back(self, holder: int, rows: RowSet, *, lost: bool) -> None:
        """These are no longer held: what transactions said of them is void. Where the holder did not want that, they fail."""
        for number, words in self.said_of(holder):
            transaction = self.open[number]
            if lost and transaction.failed is None and rows.minus(words.rows).count < rows.count:
                transaction.failed = TransactionRolledBack(
                    f"a message of {words.queue!r} that it settles was taken from its link"
                )
            words.say(rows, None)

    def said_of(self, holder: int) -> list[tuple[int, Words]]:
        """By transaction, what it says of this holder's messages."""
        return [(number, self.open[number].words[holder]) for number in self._holders.get(holder, ())]

    def retired(self, holder: int) -> RowSet:
        """The messages of this holder of which some transaction says something."""
        found = RowSet()
        for _, words in self.said_of(holder):
            found = found.plus(words.rows)
        return found

    def forget_work(self, number: int) -> None:
        """Nothing of it will be done."""
        transaction = self.open[number]
        for holder in transaction.words:
            numbers = self._holders[holder]
            numbers.discard(number)
            if not numbers:
                del self._holders[holder]
        transaction.words, transaction.bytes, transaction.posted, transaction.began = {}, 0, 0, None

    def end(self, number: int) -> None:
        """Forget a transaction."""
        self.forget_work(number)
        owner = self.open.pop(number).owner
        self._owners[owner] -= 1
        if not self._owners[owner]:
            del self._owners[owner]
