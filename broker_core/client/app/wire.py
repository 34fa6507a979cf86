"""One connection to one server, read by a thread of its own (the pump).

`penstock.broker_core.client.amqp.Connection` is for one thread. Here only the pump reads; all other threads write and wait under
the same lock. The pump never calls the application: callbacks run on their pool, so they may wait for what the pump reads.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from ... import amqp, errors
from ...amqp import LocalProtocolError, events
from ...amqp.states import SessionState
from .. import amqp as amqp_client
from ..amqp.address import Address
from ..amqp.links import CLOSE_TIMEOUT_S
from ..amqp.transport import Transport

_LOG = logging.getLogger(__name__)

#: Does the work that is due, under the lock; returns the seconds until more is due, None if nothing is.
Timers = Callable[[], "float | None"]


class NoAnswer(errors.PeerError):
    """A server that has not answered in time; its answer may come yet."""


class Wire(amqp_client.Connection):
    """A connection with a pump. One thread opens it, like its base.

    From `start` on, `changed` is the lock of everything, and is notified of every change.
    """

    def __init__(self, transport: Transport, machine: amqp.Connection, address: Address, timeout_s: float) -> None:
        super().__init__(transport, machine, address, timeout_s)
        self._changed: threading.Condition | None = None
        self._stop = False
        self._ended: set[amqp.Session] = set()

    def start(self, changed: threading.Condition, timers: Timers, lost: Callable[[Wire, errors.PenstockError], None]) -> None:
        """Start the pump. It calls `lost` once, without the lock, when the connection ends without `close`.

        Raises ResourceLimit when this process can have no more descriptors or threads; `close` then works as without a pump.
        """
        try:
            self._wake_reader, self._wake_writer = socket.socketpair()
        except OSError as error:
            raise self._no_pump(error) from error
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._thread = threading.Thread(target=self._pump, args=(changed, timers, lost), name="penstock-wire", daemon=True)
        self._changed = changed
        try:
            self._thread.start()
        except RuntimeError as error:
            self._changed = None
            self._wake_reader.close()
            self._wake_writer.close()
            raise self._no_pump(error) from error

    def _no_pump(self, error: Exception) -> errors.PenstockError:
        return errors.ResourceLimit(
            f"this process cannot read from {self.name}: {error}; raise its limit of open files (ulimit -n) or threads"
        )

    # --- for the application's threads, under the lock

    def begin(self) -> amqp.Session:
        """Begin a session. Raises ResourceLimit when the server takes no more."""
        self.check()
        try:
            session = self._machine.begin()
        except LocalProtocolError as error:
            raise errors.ResourceLimit(f"{self.name} takes no more sessions on one connection: {error}") from error
        self.flush()
        return session

    def end(self, session: amqp.Session) -> None:
        """End a session, without waiting for the server's answer; one that the server has not begun yet ends when it has."""
        with suppress(errors.PenstockError, amqp.ProtocolError):
            self.check()
            self._ended.add(session)
            if session.state is not SessionState.BEGIN_SENT:
                session.end()
                self.flush()

    def wait_until(self, done: Callable[[], bool], what: str, limit_s: float | None = None) -> None:
        """Wait for `done()`, under the lock; the pump reads meanwhile. Raises like the base."""
        if self._changed is None:
            super().wait_until(done, what, limit_s)
            return
        limit = self.timeout_s if limit_s is None else min(limit_s, self.timeout_s)
        self.flush()

        def met() -> bool:
            if done():
                return True
            self.check()
            return False

        if not self._changed.wait_for(met, limit):
            raise self.timeout_error(what, limit)

    def timeout_error(self, what: str, limit_s: float) -> errors.PenstockError:
        """Return the error for an answer that has not come in time."""
        return NoAnswer(str(super().timeout_error(what, limit_s)))

    def flush(self) -> None:
        """Write what the socket takes; the pump writes the rest. A failure is raised by `check`."""
        try:
            super().flush()
        except errors.PenstockError as error:
            self._fail(error)
        needs_pump = self.congested or self._failure is not None
        if needs_pump and self._changed is not None and threading.current_thread() is not self._thread:
            self.wake()

    def wake(self) -> None:
        """Wake the pump: it looks at the timers and at what is to be written."""
        with suppress(OSError):  # full: it wakes anyway; closed: it has ended
            self._wake_writer.send(b"\0")

    @property
    def failed(self) -> bool:
        """True when nothing can be sent on it any more."""
        return self._failure is not None

    def abandon(self, error: errors.PenstockError) -> None:
        """Fail the wire: its server does not answer."""
        self._fail(error)
        self.wake()

    def link_name(self) -> str:
        """Return a new name for a link."""
        return self._link_name()

    # --- the pump

    def _pump(self, changed: threading.Condition, timers: Timers, lost: Callable[[Wire, errors.PenstockError], None]) -> None:
        error: errors.PenstockError | None = None
        try:
            self._read(changed, timers)
        except Exception as found:
            error = ours(found)
        with changed:
            if error is not None:
                self._fail(error)
            expected = self._closing
            self._transport.close()
            self._wake_reader.close()
            self._wake_writer.close()
            changed.notify_all()
        if error is not None and not expected:
            lost(self, error)

    def _read(self, changed: threading.Condition, timers: Timers) -> None:
        poller = select.poll()
        poller.register(self._wake_reader.fileno(), select.POLLIN)
        poller.register(self.fileno(), select.POLLIN)
        due: float | None = 0.0
        while True:
            poller.modify(self.fileno(), select.POLLIN | (select.POLLOUT if self.congested else 0))
            poller.poll(None if due is None else due * 1000)
            with changed:
                with suppress(BlockingIOError):
                    self._wake_reader.recv(4096)
                if self._stop or self._machine.finished:
                    return
                # One read may leave octets in the socket or inside TLS: read again at once.
                more = self.step(0.0)
                due = 0.0 if more else _sooner(timers(), self.next_heartbeat_s())
                self.flush()
                changed.notify_all()

    def _handle(self, event: events.Event) -> None:
        if isinstance(event, events.Ended) and event.session in self._ended:
            self._ended.discard(event.session)
        elif isinstance(event, events.Begun) and event.session in self._ended:
            with suppress(amqp.ProtocolError):  # the connection is just ending
                event.session.end()
        else:
            super()._handle(event)

    # --- the end

    def close(self) -> None:
        """Close the connection. The caller does not hold the lock. Never raises for a server that is gone."""
        if self._changed is None:
            super().close()
            return
        with self._changed:
            if not self._closing and self._failure is None:
                self._closing = True
                with suppress(errors.PenstockError, amqp.ProtocolError):
                    self._machine.close()
                    self.wait_until(lambda: self._machine.finished, "it does not close", CLOSE_TIMEOUT_S)
            self._closing = self._stop = True
            self._failure = self._failure or errors.PeerError(f"this connection to {self.name} is closed")
            self.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()


def ours(error: Exception) -> errors.PenstockError:
    """Return the error itself if it is one of Penstock's, else log it, and return one that says so."""
    if isinstance(error, errors.PenstockError):
        return error
    _LOG.error("the client itself failed", exc_info=error)
    return errors.PenstockError(f"the client itself failed, which is our fault: {error!r}")


def _sooner(left: float | None, right: float | None) -> float | None:
    found = [each for each in (left, right) if each is not None]
    return max(0.0, min(found)) if found else None
