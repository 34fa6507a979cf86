"""The intake: a thread of the planner that receives ahead of Spark, within limits.

Only this thread uses the connection. Other threads leave requests for it and wake it. Received messages wait here until a batch
takes them. When the connection is lost, waiting messages are dropped, because the broker sends them again. The thread connects
again without a time limit, with growing pauses. The pauses are short again after a connection that was useful: a message was
accepted over it, or it lasted longer than the longest pause.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ...broker_core import executor_modules
from ...broker_core.errors import PeerError, PenstockError
from ..access import BrokerAccess
from ..backoff import RECONNECT_S
from .arrivals import ArrivalGroup, DeliveryIds, OversizedMessage, add, grouped, ranges
from .links import MOST_CREDIT, attached, connected

log = logging.getLogger("penstock")

#: Messages and bytes that wait here at most, in addition to the links' credit.
WAITING_ROWS, WAITING_BYTES = 1 << 18, 128 << 20
#: Messages and bytes that are enough for a file, if no trigger has a limit.
FILE_ROWS, FILE_BYTES = 1 << 16, 8 << 20
#: Messages that one disposition names at most: a broker does nothing else for a connection while it settles them.
ACCEPTED_TOGETHER = 10_000
#: Seconds in which a broker answers a drain: it may have to write thousands of outcomes first. A broker that does not answer has
#: sent all its messages. Every `LOOK_S` seconds the drain ends if a message came: then it is repeated later.
DRAIN_S, LOOK_S = 30.0, 1.0
#: Seconds of silence after which a broker that cannot drain counts as empty.
SILENCE_S = 5.0
#: Connections lost in consecutive drains, after which this planner no longer asks the broker to drain.
MOST_BREAKS = 2
#: Seconds in which requests to the thread are written.
FLUSH_S = 5.0
#: Seconds between two attempts to reach a lost broker, at first and at most.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
#: Seconds without a new message after which a batch is closed, and seconds after which it is closed although more messages come.
QUIET_S, GATHER_S = 0.02, 0.5
#: Messages from which on a pause of `QUIET_S` closes a batch. Artemis sends 20 MiB of a paged queue, and then waits until these
#: messages are accepted.
FEW_ROWS = 5000
_POLL_S = 1.0
_DONE_POLL_S = 0.05


class Gather(NamedTuple):
    """Wait for more messages: with few messages until none came for `quiet_s`, and for `most_s` at most."""

    quiet_s: float
    most_s: float


class _Drained(NamedTuple):
    """An empty drain: messages received before it, calls of `accept` sent before it, and the time of its end."""

    received: int
    settled: int
    at: float


class Intake:
    """Receiver of messages from `queues`, after `start`. The planner calls from two threads, one at a time."""

    def __init__(self, access: BrokerAccess, queues: Sequence[str], *, readers: int = 1, selector: str | None = None) -> None:
        self._access, self._queues, self._readers, self._selector = access, queues, readers, selector
        self._came = threading.Condition()
        self._waiting: deque[ArrivalGroup] = deque()
        self._rows = self._octets = 0
        self._wanted = (0, 0)  # messages and octets with which a batch that gathers is closed
        self._enough = threading.Event()  # for a file
        self._requests: deque[Callable[[], None]] = deque()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._wake_read = self._wake_write = -1
        self._waking = threading.Lock()  # after the pipe is closed, its number may belong to another file
        self._connection: Any = None
        self._links: list[tuple[int, Any]] = []
        self._number = 0  # of the connection; deliveries of earlier connections cannot be settled any more
        self._failure: BaseException | None = None
        self._final = False  # the thread has ended with that failure
        self._refused_at: float | None = None  # since when the broker answers only with refusals
        self._pause = FIRST_PAUSE_S  # before the next attempt to reach a lost broker
        self._connected_at = 0.0
        self._useful = False  # a message was accepted over the connection
        self._mean = 0.0  # octets of a message
        self._asked = self._settled = 0  # calls of `accept`, and those of them that were sent
        self._drained: _Drained | None = None
        self._drain_asked = False  # a drain of `ask_drain` is under way
        self._drains, self._breaks = True, 0  # whether the broker is asked to drain, and consecutive breaks at drains
        self.received = [0] * len(queues)
        self.lost = 0  # connections

    # --- For the planner -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect and begin to receive, unless it has begun. Raises PenstockError if the first attempt fails."""
        if self._thread is not None:
            return
        with executor_modules.own_errors():
            self._connect()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        # A daemon: a thread that waits for its broker must not keep the planner of a dead driver alive.
        self._thread = threading.Thread(target=self._run, name="penstock-intake", daemon=True)
        self._thread.start()

    def take(self, most_rows: int, most_bytes: int, wait_s: float, gather: Gather, *, alone: bool = True) -> list[ArrivalGroup]:
        """Take waiting messages in order, within these limits. Wait at most `wait_s` for the first, and by `gather` for more.

        A single larger message is taken alone, or left with `alone=False`.

        Raises the broker's refusal after `RECONNECT_S`, and immediately the error that ended the thread. A broker that is away
        raises nothing.
        """
        with self._came:
            self._came.wait_for(lambda: bool(self._waiting) or self._final, wait_s)
            if not self._waiting:
                self._check()
            self._gather(most_rows, most_bytes, gather)
            taken: list[ArrivalGroup] = []
            rows, octets = most_rows, most_bytes
            while self._waiting and rows > 0:
                group = self._waiting[0]
                count = group.upto(rows, octets, alone=alone and not taken)
                if count < len(group.ids):
                    if count:
                        self._waiting[0] = group.slice(count, len(group.ids) - count)
                        taken.append(group.slice(0, count))
                    break
                taken.append(self._waiting.popleft())
                rows, octets = rows - count, octets - group.octets
            self._rows -= sum(len(group.ids) for group in taken)
            self._octets -= sum(group.octets for group in taken)
            self._update_enough()
        if taken:
            self._wake()
        return taken

    def await_file(self) -> None:
        """Return when there are enough messages for a file, or after `wake_waiting`."""
        self._enough.wait()

    @property
    def has_file(self) -> bool:
        """True if enough messages for a file wait."""
        return self._enough.is_set()

    def wake_waiting(self) -> None:
        """End `await_file`."""
        self._enough.set()

    def _gather(self, most_rows: int, most_bytes: int, gather: Gather) -> None:
        """Wait while more messages come: a batch of few rows costs Spark as much as one of many."""
        until = time.monotonic() + gather.most_s
        most_rows, most_bytes = min(most_rows, WAITING_ROWS), min(most_bytes, WAITING_BYTES)  # the intake then receives no more
        self._wanted = most_rows, most_bytes
        while self._waiting and self._rows < most_rows and self._octets < most_bytes and time.monotonic() < until:
            before = self._rows
            self._came.wait(gather.quiet_s if before < FEW_ROWS else QUIET_S)
            if self._rows == before:
                return

    def accept(self, settled: Sequence[DeliveryIds]) -> None:
        """Let the thread accept these deliveries. Deliveries of an earlier connection are ignored: their messages come again."""
        if settled:
            self._asked += 1
            self._ask(lambda: self._accept(settled))

    def holds(self, settled: DeliveryIds) -> bool:
        """True if these deliveries can still be settled: they came over the current connection."""
        return settled.connection == self._number and self._failure is None

    def flush(self) -> None:
        """Return when all earlier requests are written to the broker, or it is away."""
        done = threading.Event()
        if self._thread is not None:
            self._ask(done.set)
            self._wait(done, FLUSH_S)

    def _wait(self, done: threading.Event, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not done.wait(_DONE_POLL_S) and self._failure is None and time.monotonic() < until:
            pass

    def drain(self) -> bool:
        """Let the broker send its remaining messages. Return when it has, or a message came, or after `DRAIN_S`.

        False if it is away. Raises as `take`.

        RabbitMQ 3 ends the session instead (rabbitmq-server#7119), so it is not asked. Nor is a broker that broke off
        `MOST_BREAKS` times. Such a broker counts as empty after `SILENCE_S` without a message.
        """
        done = threading.Event()
        if self._thread is None:
            return False
        given_up = threading.Event()
        self._ask(lambda: None if given_up.is_set() else self._drain(done, waited=True))
        self._wait(done, DRAIN_S + FLUSH_S)
        given_up.set()
        if not done.is_set():
            self._check()
        return done.is_set()

    def ask_drain(self) -> None:
        """Begin a drain without waiting for it. `silent_s` shows its answer."""
        if self._thread is not None and not self._drain_asked:
            self._drain_asked = True
            self._ask(self._drain_unwaited)

    def _drain_unwaited(self) -> None:
        try:
            if not self._stopped.is_set():
                self._drain(threading.Event(), waited=False)
        finally:
            self._drain_asked = False

    @property
    def silent_s(self) -> float | None:
        """Seconds since a drain found the broker empty. None if unknown, or if messages came or were accepted since."""
        drained = self._drained
        if drained is None or (drained.received, drained.settled) != (sum(self.received), self._asked):
            return None
        return time.monotonic() - drained.at

    @property
    def away(self) -> BaseException | None:
        """Why the broker cannot be reached; None if it can."""
        return self._failure

    @property
    def waiting(self) -> int:
        """Messages that have arrived and are not in a batch yet."""
        return self._rows

    def close(self) -> None:
        """Close the connection. Messages that were not accepted return to their queues."""
        self._stopped.set()
        if self._thread is not None:
            self._wake()
            self._thread.join(10)
            if not self._thread.is_alive():  # else it may still read the pipe
                with self._waking:
                    os.close(self._wake_read)
                    os.close(self._wake_write)
                    self._wake_read = self._wake_write = -1
            self._thread = None

    def _check(self) -> None:
        failure, refused_at = self._failure, self._refused_at
        # A starting broker may refuse links for a moment.
        refused = refused_at is not None and time.monotonic() - refused_at > RECONNECT_S
        if failure is not None and (self._final or refused):
            raise failure

    def _ask(self, request: Callable[[], None]) -> None:
        self._requests.append(request)
        self._wake()

    def _wake(self) -> None:
        with self._waking, suppress(OSError):  # a full pipe wakes the thread anyway
            os.write(self._wake_write, b"\0")

    # --- In the thread -------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    with executor_modules.own_errors():
                        if self._connection is None:
                            self._connect()
                        while not self._stopped.is_set():
                            self._step()
                except OversizedMessage:
                    raise  # the broker would send it again
                except PenstockError as error:
                    if any(link.overfull for _, link in self._links):
                        raise  # the broker would send the same message again
                    self._lose(error)
            with suppress(PenstockError), executor_modules.own_errors():
                while self._requests and self._connection is not None:
                    self._requests.popleft()()
        except BaseException as error:  # no memory, or a bug: without an error the query would wait forever
            self._final = True
            self._drop(error)
        finally:
            self._disconnect()

    def _step(self) -> None:
        while self._requests:
            self._requests.popleft()()
        if self._rows >= WAITING_ROWS or self._octets >= WAITING_BYTES:
            self._connection.idle()
        elif sum(self._receive(number, link) for number, link in self._links):
            return
        self._sleep()

    def _receive(self, number: int, link: Any) -> int:
        blocks = link.receive_blocks(timeout_s=0.0)
        if not blocks:
            return 0
        groups = list(grouped(number, time.time_ns() // 1000, self._number, blocks))
        count, octets = sum(len(group.ids) for group in groups), sum(group.octets for group in groups)
        with self._came:
            first = not self._waiting
            add(self._waiting, groups)
            self._rows += count
            self._octets += octets
            self.received[number] += count
            # Not each time: hundreds of wake-ups a second would take as long as the messages.
            if first or self._rows >= self._wanted[0] or self._octets >= self._wanted[1]:
                self._came.notify_all()
            self._update_enough()
        self._mean = max(octets / count, 0.9 * self._mean)
        link.credit = max(1, min(MOST_CREDIT, int(WAITING_BYTES / (self._mean + 1) / len(self._links))))
        return count

    def _update_enough(self) -> None:
        enough = self._rows >= FILE_ROWS or self._octets >= FILE_BYTES
        (self._enough.set if enough else self._enough.clear)()

    def _sleep(self, limit_s: float = _POLL_S) -> None:
        if self._connection.pending:  # perhaps the rest of a message, which no poll would report
            return
        due = self._connection.next_heartbeat_s()
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        poll.register(self._connection.fileno(), select.POLLIN | (select.POLLOUT if self._connection.congested else 0))
        poll.poll(1000 * max(0.0, min(_POLL_S, limit_s, _POLL_S if due is None else due)))
        with suppress(BlockingIOError):
            os.read(self._wake_read, 1 << 16)

    def _accept(self, settled: Sequence[DeliveryIds]) -> None:
        self._settled += 1
        link = self._links[0][1]
        for part in ranges(settled, self._number, ACCEPTED_TOGETHER):
            link.accept_ids(part)
            self._useful = True

    def _drain(self, done: threading.Event, *, waited: bool) -> None:
        """Drain all links. If the planner has waited for it, a missing answer counts as one."""
        if self.silent_s is None:
            before = sum(self.received)
            answered = self._drain_links()
            if (answered or waited) and sum(self.received) == before:
                self._drained = _Drained(before, self._settled, time.monotonic())
        done.set()

    def _drain_links(self) -> bool:
        """Return when all links have answered, or a message came, or the time is over. True if all have answered."""
        answered = True
        until = time.monotonic() + (DRAIN_S if self._drains else SILENCE_S)
        if self._drains:
            answered = all(self._drain_link(link, until) for _, link in self._links)
            self._breaks = 0
        else:
            self._await_silence(until)
        for number, link in self._links:
            self._receive(number, link)
        return answered

    def _drain_link(self, link: Any, until: float) -> bool:
        """Return when the broker has answered, or a message came over any link, or the time is over. True if it has answered."""
        while True:
            try:
                with executor_modules.own_errors():
                    link.drain(max(0.0, min(LOOK_S, until - time.monotonic())))
                return True
            except PenstockError:
                try:
                    link.check()
                except PenstockError:
                    self._breaks += 1
                    self._drains = self._breaks < MOST_BREAKS
                    raise
                if sum([self._receive(*link) for link in self._links]) or self._stopped.is_set() or time.monotonic() >= until:
                    return False

    def _await_silence(self, until: float) -> None:
        """Return when the time is over, or a message has come."""
        while not self._stopped.is_set() and time.monotonic() < until:
            if sum(self._receive(number, link) for number, link in self._links):
                return
            self._sleep(until - time.monotonic())

    def _connect(self) -> None:
        connection = connected(self._access)
        try:
            self._links = attached(connection, self._queues, self._readers, self._selector)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._drains = self._drains and not connection.is_rabbitmq_3
        self._number += 1
        if self._failure is not None:
            log.info("the broker at %s answers again", self._access.url)
        self._failure, self._useful, self._connected_at = None, False, time.monotonic()

    def _lose(self, error: PenstockError) -> None:
        """Drop the messages that the broker will send again, and wait a little."""
        if self._failure is None:
            log.warning("the links to %s are lost, and will be taken up again: %s", self._access.url, error)
            self.lost += 1
            # Else the broker only answered, and may refuse again and again.
            if self._useful or time.monotonic() - self._connected_at > LONGEST_PAUSE_S:
                self._pause, self._refused_at = FIRST_PAUSE_S, None
        if isinstance(error, PeerError):
            self._refused_at = None
        elif self._refused_at is None:
            self._refused_at = time.monotonic()
        self._drop(error)
        self._stopped.wait(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE_S)

    def _drop(self, error: BaseException) -> None:
        """Drop the messages that the broker will send again, and keep the reason for the planner."""
        self._failure, self._drained = error, None
        with self._came:
            self._waiting.clear()
            self._rows = self._octets = 0
            self._update_enough()
            self._came.notify_all()
        self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # the reason is known already
                connection.close()
