"""Callbacks of one session: outcomes of sends first, then its consumers in turn."""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from .executors import SerialExecutor, Task

if TYPE_CHECKING:
    from .producer import Confirmation
    from .received import ReceivedMessage
    from .session import Session

#: Limit of outcomes that wait for their callback. Then a send waits, except in a callback, where it would never end.
MAX_PENDING_OUTCOMES = 10_000


class Callbacks(SerialExecutor):
    """Callers hold the connection's lock; the callbacks run without it."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.changed, session.connection.pool, self._next)
        self._session = session
        self._outcomes: deque[Confirmation] = deque()

    @property
    def full(self) -> bool:
        return len(self._outcomes) >= MAX_PENDING_OUTCOMES and not self.inside

    def add_outcome(self, confirmation: Confirmation) -> None:
        self._outcomes.append(confirmation)
        self.wake()

    def run_outcomes(self) -> None:
        """Run the callbacks of all outcomes in the calling thread, which closes the session: the pool may have no free thread."""
        with self._changed:
            if self.inside:
                return
            self._pauses += 1
            self._changed.wait_for(lambda: self._thread is None)
            self._thread = threading.get_ident()
        try:
            while True:
                with self._changed:
                    task = self._next() if self._outcomes else None
                if task is None:
                    return
                task()
        finally:
            with self._changed:
                self._thread = None
                self._pauses -= 1
                self._changed.notify_all()

    def _next(self) -> Task | None:
        if self._outcomes:
            confirmation = self._outcomes.popleft()
            assert confirmation.callback is not None
            return partial(self._call, partial(confirmation.callback, confirmation))
        consumers = self._session.consumers
        for index, consumer in enumerate(consumers):
            if consumer.callback is not None and not consumer.closed and (message := consumer.take()) is not None:
                consumers.append(consumers.pop(index))  # next time others come first
                return partial(self._call_with_message, partial(consumer.callback, message), message)
        return None

    def _call_with_message(self, callback: Task, message: ReceivedMessage) -> None:
        good = self._call(callback)
        with self._session.changed:
            (self._session.ledger.processed if good else self._session.ledger.failed)(message)

    def _call(self, callback: Task) -> bool:
        try:
            callback()
        except Exception as error:  # the application's own; the next callback runs
            self._session.connection.report(error)
            return False
        return True
