"""Decisions about messages that go through an exchange: one event for all queues.

Each queue decides as if its messages had been sent to it alone. A queue that would block takes or refuses all of its messages,
because a sender cannot wait for one of many queues. A message is refused if every queue that it reaches refuses it. A *whole*
block is refused if one queue refuses a message.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...errors import PenstockError, Unroutable
from .. import commands as c
from .. import events as e
from ..columns.attributes import Attributes, Coded
from ..columns.losses import FULL, UNBOUND, UNROUTABLE
from ..columns.rowset import as_array, row_count
from ..columns.series import Ints, Rows
from ..model.admission import full
from ..model.queue import Queue
from ..model.routes import NO_ROWS, RoutedPart, Sending, Stale, asks, route
from ..model.state import BrokerState
from .dead_letters import as_one
from .decision import Decision, decides
from .exchanges import need_exchange
from .losses import losses
from .queues import enqueue
from .stages import stage_messages
from .transactions import post


@decides(c.Route)
def route_messages(state: BrokerState, command: c.Route, now: c.Now) -> Decision[c.Sent]:
    need_exchange(state, command.exchange)
    try:
        sent = Sending(command.count, command.keys, command.examined, command.container)
        routing = route(state.exchanges.by_name, state.queues, command.exchange, sent)
        sending = _Distribution(state, command, now)
        for part in routing.parts:
            sending.add(part)
    except Stale:
        return Decision([], c.Sent(stale=True))
    refused = sending.refused(routing.parts)
    reply = c.Sent(routing.refused, refused, sending.error, routing.dropped)
    if command.whole:
        _check_whole(command, reply)
    decision = sending.decision(reply)
    decision.add(e.SentToExchange(command.exchange, command.count))
    kept_out = {UNROUTABLE: row_count(reply.unroutable), FULL: row_count(refused), UNBOUND: reply.dropped}
    decision.extend(losses(command.exchange, kept_out))
    return decision


def _check_whole(command: c.Route, sent: c.Sent) -> None:
    if row_count(sent.unroutable):
        row = int(as_array(sent.unroutable)[0])
        raise Unroutable(
            f"exchange {command.exchange!r} leads a message with the routing key {_key_of(command.keys, row)!r:.300} to no queue "
            f"({row_count(sent.unroutable)} of {command.count}, the first in row {row}): nothing was stored. Bind a queue, or "
            "declare the exchange with an alternate, or with unroutable=drop"
        )


def _key_of(keys: str | Coded, row: int) -> str:
    if isinstance(keys, str):
        return keys
    code = int(keys.codes[row])
    return keys.names[code - 1] if code else ""


@dataclass
class _Distribution:
    """The distribution of a block."""

    state: BrokerState
    command: c.Route
    now: c.Now
    error: PenstockError | None = None
    _events: list[e.Event] = field(default_factory=list)
    _after: list[e.Event] = field(default_factory=list)  # events that are not journaled
    _refused: list[tuple[str, Rows]] = field(default_factory=list)  # by queue, rows of its part
    _waits: bool = False

    def add(self, part: RoutedPart) -> None:
        rows = None if isinstance(part.rows, slice) and part.rows == slice(0, self.command.count) else as_array(part.rows)
        count = row_count(part.rows)
        sizes = self.command.sizes if rows is None or isinstance(self.command.sizes, int) else self.command.sizes[rows]
        alike: dict[Any, list[str]] = {}
        for name in part.queues:
            queue = self.state.queues[name]
            about = asks(queue.rules)
            if about not in self.command.attributes:
                raise Stale(name)
            if self._at_once and queue.rules.unrestricted:  # nothing to decide, so one event is enough for many queues
                alike.setdefault(about, []).append(name)
                self._waits |= self.command.durable or queue.rules.durability == "all"
            else:
                attributes = self.command.attributes[about]
                self._add_to_one(queue, count, sizes, rows, attributes if rows is None else attributes.take(rows))
        for about, names in alike.items():
            attributes = self.command.attributes[about]
            taken = (attributes if rows is None or not attributes else attributes.take(rows)).journaled()
            self._events.append(e.Routed(names, count, sizes, self.now.wall, taken, rows))

    def _add_to_one(self, queue: Queue, count: int, sizes: int | Ints, rows: Ints | None, attributes: Attributes) -> None:
        try:
            decision = self._alone(queue, count, sizes, attributes)
        except PenstockError as error:
            if not self._at_once or self.command.whole:
                raise
            self.error = error
            self._refused.append((queue.name, slice(0, count)))
            self._after.append(e.MessagesLost(queue.name, FULL, count))
            return
        for event, _ in decision.events:
            if isinstance(event, (e.Enqueued, e.Staged)) and rows is not None:
                event = replace(event, payload_rows=rows if event.payload_rows is None else rows[event.payload_rows])
            if isinstance(event, e.Staged):
                event = replace(event, exchange=self.command.exchange)
            (self._events if event.journaled else self._after).append(event)
        self._waits |= decision.waits
        if decision.reply is not None and len(decision.reply.refused):
            self.error = full(queue, len(decision.reply.refused))
            self._refused.append((queue.name, np.asarray(decision.reply.refused)))

    @property
    def _at_once(self) -> bool:
        return self.command.stage is None and self.command.transaction is None

    def _alone(
        self, queue: Queue, count: int, sizes: int | Ints, attributes: Attributes
    ) -> Decision[c.EnqueueReply] | Decision[None]:
        if self.command.transaction is not None:
            posted = c.Post(self.command.transaction, queue.name, count, sizes, None, attributes)
            return post(self.state, posted, self.now)
        if self.command.stage is not None:
            staged = c.StageMessages(self.command.stage, queue.name, count, sizes, None, attributes)
            return stage_messages(self.state, staged, self.now)
        whole = self.command.whole or queue.rules.overflow == "block"
        alone = c.Enqueue(queue.name, count, sizes, None, self.command.durable, attributes, whole)
        return enqueue(self.state, alone, self.now)

    def refused(self, parts: list[RoutedPart]) -> Rows:
        if not self._refused:
            return NO_ROWS
        kept_out = dict(self._refused)
        placed, taken = np.zeros(self.command.count, np.bool_), np.zeros(self.command.count, np.bool_)
        for part in parts:
            rows = as_array(part.rows)
            placed[rows] = True
            for name in part.queues:
                taken[np.delete(rows, kept_out[name]) if name in kept_out else rows] = True
        return np.flatnonzero(placed & ~taken)

    def decision(self, reply: c.Sent) -> Decision[c.Sent]:
        decision = Decision([], reply, waits=self._waits or not self._events)
        if self._events:
            decision.add(as_one(self._events), payload=self.command.payload)
        decision.extend(self._after)
        return decision
