"""Queues and exchanges, for callers without the lock. A command that acts on a result decides again. Looking up one name, or one
number of a queue, is a single step of the interpreter and needs no lock."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING

from ..engine.columns.states import AVAILABLE
from ..engine.model.exchange import chain

if TYPE_CHECKING:
    from ..engine.model.state import BrokerState


class Nodes:
    """For any thread."""

    def __init__(self, state: BrokerState, lock: threading.Lock) -> None:
        self._state = state
        self._lock = lock

    def has_queue(self, name: str) -> bool:
        return name in self._state.queues

    def has_exchange(self, name: str) -> bool:
        return name in self._state.exchanges.by_name

    def existing(self, names: Collection[str]) -> tuple[set[str], set[str]]:
        """Return the names of queues and the names of exchanges."""
        queues, exchanges = self._state.queues, self._state.exchanges.by_name
        return {name for name in names if name in queues}, {name for name in names if name in exchanges}

    def staged(self, queue: str) -> int:
        """Count the messages of uncommitted writes and transactions, which use capacity."""
        known = self._state.queues.get(queue)
        return 0 if known is None else known.staged.messages

    def has_available(self, queue: str) -> bool:
        known = self._state.queues.get(queue)
        return known is not None and known.counts[AVAILABLE] > 0

    def groups_held(self, queue: str) -> dict[int, list[str]]:
        """Return the first message groups of each holder, by name."""
        with self._lock:
            known = self._state.queues.get(queue)
            return {} if known is None or known.groups is None else known.groups.by_holder()

    def minds_senders(self, exchange: str) -> bool:
        """Return True if a binding of the exchange, or of its alternates, depends on the sender."""
        with self._lock:
            return any(node.minds_senders for node in chain(self._state.exchanges.by_name, exchange))
