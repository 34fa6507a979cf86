"""One connection to one server, read by a thread of its own (the pump).

Other threads write and wait under the same lock. The pump never calls the application: callbacks run on their pool, so they may
wait for frames that the pump reads.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from ... import amqp, errors
from ..amqp.connection import Connection
from ..amqp.failures import no_answer
from ..amqp.links import CLOSE_TIMEOUT_S

_LOG = logging.getLogger(__name__)

#: Does due work. Returns the seconds until more is due, or None.
Timers = Callable[[], "float | None"]


class ServerConnection:
    """A connection with a pump, which starts with the object. Every method but `close` is called under the lock of `changed`.

    The pump notifies `changed` of every change. It calls `lost` once, without the lock, if the connection ends without `close`.
    """

    def __init__(
        self,
        connection: Connection,
        changed: threading.Condition,
        timers: Timers,
        lost: Callable[[ServerConnection, errors.PenstockError], None],
    ) -> None:
        self.name = connection.name
        self.timeout_s = connection.timeout_s
        self.links = connection.links
        self.is_penstock = connection.is_penstock
        self.new_link_name, self.check = connection.new_link_name, connection.check
        self._connection = connection
        self._changed = changed
        self._timers = timers
        self._lost = lost
        self._stop = False
        sockets: tuple[socket.socket, ...] = ()
        try:
            self._wake_reader, self._wake_writer = sockets = socket.socketpair()
            self._wake_reader.setblocking(False)
            self._wake_writer.setblocking(False)
            self._thread = threading.Thread(target=self._pump, name="penstock-server", daemon=True)
            self._thread.start()
        except (OSError, RuntimeError) as error:
            for sock in sockets:
                sock.close()
            raise errors.ResourceLimit(
                f"this process cannot read from {self.name}: {error}; raise its limit of open files (ulimit -n) or threads"
            ) from error

    def begin(self) -> amqp.Session:
        self.check()
        session = self._connection.begin()
        self.flush()
        return session

    def end(self, session: amqp.Session) -> None:
        if not self.failed:
            self._connection.end(session)
            self.flush()

    def wait_until(self, done: Callable[[], bool], problem: str, limit_s: float | None = None) -> None:
        limit = self.timeout_s if limit_s is None else min(limit_s, self.timeout_s)
        self.flush()
        if not self._changed.wait_for(unless_failed(done, self.check), limit):
            raise no_answer(self.name, limit, problem)

    def flush(self) -> None:
        """Write as much as the socket takes; the pump writes the rest. `check` raises a failure."""
        try:
            self._connection.flush()
        except errors.PenstockError as error:
            self._connection.fail(error)
        if (self.congested or self.failed) and threading.current_thread() is not self._thread:
            self.wake()

    def wake(self) -> None:
        with suppress(OSError):  # full: it wakes anyway; closed: it has ended
            self._wake_writer.send(b"\0")

    @property
    def congested(self) -> bool:
        return self._connection.congested

    @property
    def failed(self) -> bool:
        return self._connection.failure is not None

    def abandon(self, error: errors.PenstockError) -> None:
        self._connection.fail(error)
        self.wake()

    def _pump(self) -> None:
        failure: errors.PenstockError | None = None
        try:
            self._read()
        except Exception as error:
            failure = to_penstock_error(error)
        with self._changed:
            if failure is not None:
                self._connection.fail(failure)
            expected = self._connection.closing
            self._connection.disconnect()
            self._wake_reader.close()
            self._wake_writer.close()
            self._changed.notify_all()
        if failure is not None and not expected:
            self._lost(self, failure)

    def _read(self) -> None:
        connection = self._connection
        poller = select.poll()
        poller.register(self._wake_reader.fileno(), select.POLLIN)
        poller.register(connection.fileno(), select.POLLIN)
        due: float | None = 0.0
        while True:
            poller.modify(connection.fileno(), select.POLLIN | (select.POLLOUT if self.congested else 0))
            poller.poll(None if due is None else due * 1000)
            with self._changed:
                with suppress(BlockingIOError):
                    self._wake_reader.recv(4096)
                if self._stop or connection.finished:
                    return
                if connection.step(0.0):
                    due = 0.0  # octets may be left in the socket or inside TLS
                else:
                    times = [time for time in (self._timers(), connection.next_heartbeat_s()) if time is not None]
                    due = max(0.0, min(times)) if times else None
                self.flush()
                self._changed.notify_all()

    def close(self) -> None:
        """The caller does not hold the lock. Never raises, even if the server is unreachable."""
        with self._changed:
            if not self._connection.closing:
                with suppress(errors.PenstockError, amqp.ProtocolError):
                    self._connection.start_close()
                    self.wait_until(lambda: self._connection.finished, "it does not close", CLOSE_TIMEOUT_S)
            self._stop = True
            self.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()


def unless_failed(done: Callable[[], bool], check: Callable[[], None]) -> Callable[[], bool]:
    """Return the condition `done`, which raises the error of `check` while it is false."""

    def met() -> bool:
        if not done():
            check()
            return False
        return True

    return met


def to_penstock_error(error: Exception) -> errors.PenstockError:
    if isinstance(error, errors.PenstockError):
        return error
    _LOG.error("the client itself failed", exc_info=error)
    return errors.PenstockError(f"the client itself failed, which is our fault: {error!r}")
