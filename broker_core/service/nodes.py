"""Looks at queues and exchanges for those who do not hold the broker's lock.

Each answer was true at one moment of the call, and may be old when it is read: whoever acts by it sends a command, which decides.
A look-up of one name, or of one number of a queue, is a single step of the interpreter, so it cannot be torn and takes no lock;
what takes several steps does.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from ..engine.columns.states import ACQUIRED, AVAILABLE
from ..engine.model.exchange import chain

if TYPE_CHECKING:
    from ..engine.model.queue import Queue
    from ..engine.model.state import BrokerState


class QueueFacts(NamedTuple):
    """A queue at one moment: its own object is for who has the broker's lock."""

    consumers: str  # its option of that name
    in_use: bool  # links consume from it
    acquired: int  # messages that somebody holds
    live: int  # messages that are not settled

    @classmethod
    def of(cls, queue: Queue) -> QueueFacts:
        """Read them. Called under the broker's lock."""
        return cls(queue.rules.consumers, bool(queue.consumers.subscriptions), queue.counts[ACQUIRED], queue.live)


class Nodes:
    """The queues and exchanges of one broker. Callable from any thread; those that take the lock not while it is held."""

    def __init__(self, state: BrokerState, lock: threading.Lock) -> None:
        self._state = state
        self._lock = lock

    def has_queue(self, name: str) -> bool:
        """Say whether there is such a queue."""
        return name in self._state.queues

    def has_exchange(self, name: str) -> bool:
        """Say whether there is such an exchange."""
        return name in self._state.exchanges.by_name

    def there(self, names: Collection[str]) -> tuple[set[str], set[str]]:
        """Return those of the names that are queues, and those that are exchanges."""
        queues, exchanges = self._state.queues, self._state.exchanges.by_name
        return {name for name in names if name in queues}, {name for name in names if name in exchanges}

    def staged(self, queue: str) -> int:
        """Count the messages that take part of a queue's capacity and are not in it: of writes and transactions that are not
        committed. 0 where the queue is gone."""
        found = self._state.queues.get(queue)
        return 0 if found is None else found.staged.messages

    def has_available(self, queue: str) -> bool:
        """Say whether messages of the queue are AVAILABLE. False where it is gone."""
        found = self._state.queues.get(queue)
        return found is not None and found.counts[AVAILABLE] > 0

    def groups_held(self, queue: str) -> dict[int, list[str]]:
        """Return the message groups of a queue by the number of who holds them: the first of each, by name."""
        with self._lock:
            found = self._state.queues.get(queue)
            return {} if found is None or found.grouping is None else found.grouping.by_holder()

    def minds_senders(self, exchange: str) -> bool:
        """Say whether a binding of the exchange, or of the alternates behind it, asks whose messages they are."""
        with self._lock:
            return any(each.minds_senders for each in chain(self._state.exchanges.by_name, exchange))
