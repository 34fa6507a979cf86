"""Event messages for the queue `$events`, a ring. Without this queue nothing is gathered."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, Protocol

import pyarrow as pa

from ... import errors
from ...engine import BrokerState
from ...engine import commands as c
from ...engine.columns.attributes import Attributes
from ...engine.columns.states import Outcome
from ...engine.model.names import EVENTS
from ...messages import batch_checks
from ...messages.payloads import Payload, store, stored_sizes

MOST_WAITING = 10_000  # events between two looks; older ones are dropped


class EventHost(Protocol):
    """The broker, as the publisher sees it."""

    state: BrokerState

    def wall_ms(self) -> int: ...

    def has_space(self, nbytes: int) -> bool: ...

    def attributes(self, queue_name: str, batch: Payload) -> Attributes: ...


class EventMessages:
    """`note` is for any thread and does not wait. One thread calls `look`, which adds the noted events to the queue."""

    def __init__(self, host: EventHost, submit: Callable[[c.Enqueue], object]) -> None:
        self._host, self._state, self._submit = host, host.state, submit
        self._waiting: deque[dict[str, Any]] = deque(maxlen=MOST_WAITING)
        self._dead_letters: dict[int, int] | None = None  # of each queue at the last look; None: events are off
        self._epochs: dict[str, int] = {}  # of leases at the last look

    def note(self, event: str, text: str, queue: str | None = None, **details: Any) -> None:
        if EVENTS in self._state.queues:
            time = datetime.fromtimestamp(self._host.wall_ms() / 1000, timezone.utc)
            fields = {"time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"), "event": event, "queue": queue}
            self._waiting.append({**fields, **details, "text": text})

    def look(self) -> None:
        if EVENTS not in self._state.queues:
            self._dead_letters = None
            self._waiting.clear()
            return
        self._note_dead_letters()
        self._note_leases()
        try:
            if self._waiting and self._host.has_space(1):
                self._publish([self._waiting.popleft() for _ in range(len(self._waiting))])
        except errors.DiskFull:
            self._waiting.clear()
        except errors.NotFound:  # the queue was deleted
            pass

    def _note_dead_letters(self) -> None:
        before, self._dead_letters = self._dead_letters, {}
        for queue in list(self._state.queues.values()):
            total = queue.ended[Outcome.DEAD_LETTERED] + queue.totals.redriven
            self._dead_letters[queue.id] = total
            new = 0 if before is None else total - before.get(queue.id, 0)
            if new > 0 and queue.name != EVENTS:
                self.note("dead-letter", f"{new:,} messages became dead letters", queue.name, messages=new)

    def _note_leases(self) -> None:
        before, leases = self._epochs, list(self._state.leases.values())
        self._epochs = {lease.name: lease.epoch for lease in leases}
        for lease in leases:
            if lease.epoch > before.get(lease.name, lease.epoch):
                text = "a query has taken up the lease, or an operator has ended its batch"
                self.note("lease-taken-over", text, lease.queue, lease=lease.name)

    def _publish(self, events: list[dict[str, Any]]) -> None:
        columns = {
            "body": pa.array([json.dumps(event).encode() for event in events], pa.binary()),
            "subject": [event["event"] for event in events],
            "contentType": ["application/json"] * len(events),
        }
        batch = batch_checks.validate(pa.record_batch(columns))
        sizes, stored = stored_sizes(batch), store(batch)
        attributes = self._host.attributes(EVENTS, stored.payload)
        self._submit(c.Enqueue(EVENTS, len(events), sizes, stored, durable=False, attributes=attributes))
