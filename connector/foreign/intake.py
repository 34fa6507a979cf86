"""The intake: a thread of the planner that receives ahead of Spark, within limits.

Only this thread uses the connection. Other threads leave requests for it and wake it. When the connection is lost, waiting
messages are dropped, because the broker sends them again. The thread connects again without a time limit. Its pauses grow, until
after a useful connection: a message was accepted over it, or it lasted longer than the longest pause.
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
from ...broker_core.errors import InvalidOption, PeerError, PenstockError
from ..access import BrokerAccess
from ..backoff import RECONNECT_S
from .arrivals import ArrivalGroup, DeliveryIds, OversizedMessage, add, grouped, ranges

log = logging.getLogger("penstock")

ANSWER_S = 30.0  # for the answer to a login or an attach
#: Credit of a new link, while the size of its messages is unknown, and at most: for 50 ms at 100,000 messages a second.
FIRST_CREDIT, MOST_CREDIT = 100, 5000
WAITING_ROWS, WAITING_BYTES = 1 << 18, 128 << 20  # that wait here at most, in addition to the links' credit
FILE_ROWS, FILE_BYTES = 1 << 16, 8 << 20  # enough for a file, if no trigger has a limit
ACCEPTED_TOGETHER = 10_000  # messages in one disposition, during which a broker does nothing else for a connection
#: A broker that answers a drain may have to write thousands of outcomes first. One that never answers has sent all its messages.
#: Every `LOOK_S` seconds the drain ends if a message came, and is repeated later.
DRAIN_S, LOOK_S = 30.0, 1.0
SILENCE_S = 5.0  # without a message, after which a broker that cannot drain counts as empty
MOST_BREAKS = 2  # connections lost in consecutive drains, after which the broker is no longer asked to drain
FLUSH_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0  # between two attempts to reach a lost broker
#: A batch is closed after such a time without a message, or after such a time in total.
QUIET_S, GATHER_S = 0.02, 0.5
#: From this number on, a pause of `QUIET_S` closes a batch. Artemis sends 20 MiB of a paged queue, and then waits until they are
#: accepted.
FEW_ROWS = 5000
_POLL_S, _DONE_POLL_S = 1.0, 0.05


class Gather(NamedTuple):
    """A batch is closed after `quiet_s` without a message, or after `most_s`."""

    quiet_s: float
    most_s: float


class _Drained(NamedTuple):
    """An empty drain: messages received and calls of `accept` sent before it, and the time of its end."""

    received: int
    settled: int
    at: float


class Intake:
    """Receiver of messages from `queues`, after `start`. The planner calls from two threads, one at a time."""

    def __init__(self, access: BrokerAccess, queues: Sequence[str], *, readers: int = 1, selector: str | None = None) -> None:
        self._access, self._queues, self._readers, self._selector = access, queues, readers, selector
        self._came = threading.Condition()
        self._groups: deque[ArrivalGroup] = deque()
        self.waiting = self._octets = 0  # messages and octets that are not in a batch yet
        self._wanted = (0, 0)
        self.enough = threading.Event()  # for a file, or to end a wait for one
        self._requests: deque[Callable[[], None]] = deque()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._wake_read = self._wake_write = -1
        self._waking = threading.Lock()  # the number of a closed pipe may belong to another file
        self._connection: Any = None
        self._links: list[tuple[int, Any]] = []
        self._number = 0
        self.away: BaseException | None = None  # why the broker cannot be reached
        self._final = False  # the thread has ended with this error
        self._refused_at: float | None = None  # since when the broker answers only with refusals
        self._pause = FIRST_PAUSE_S
        self._connected_at = 0.0
        self._useful = False  # a message was accepted over the connection
        self._mean = 0.0
        self._asked = self._settled = 0  # calls of `accept`, and those of them that were sent
        self._drained: _Drained | None = None
        self._drain_asked = False
        self._drains, self._breaks = True, 0
        self.received = [0] * len(queues)
        self.lost = 0

    # --- For the planner -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Raises PenstockError if the first attempt fails."""
        if self._thread is not None:
            return
        with executor_modules.own_errors():
            self._connect()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        # It must not keep the planner of a dead driver alive.
        self._thread = threading.Thread(target=self._run, name="penstock-intake", daemon=True)
        self._thread.start()

    def take(self, most_rows: int, most_bytes: int, wait_s: float, gather: Gather, *, alone: bool = True) -> list[ArrivalGroup]:
        """Take messages in order. Wait at most `wait_s` for the first, and by `gather` for more.

        A larger message is taken alone, or left with `alone=False`. Raises the broker's refusal after `RECONNECT_S`, and
        immediately the error that ended the thread. A broker that is away raises nothing.
        """
        with self._came:
            self._came.wait_for(lambda: bool(self._groups) or self._final, wait_s)
            if not self._groups:
                self._check()
            self._gather(most_rows, most_bytes, gather)
            taken: list[ArrivalGroup] = []
            rows, octets = most_rows, most_bytes
            while self._groups and rows > 0:
                group = self._groups[0]
                count = group.upto(rows, octets, alone=alone and not taken)
                if count < len(group.ids):
                    if count:
                        self._groups[0] = group.slice(count, len(group.ids) - count)
                        taken.append(group.slice(0, count))
                    break
                taken.append(self._groups.popleft())
                rows, octets = rows - count, octets - group.octets
            self.waiting -= sum(len(group.ids) for group in taken)
            self._octets -= sum(group.octets for group in taken)
            self._update_enough()
        if taken:
            self._wake()
        return taken

    def _gather(self, most_rows: int, most_bytes: int, gather: Gather) -> None:
        """A batch of few rows costs Spark as much as one of many."""
        until = time.monotonic() + gather.most_s
        most_rows, most_bytes = min(most_rows, WAITING_ROWS), min(most_bytes, WAITING_BYTES)  # the intake then receives no more
        self._wanted = most_rows, most_bytes
        while self._groups and self.waiting < most_rows and self._octets < most_bytes and time.monotonic() < until:
            before = self.waiting
            self._came.wait(gather.quiet_s if before < FEW_ROWS else QUIET_S)
            if self.waiting == before:
                return

    def accept(self, settled: Sequence[DeliveryIds]) -> None:
        """Deliveries of an earlier connection are ignored: their messages come again."""
        if settled:
            self._asked += 1
            self._ask(lambda: self._accept(settled))

    def holds(self, settled: DeliveryIds) -> bool:
        return settled.connection == self._number and self.away is None

    def flush(self) -> None:
        """Return when all earlier requests are written to the broker, or it is away."""
        done = threading.Event()
        if self._thread is not None:
            self._ask(done.set)
            self._wait(done, FLUSH_S)

    def _wait(self, done: threading.Event, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not done.wait(_DONE_POLL_S) and self.away is None and time.monotonic() < until:
            pass

    def drain(self) -> bool:
        """Let the broker send its remaining messages. Return when it has, or a message came, or after `DRAIN_S`.

        False if it is away. Raises as `take`. RabbitMQ 3 would end the session (rabbitmq-server#7119), so it is not asked, nor is
        a broker that broke off `MOST_BREAKS` times. Such a broker counts as empty after `SILENCE_S` without a message.
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
        """`silent_s` shows the answer."""
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
        """Time since an empty drain; None if messages came or were accepted since."""
        drained = self._drained
        if drained is None or (drained.received, drained.settled) != (sum(self.received), self._asked):
            return None
        return time.monotonic() - drained.at

    def close(self) -> None:
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
        away, refused_at = self.away, self._refused_at
        # A starting broker may refuse links for a moment.
        refused = refused_at is not None and time.monotonic() - refused_at > RECONNECT_S
        if away is not None and (self._final or refused):
            raise away

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
                        raise
                    self._lose(error)
            with suppress(PenstockError), executor_modules.own_errors():
                while self._requests and self._connection is not None:
                    self._requests.popleft()()
        except BaseException as error:  # without an error the query would wait forever
            self._final = True
            self._drop(error)
        finally:
            self._disconnect()

    def _step(self) -> None:
        while self._requests:
            self._requests.popleft()()
        if self.waiting >= WAITING_ROWS or self._octets >= WAITING_BYTES:
            self._connection.idle()
        elif self._receive_all():
            return
        self._sleep()

    def _receive_all(self) -> int:
        return sum(self._receive(number, link) for number, link in self._links)

    def _receive(self, number: int, link: Any) -> int:
        blocks = link.receive_blocks(timeout_s=0.0)
        if not blocks:
            return 0
        groups = list(grouped(number, time.time_ns() // 1000, self._number, blocks))
        count, octets = sum(len(group.ids) for group in groups), sum(group.octets for group in groups)
        with self._came:
            first = not self._groups
            add(self._groups, groups)
            self.waiting += count
            self._octets += octets
            self.received[number] += count
            # Hundreds of wake-ups a second would take as long as the messages.
            if first or self.waiting >= self._wanted[0] or self._octets >= self._wanted[1]:
                self._came.notify_all()
            self._update_enough()
        self._mean = max(octets / count, 0.9 * self._mean)
        link.credit = max(1, min(MOST_CREDIT, int(WAITING_BYTES / (self._mean + 1) / len(self._links))))
        return count

    def _update_enough(self) -> None:
        enough = self.waiting >= FILE_ROWS or self._octets >= FILE_BYTES
        (self.enough.set if enough else self.enough.clear)()

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
        """A missing answer counts as one if the planner has `waited`."""
        if self.silent_s is None:
            before = sum(self.received)
            answered = self._drain_links()
            if (answered or waited) and sum(self.received) == before:
                self._drained = _Drained(before, self._settled, time.monotonic())
        done.set()

    def _drain_links(self) -> bool:
        """True if all links have answered; False if a message came, or the time is over."""
        answered = True
        until = time.monotonic() + (DRAIN_S if self._drains else SILENCE_S)
        if self._drains:
            answered = all(self._drain_link(link, until) for _, link in self._links)
            self._breaks = 0
        else:
            while not self._stopped.is_set() and time.monotonic() < until and not self._receive_all():
                self._sleep(until - time.monotonic())
        self._receive_all()
        return answered

    def _drain_link(self, link: Any, until: float) -> bool:
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
                if self._receive_all() or self._stopped.is_set() or time.monotonic() >= until:
                    return False

    def _connect(self) -> None:
        connection = self._access.amqp(ANSWER_S)
        try:
            self._links = _attached(connection, self._queues, self._readers, self._selector)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._drains = self._drains and not connection.is_rabbitmq_3
        self._number += 1
        if self.away is not None:
            log.info("the broker at %s answers again", self._access.url)
        self.away, self._useful, self._connected_at = None, False, time.monotonic()

    def _lose(self, error: PenstockError) -> None:
        """Drop messages that the broker will send again, and pause."""
        if self.away is None:
            log.warning("the links to %s are lost, and will be taken up again: %s", self._access.url, error)
            self.lost += 1
            # Otherwise the broker may refuse again and again.
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
        self.away, self._drained = error, None
        with self._came:
            self._groups.clear()
            self.waiting = self._octets = 0
            self._update_enough()
            self._came.notify_all()
        self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()


def _attached(connection: Any, queues: Sequence[str], readers: int, selector: str | None) -> list[tuple[int, Any]]:
    """Return links with the index of their queue. Raises the broker's refusal."""
    if selector is not None and connection.is_rabbitmq_3:  # it would send messages before it has answered
        raise _without_selectors(connection)
    links = []
    for number, queue in enumerate(queues):
        for _ in range(readers):
            receiver = connection.block_receiver(queue, FIRST_CREDIT, selector=selector)
            if selector is not None and not receiver.selects:
                raise _without_selectors(connection)
            links.append((number, receiver))
    return links


def _without_selectors(connection: Any) -> InvalidOption:
    return InvalidOption(
        f"option selector: the broker at {connection.name} has no selectors (it does not confirm the filter"
        " apache.org:selector-filter:string, or is RabbitMQ 3), so it would send every message: leave the option out,"
        " filter rows"
    )
