"""What the callbacks of one session are called with, and in which order: outcomes of sends first, then its consumers in turn."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker_core.messaging.lanes import Lane, Task

if TYPE_CHECKING:
    from penstock.broker_core.messaging.received import ReceivedMessage
    from penstock.broker_core.messaging.sending import Confirmation
    from penstock.broker_core.messaging.session import Session

#: Outcomes that wait for their callback; above that a send waits (unless a callback makes it, which would wait for itself).
MAX_UNTOLD = 10_000


class Callbacks(Lane):
    """The lane of one session. Everything under the connection's lock, but the callbacks themselves."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.changed, session.connection.pool, self._next)
        self._session = session
        self._outcomes: deque[Confirmation] = deque()

    @property
    def full(self) -> bool:
        return len(self._outcomes) >= MAX_UNTOLD and not self.inside

    def tell(self, confirmation: Confirmation) -> None:
        """Its callback is due."""
        self._outcomes.append(confirmation)
        self.wake()

    def finish(self) -> None:
        """What the outcomes call, called by the thread that closes the session, without the lock: the pool may have no thread
        for it, and soon there is no pool.
        """
        with self._changed:
            if self.inside:
                return
            self._held += 1
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
                self._held -= 1
                self._changed.notify_all()

    def _next(self) -> Task | None:
        if self._outcomes:
            confirmation = self._outcomes.popleft()
            assert confirmation.callback is not None
            return partial(self._told, confirmation.callback, confirmation)
        consumers = self._session.consumers
        for place, consumer in enumerate(consumers):
            if consumer.callback is not None and not consumer.closed and (message := consumer.take()) is not None:
                consumers.append(consumers.pop(place))  # the others' turn
                return partial(self._hand_out, consumer.callback, message)
        return None

    def _told(self, callback: Callable[[Confirmation], None], confirmation: Confirmation) -> None:
        self._guarded(partial(callback, confirmation))

    def _hand_out(self, callback: Callable[[ReceivedMessage], None], message: ReceivedMessage) -> None:
        good = self._guarded(partial(callback, message))
        with self._session.changed:
            (self._session.ledger.done if good else self._session.ledger.failed)(message)

    def _guarded(self, callback: Task) -> bool:
        try:
            callback()
        except Exception as error:  # the application's own: it is told, and the next callback has its turn
            self._session.connection.report(error)
            return False
        return True
