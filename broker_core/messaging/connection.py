"""The connection of an application: to one of several servers, and to the next one when that is lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from itertools import count

from penstock.broker_core import errors
from penstock.broker_core.messaging.lanes import Pool
from penstock.broker_core.messaging.modes import AcknowledgeMode
from penstock.broker_core.messaging.servers import Means, Servers
from penstock.broker_core.messaging.session import Session
from penstock.broker_core.messaging.wire import Wire

_LOG = logging.getLogger(__name__)


class Connection:
    """Made by `connect`; any number of threads may use it, each with sessions of its own.

    When it is lost it is made anew, to the next server, as `Backoff` says; meanwhile everything waits, up to its time limit.
    What that means for messages is at-least-once: sends that were not confirmed are sent again, with their ids; messages that
    were not settled are delivered again, and settling one of them is a PeerError; a transaction is rolled back, which its commit
    says.
    """

    def __init__(
        self,
        servers: Servers,
        means: Means,
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
        self.clock = means.clock
        #: The server that it is connected to; None while there is none.
        self.url: str | None = None
        #: How often it was lost.
        self.losses = 0
        self._servers = servers
        self._wall = means.wall
        self._on_error = on_error
        self._wire: Wire | None = None
        self._sessions: list[Session] = []
        self._failure: errors.PenstockError | None = None
        self._closing = threading.Event()
        self._ids = count(1)

    # --- for the application

    def session(self, mode: AcknowledgeMode = AcknowledgeMode.AUTO) -> Session:
        """A session; with AcknowledgeMode.TRANSACTED one of transactions."""
        with self.changed:
            made = Session(self, mode)
            self.persist(made.attach)
            self._sessions.append(made)
        return made

    def close(self, *, flush: bool = True) -> None:
        """Close every session (see `Session.close`), then say goodbye. Raises the first error of a session."""
        found: errors.PenstockError | None = None
        # Those whose callback runs come last: it may wait for another session, whose end lets it go on.
        for session in sorted(self._sessions, key=lambda each: each.lane.busy):
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

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(flush=kind is None)

    # --- for its parts, under the lock

    def check(self) -> None:
        """Raises what ended this connection for good."""
        if self._failure is not None:
            raise self._failure

    def wait_for(self, done: Callable[[], bool], timeout_s: float | None) -> bool:
        """Waits until `done`, over reconnects; whether it came to that. Raises what ended this connection for good."""

        def met() -> bool:
            if done():
                return True
            self.check()
            return False

        return self.changed.wait_for(met, timeout_s)

    def present(self) -> Wire:
        """The wire that there is now, or as soon as there is one."""
        if not self.wait_for(lambda: self._wire is not None, self.timeout_s):
            raise errors.PeerError(f"no broker has answered within {self.timeout_s:g} s at any of {self._servers}")
        assert self._wire is not None
        return self._wire

    def persist(self, action: Callable[[Wire], None]) -> None:
        """Do it on the present wire; where that is lost meanwhile, again on the next one."""
        while True:
            wire = self.present()
            try:
                action(wire)
            except errors.PenstockError:
                self.check()
                if self._wire is wire and not wire.over:
                    raise
                self.wait_for(partial(self._another, wire), self.timeout_s)
            else:
                return

    def _another(self, wire: Wire) -> bool:
        return self._wire is not wire

    def wall_ms(self) -> int:
        return int(self._wall() * 1000)

    def new_message_id(self) -> str:
        """An id that no other message has."""
        return f"{self.client_id}:{next(self._ids)}"

    def report(self, error: Exception) -> None:
        """What no call can raise: logged, and told to `on_error` on a thread of the pool."""
        _LOG.warning("%s", error, exc_info=None if isinstance(error, errors.PenstockError) else error)
        if self._on_error is not None:
            with self.changed:
                self.pool.submit(partial(self._on_error, error))

    def forget(self, session: Session) -> None:
        if session in self._sessions:
            self._sessions.remove(session)

    # --- connecting

    def open(self) -> None:
        """The first connection. Raises the last server's error when none answers."""
        self._use(*self._servers.first())

    def _use(self, wire: Wire, url: str) -> None:
        """Everything goes on here. Raises when it is lost meanwhile."""
        with self.changed:
            self.check()
            wire.start(self.changed, self._timers, self._lost)
            try:
                for session in list(self._sessions):
                    session.attach(wire)
                wire.check()
                self.check()  # it may have been closed meanwhile
            except errors.PenstockError as error:
                self._interrupt(error)
                raise
            self._wire, self.url = wire, url
            self.changed.notify_all()

    def _timers(self) -> float | None:
        """After each turn of the pump: gathered acknowledgements whose time has come leave, and what is to be sent again as far
        as there is credit; the seconds until the next.
        """
        now = self.clock()
        left = []
        for session in self._sessions:
            for producer in session.producers:
                producer.go_on()
        for consumer in [each for session in self._sessions for each in session.consumers]:
            if consumer.gathered.due(now):
                consumer.session.ledger.flush(consumer)
            elif consumer.gathered.deadline is not None:
                left.append(consumer.gathered.deadline - now)
        return min(left, default=None)

    def _lost(self, wire: Wire, error: errors.PenstockError) -> None:
        """The pump of a wire that is over; its thread makes the next one."""
        with self.changed:
            if wire is not self._wire or self._closing.is_set():
                return
            lost, self._wire, self.url = self.url, None, None
            assert lost is not None
            self.losses += 1
            self._interrupt(error)
            self.changed.notify_all()
        self.report(error)
        final = self._servers.again(lost, error, self._closing, self._use)
        if final is not None:
            self._fail(final)

    def _interrupt(self, error: errors.PenstockError) -> None:
        for session in self._sessions:
            session.lost(error)

    def _fail(self, error: errors.PenstockError) -> None:
        with self.changed:
            self._failure = self._failure or error
            for producer in [each for session in self._sessions for each in session.producers]:
                producer.fail(error)
            self.changed.notify_all()
        self.report(error)
