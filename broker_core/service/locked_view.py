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
from ..reading.slices import BlockSlice, data_loss, names_of, slice_of
from .nodes import QueueFacts


class LockedView:
    """The queues and exchanges of one broker. Every method is called within a turn; `nodes` reads without the lock."""

    def __init__(self, state: BrokerState, journal: Journal, recent: Recent) -> None:
        self._state, self._journal, self._recent = state, journal, recent

    def plan(self, exchange: str, keys: str | Coded) -> Plan:
        """Plan the reads that are necessary to route messages with these routing keys: see `routing`."""
        need_exchange(self._state, exchange)
        return plan(self._state.exchanges.by_name, self._state.queues, exchange, keys)

    def available(self, queue_name: str) -> int:
        """Count the AVAILABLE messages of the queue."""
        return need_queue(self._state, queue_name).counts[AVAILABLE]

    def is_limited(self, queue_name: str) -> bool:
        """Return True if messages in the queue may keep out new ones."""
        queue = self._state.queues.get(queue_name)
        return queue is not None and bool(queue.rules.max_messages or queue.rules.max_bytes or queue.rules.key)

    def is_freed_by_outcomes(self, queue_name: str) -> bool:
        """Return True if the end of a message may make a message available: the next of its group, or itself."""
        queue = self._state.queues.get(queue_name)
        return queue is not None and (queue.rules.groups != "none" or queue.rules.rejected == "return")

    def is_grouped(self, queue_name: str) -> bool:
        """Return True if the queue has message groups."""
        queue = self._state.queues.get(queue_name)
        return queue is not None and queue.groups is not None

    def unlocked(self, queue_name: str) -> int:
        """Count the messages of the queue that were returned because a lock expired."""
        queue = self._state.queues.get(queue_name)
        return 0 if queue is None else queue.totals.unlocked

    def held(self, queue_name: str, holder: int, rows: RowSet) -> RowSet:
        """Return the rows among these that this holder has."""
        queue = self._state.queues.get(queue_name)
        return RowSet() if queue is None else queue.held_by(holder, rows)

    def active_holder(self, queue_name: str) -> int | None:
        """Return the active holder of the queue, 0 without one; None if all holders receive, or if the queue is gone."""
        queue = self._state.queues.get(queue_name)
        return None if queue is None else queue.consumers.active

    def has_passed_all(self, queue_name: str, holder: int) -> bool:
        """Return True if this link has looked at every message in the queue."""
        queue = self._state.queues.get(queue_name)
        link = None if queue is None else queue.consumers.subscriptions.get(holder)
        if queue is None or link is None:
            return True
        return all(queue.position_of(link, level) >= queue.next_sequence for level in range(queue.rules.levels))

    def slices(self, queue_name: str, rows: RowSet) -> list[BlockSlice]:
        """Return a slice of each block with these messages, without outcomes.

        For rows that are AVAILABLE or ACQUIRED: they are in memory, and retention never removes them. Raises DataLoss for
        other rows that have left memory.
        """
        queue = need_queue(self._state, queue_name)
        slices = []
        for number, part in rows.items():
            block = queue.blocks.get(number)
            if block is None:
                raise data_loss(queue_name, number, "left memory")
            slices.append(slice_of(block, part, names_of(queue), self._recent, outcomes=False, hold=self._journal.hold()))
        return slices

    def queue_facts(self, queue_name: str) -> QueueFacts | None:
        """Describe a queue as a link sees it; None if there is no such queue."""
        queue = self._state.queues.get(queue_name)
        return None if queue is None else QueueFacts.of(queue)

    def has_holder(self, queue_name: str, holder: int) -> bool:
        """Return True if the queue exists and this link consumes from it."""
        queue = self._state.queues.get(queue_name)
        return queue is not None and holder in queue.consumers.subscriptions

    def bindings(self, queue_name: str) -> list[tuple[str, Binding]]:
        """List the bindings that lead to a queue, each with its exchange."""
        exchanges, bindings = self._state.exchanges, []
        for name in exchanges.leading_to(queue_name):
            exchange = exchanges.by_name[name]
            bindings += [(name, exchange.bindings[number]) for number in exchange.numbers_of(queue_name, None)]
        return bindings

    def exchange_type(self, exchange: str) -> str | None:
        """Return the type of an exchange; None if there is no such exchange."""
        node = self._state.exchanges.by_name.get(exchange)
        return None if node is None else node.kind

    def lifetime(self, node: str) -> str:
        """Return the lifetime of a queue or exchange; `permanent` also for an unknown name."""
        queue, exchange = self._state.queues.get(node), self._state.exchanges.by_name.get(node)
        if queue is not None:
            return queue.rules.lifetime
        return "permanent" if exchange is None else exchange.lifetime
