"""Reads of the engine's state by a caller that holds the broker's lock: `turn.view`."""

from __future__ import annotations

from ..engine import BrokerState
from ..engine.columns.attributes import Coded
from ..engine.columns.rowset import RowSet
from ..engine.columns.states import AVAILABLE
from ..engine.decide.decision import need_queue
from ..engine.decide.exchanges import need_exchange
from ..engine.model.bindings import Binding
from ..engine.model.routes import Plan, plan
from ..journal import Journal
from ..reading.recent import Recent
from ..reading.slices import BlockSlice, names_of, slice_of
from ..reading.unreadable import data_loss
from .nodes import QueueFacts


class LockedView:
    """The queues and exchanges of one broker. Every method is called within a turn; `nodes` reads without the lock."""

    def __init__(self, state: BrokerState, journal: Journal, recent: Recent) -> None:
        self._state, self._journal, self._recent = state, journal, recent

    def plan(self, exchange: str, keys: str | Coded) -> Plan:
        """Plan what has to be read of messages with these routing keys before they can be routed: see `routing`."""
        need_exchange(self._state, exchange)
        return plan(self._state.exchanges.by_name, self._state.queues, exchange, keys)

    def available(self, queue_name: str) -> int:
        """Count the AVAILABLE messages of the queue."""
        return need_queue(self._state, queue_name).counts[AVAILABLE]

    def is_limited(self, queue_name: str) -> bool:
        """Say whether what is in the queue may keep out what comes."""
        queue = self._state.queues.get(queue_name)
        return queue is not None and bool(queue.rules.max_messages or queue.rules.max_bytes or queue.rules.key)

    def is_freed_by_outcomes(self, queue_name: str) -> bool:
        """Say whether the end of a message may make one available: the next of its group, or itself."""
        queue = self._state.queues.get(queue_name)
        return queue is not None and (queue.rules.groups != "none" or queue.rules.rejected == "return")

    def is_grouped(self, queue_name: str) -> bool:
        """Say whether the queue has message groups."""
        queue = self._state.queues.get(queue_name)
        return queue is not None and queue.grouping is not None

    def unlocked(self, queue_name: str) -> int:
        """Count the messages of the queue that went back because a lock ended."""
        queue = self._state.queues.get(queue_name)
        return 0 if queue is None else queue.totals.unlocked

    def held(self, queue_name: str, holder: int, rows: RowSet) -> RowSet:
        """Return those of the rows that this holder has."""
        queue = self._state.queues.get(queue_name)
        return RowSet() if queue is None else queue.held_by(holder, rows)

    def active_holder(self, queue_name: str) -> int | None:
        """The holder that the queue gives messages to now, 0 where that is nobody; None where it gives to all, or is gone."""
        queue = self._state.queues.get(queue_name)
        return None if queue is None else queue.consumers.active

    def has_passed_all(self, queue_name: str, holder: int) -> bool:
        """Say whether there is nothing in the queue that this link has not looked at."""
        queue = self._state.queues.get(queue_name)
        link = None if queue is None else queue.consumers.subscriptions.get(holder)
        if queue is None or link is None:
            return True
        return all(queue.position_of(link, level) >= queue.next_sequence for level in range(queue.rules.levels))

    def slices(self, queue_name: str, rows: RowSet) -> list[BlockSlice]:
        """Return a slice of each block with these messages, as they are now, without outcomes.

        For rows that are AVAILABLE or ACQUIRED: those are in memory, and retention never removes them. Raises DataLoss for
        others that have left memory.
        """
        queue = need_queue(self._state, queue_name)
        found = []
        for number, part in rows.items():
            block = queue.blocks.get(number)
            if block is None:
                raise data_loss(queue_name, number, "left memory")
            found.append(slice_of(block, part, names_of(queue), self._recent, outcomes=False, hold=self._journal.hold()))
        return found

    def queue_facts(self, queue_name: str) -> QueueFacts | None:
        """Describe a queue as a link sees it; None where there is none."""
        queue = self._state.queues.get(queue_name)
        return None if queue is None else QueueFacts.of(queue)

    def has_holder(self, queue_name: str, holder: int) -> bool:
        """Say whether the queue is there, and has this link among its consumers."""
        queue = self._state.queues.get(queue_name)
        return queue is not None and holder in queue.consumers.subscriptions

    def bindings(self, queue_name: str) -> list[tuple[str, Binding]]:
        """List the bindings that lead to a queue, each with its exchange."""
        exchanges, found = self._state.exchanges, []
        for name in exchanges.leading_to(queue_name):
            exchange = exchanges.by_name[name]
            found += [(name, exchange.bindings[number]) for number in exchange.numbers_of(queue_name, None)]
        return found

    def exchange_type(self, exchange: str) -> str | None:
        """Return the kind of an exchange; None where there is none."""
        found = self._state.exchanges.by_name.get(exchange)
        return None if found is None else found.kind

    def lifetime(self, node: str) -> str:
        """Return how long a queue or exchange lives; `permanent` too where there is none."""
        queue, exchange = self._state.queues.get(node), self._state.exchanges.by_name.get(node)
        if queue is not None:
            return queue.rules.lifetime
        return "permanent" if exchange is None else exchange.lifetime
