"""Callbacks of one session and their order: outcomes of sends first, then its consumers in turn."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from .executors import SerialExecutor, Task

if TYPE_CHECKING:
    from .received import ReceivedMessage
    from .sending import Confirmation
    from .session import Session

#: Outcomes that wait for their callback. Above that a send waits, unless a callback makes it: it would wait for itself.
MAX_PENDING_OUTCOMES = 10_000


class Callbacks(SerialExecutor):
    """The serial executor of one session.

    Callers hold the connection's lock; the callbacks themselves run without it.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session.changed, session.connection.pool, self._next)
        self._session = session
        self._outcomes: deque[Confirmation] = deque()

    @property
    def full(self) -> bool:
        """True when so many outcomes wait for their callback that a send has to wait."""
        return len(self._outcomes) >= MAX_PENDING_OUTCOMES and not self.inside

    def add_outcome(self, confirmation: Confirmation) -> None:
        """Enqueue the callback of a confirmation."""
        self._outcomes.append(confirmation)
        self.wake()

    def run_outcomes(self) -> None:
        """Run the callbacks of all outcomes in the calling thread, which closes the session and does not hold the lock.

        The pool may have no free thread for them, and soon there is no pool.
        """
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
            return partial(self._call_with_outcome, confirmation.callback, confirmation)
        consumers = self._session.consumers
        for index, consumer in enumerate(consumers):
            if consumer.callback is not None and not consumer.closed and (message := consumer.take()) is not None:
                consumers.append(consumers.pop(index))  # the others come before it next time
                return partial(self._call_with_message, consumer.callback, message)
        return None

    def _call_with_outcome(self, callback: Callable[[Confirmation], None], confirmation: Confirmation) -> None:
        self._call(partial(callback, confirmation))

    def _call_with_message(self, callback: Callable[[ReceivedMessage], None], message: ReceivedMessage) -> None:
        good = self._call(partial(callback, message))
        with self._session.changed:
            (self._session.ledger.processed if good else self._session.ledger.failed)(message)

    def _call(self, callback: Task) -> bool:
        try:
            callback()
        except Exception as error:  # the application's own: report it, and go on with the next callback
            self._session.connection.report(error)
            return False
        return True
