"""A connection to one of several servers, and to the next one when that is lost; `queues` has what applications add to it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from ... import errors
from .executors import Pool
from .modes import AcknowledgeMode
from .servers import Dependencies, Servers
from .session import Session
from .wire import Wire, ours

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from 3.11 on

_LOG = logging.getLogger(__name__)


class Connection:
    """A connection that reconnects, made by `connect`. Any number of threads may use it, each with sessions of its own.

    When the server is lost, it connects to the next one, as `Backoff` plans. Meanwhile every call waits, up to its time limit.
    Delivery is at least once:
    - sends that were not confirmed are sent again, with the same message ids;
    - messages that were not settled are delivered again, and settling one of the old deliveries raises PeerError;
    - a transaction is rolled back, and its commit raises RolledBack.
    """

    def __init__(
        self,
        servers: Servers,
        dependencies: Dependencies,
        *,
        client_id: str,
        timeout_s: float,
        callback_threads: int,
        on_error: Callable[[Exception], None] | None,
    ) -> None:
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.changed = threading.Condition(threading.RLock())
        self.pool = Pool(callback_threads)
        self.clock = dependencies.clock
        #: Url of the server in use; None while there is none.
        self.url: str | None = None
        #: Number of times that a server was lost.
        self.losses = 0
        self._servers = servers
        self._wall = dependencies.wall
        self._on_error = on_error
        self._wire: Wire | None = None
        self._sessions: list[Session] = []
        self._failure: errors.PenstockError | None = None
        self._closing = threading.Event()
        self._ids = count(1)

    # --- for the application

    def session(self, mode: AcknowledgeMode = AcknowledgeMode.AUTO) -> Session:
        """Open a session: a line of work for one thread.

        Args:
            mode: Who acknowledges messages, and when. With `TRANSACTED` everything belongs to transactions.

        Returns:
            An open session; close it, or use `with`.

        Raises:
            PeerError: No server answers in time.
        """
        with self.changed:
            made = Session(self, mode)
            self.on_current_wire(made.attach)
            self._sessions.append(made)
        return made

    def close(self, *, flush: bool = True) -> None:
        """Close every session, then the connection; `with` does so.

        Args:
            flush: Whether to wait for confirmations; see `Session.close`.

        Raises:
            PenstockError: The first error of a session, such as a refusal that was not reported yet.
        """
        found: errors.PenstockError | None = None
        # Sessions with a running callback close last: the callback may wait for another session, whose end releases it.
        for session in sorted(self._sessions, key=lambda each: each.callbacks.busy):
            try:
                session.close(flush=flush)
            except errors.PenstockError as error:
                found = found or error
        with self.changed:
            self._closing.set()
            self._failure = self._failure or errors.PeerError("this connection is closed")
            self.pool.close()
            wire, self._wire, self.url = self._wire, None, None
            self.changed.notify_all()
        if wire is not None:
            wire.close()
        if found is not None:
            raise found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(flush=kind is None)

    # --- for its parts, under the lock

    def check(self) -> None:
        """Raise the error that ended this connection for good, if there is one."""
        if self._failure is not None:
            raise self._failure

    def wait_for(self, done: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until `done()`, over reconnects; return False when `timeout_s` is over first.

        Raises the error that ended this connection for good.
        """

        def met() -> bool:
            if done():
                return True
            self.check()
            return False

        return self.changed.wait_for(met, timeout_s)

    def current_wire(self) -> Wire:
        """Return the wire in use; wait for one while there is none. Raises PeerError after the time limit."""
        if not self.wait_for(lambda: self._wire is not None, self.timeout_s):
            raise errors.PeerError(f"no broker has answered within {self.timeout_s:g} s at any of {self._servers}")
        assert self._wire is not None
        return self._wire

    def on_current_wire(self, action: Callable[[Wire], None]) -> None:
        """Run `action` on the wire in use; if that wire is lost meanwhile, run it again on the next one."""
        while True:
            wire = self.current_wire()
            try:
                action(wire)
            except errors.PenstockError:
                self.check()
                if self._wire is wire and not wire.failed:
                    raise
                self.wait_for(partial(self._another, wire), self.timeout_s)
            else:
                return

    def _another(self, wire: Wire) -> bool:
        return self._wire is not wire

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return int(self._wall() * 1000)

    def new_message_id(self) -> str:
        """Return an id that no other message has."""
        return f"{self.client_id}:{next(self._ids)}"

    def report(self, error: Exception) -> None:
        """Log an error that no call can raise, and pass it to `on_error` on a thread of the pool."""
        _LOG.warning("%s", error, exc_info=None if isinstance(error, errors.PenstockError) else error)
        if self._on_error is not None:
            with self.changed, suppress(RuntimeError):  # no thread can be started: the log has it
                self.pool.submit(partial(self._on_error, error))

    def forget(self, session: Session) -> None:
        """Remove a session that is closed."""
        if session in self._sessions:
            self._sessions.remove(session)

    # --- connecting

    def open(self) -> None:
        """Connect for the first time. Raises the last server's error when none answers."""
        wire, url = self._servers.first()
        try:
            self._use(wire, url)
        except BaseException:
            wire.close()
            raise

    def _use(self, wire: Wire, url: str) -> None:
        """Move all sessions to this wire. Raises when the wire is lost meanwhile."""
        with self.changed:
            self.check()
            wire.start(self.changed, self._timers, self._lost)
            try:
                for session in list(self._sessions):
                    session.attach(wire)
                wire.check()
                self.check()  # the application may have closed it meanwhile
            except Exception as error:
                self._interrupt(ours(error))
                raise
            self._wire, self.url = wire, url
            self.changed.notify_all()

    def _timers(self) -> float | None:
        """Do the work that is due, after each step of the pump; return the seconds until the next.

        Acknowledgements whose time has come leave, and producers send again as far as they have credit.
        """
        now = self.clock()
        left = []
        for session in self._sessions:
            for producer in session.producers:
                producer.resend()
        for consumer in [each for session in self._sessions for each in session.consumers]:
            if consumer.acknowledgements.due(now):
                consumer.session.ledger.flush(consumer)
            elif consumer.acknowledgements.deadline is not None:
                left.append(consumer.acknowledgements.deadline - now)
        return min(left, default=None)

    def _lost(self, wire: Wire, error: errors.PenstockError) -> None:
        """Connect again after the wire in use has failed. Its pump calls this; the pump's thread makes the next wire."""
        try:
            final = self._reconnect(wire, error)
        except Exception as found:  # nobody else would tell those who wait
            final = ours(found)
        if final is not None:
            self._fail(final)

    def _reconnect(self, wire: Wire, error: errors.PenstockError) -> errors.PenstockError | None:
        with self.changed:
            if wire is not self._wire or self._closing.is_set():
                return None
            lost, self._wire, self.url = self.url, None, None
            assert lost is not None
            self.losses += 1
            self._interrupt(error)
            self.changed.notify_all()
        self.report(error)
        return self._servers.reconnect(lost, error, self._closing, self._use)

    def _interrupt(self, error: errors.PenstockError) -> None:
        for session in self._sessions:
            session.lost(error)

    def _fail(self, error: errors.PenstockError) -> None:
        with self.changed:
            self._failure = self._failure or error
            self.changed.notify_all()
            for consumer in [each for session in self._sessions for each in session.consumers]:
                consumer.wake()
            for producer in [each for session in self._sessions for each in session.producers]:
                producer.fail(error)
        self.report(error)
