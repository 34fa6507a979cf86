"""Workers: a function handles the messages of a queue, several at a time, until it is stopped.

`penstock work module:handle` and `handle.run(connection, stop)` run it. A message is accepted when the function returns. If it
raises, the message comes again after a time that doubles with each attempt, and is rejected after `retries` repetitions, with the
error as the reason. A function may also settle the message itself: `message.reject("why")`.

Each of `concurrency` threads has a session and takes one message after another. If a thread is busy for LOOK_S while another is
idle, the messages that wait at it return to the broker. An `async` function runs on an event loop of its thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ... import errors
from ..durations import Duration, seconds
from ..public import Public
from .connection import Connection
from .consumer import Consumer
from .modes import AcknowledgeMode
from .received import ReceivedMessage
from .retries import Retries

_LOG = logging.getLogger("penstock.worker")

Handler = Callable[[ReceivedMessage], Any]

#: Seconds between two checks of `stop`, and for threads that need help.
LOOK_S = 0.2
#: Messages that wait at a thread while all threads are busy.
PREFETCH = 2
#: Seconds that running handlers have after a stop. Then their messages return.
GRACE_S = 30.0


class Counts(NamedTuple):
    """Messages of a worker since its start, by outcome. `other`: settled by the handler itself, or revoked by the broker.
    `running`: in work now. `seconds`: time in handlers, all threads together."""

    accepted: int = 0
    retried: int = 0
    rejected: int = 0
    other: int = 0
    running: int = 0
    seconds: float = 0.0


class _Lane:
    """One thread of a worker. `begun`: when its message began, on the monotonic clock; None while idle."""

    def __init__(self) -> None:
        self.consumer: Consumer | None = None
        self.begun: float | None = None

    def relieve(self) -> None:
        begun, consumer = self.begun, self.consumer
        if begun is not None and consumer is not None and time.monotonic() - begun >= LOOK_S:
            consumer.give_back()


@dataclass(eq=False)
class Worker(Public):
    """A handler and its queue, made by `worker`.

    Attributes:
        handle: Function that receives each message.
        queue: Name of the queue.
        concurrency: As of `worker`.
        retries: As of `worker`.
        retry_after: As of `worker`.
        max_retry_after: As of `worker`.
        selector: As of `worker`.
    """

    _attributes = "handle queue"

    handle: Handler
    queue: str
    concurrency: int = 1
    retries: int | None = None
    retry_after: Duration = 1.0
    max_retry_after: Duration = 60.0
    selector: str | None = None
    _retries: Retries = field(init=False)
    _counts: Counts = field(default_factory=Counts, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise errors.InvalidRequest(f"concurrency is 1 or more, not {self.concurrency}")
        if self.retries is not None and self.retries < 0:
            raise errors.InvalidRequest(f"retries is 0 or more, or None for no limit, not {self.retries}")
        first_s, most_s = seconds("retry_after", self.retry_after), seconds("max_retry_after", self.max_retry_after)
        self._retries = Retries(first_s, most_s)
        self._retries.check()

    def __call__(self, message: Any) -> Any:
        return self.handle(message)

    @property
    def counts(self) -> Counts:
        """Counts of all threads together."""
        with self._lock:
            return self._counts

    def run(self, connection: Connection, stop: threading.Event, grace_s: float = GRACE_S) -> bool:
        """Work until `stop` is set, or the queue becomes unusable.

        Args:
            connection: Connection to the broker, which stays open.
            stop: Ends the work. No message is taken after it is set.
            grace_s: Seconds that running handlers then have.

        Returns:
            Whether every running handler has ended in that time.

        Raises:
            PenstockError: The queue cannot be used, or the connection is lost permanently.
        """
        return run_all([self], connection, stop, grace_s)

    def _work(
        self, lane: _Lane, others: Sequence[_Lane], connection: Connection, stop: threading.Event, failures: list[BaseException]
    ) -> None:
        loop = asyncio.new_event_loop()
        try:
            with connection.session(AcknowledgeMode.INDIVIDUAL) as session:
                lane.consumer = session.consumer(self.queue, prefetch=PREFETCH, selector=self.selector)
                while not stop.is_set():
                    message = lane.consumer.receive(LOOK_S)
                    if message is None:
                        for busy in others:
                            busy.relieve()
                        continue
                    lane.begun = time.monotonic()
                    self._handle_one(message, loop)
                    lane.begun = None
        except BaseException as error:
            failures.append(error)
            stop.set()  # one thread's error ends all, so that the process can be restarted
        finally:
            loop.close()

    def _handle_one(self, message: ReceivedMessage, loop: asyncio.AbstractEventLoop) -> None:
        began = time.monotonic()
        self._count(running=1)
        try:
            result = self.handle(message)
            if inspect.isawaitable(result):
                loop.run_until_complete(result)
        except Exception as error:
            counter = self._failed(message, error)
        else:
            counter = self._settle(message, message.accept, "accepted")
        self._count(running=-1, seconds=time.monotonic() - began, **{counter: 1})

    def _failed(self, message: ReceivedMessage, error: Exception) -> str:
        attempt = message.delivery_count + 1
        reason = f"{type(error).__name__}: {error}"
        if self.retries is not None and attempt > self.retries:
            _LOG.error("%r is rejected after %d attempts: %s", message, attempt, reason, exc_info=error)
            return self._settle(message, lambda: message.reject(reason), "rejected")
        after = self._retries.after(attempt)
        _LOG.warning("%r failed, attempt %d; it comes again in %g s at the earliest: %s", message, attempt, after, reason)
        return self._settle(message, lambda: message.retry(after), "retried")

    def _settle(self, message: ReceivedMessage, settle: Callable[[], None], counter: str) -> str:
        if message.outcome is not None:
            return "other"
        try:
            settle()
        except errors.PeerError as error:  # the broker delivers it again
            _LOG.warning("%s", error)
            return "other"
        return counter

    def _count(self, **more: float) -> None:
        with self._lock:
            now = self._counts._asdict()
            self._counts = Counts(**{name: value + more.get(name, 0) for name, value in now.items()})


def worker(
    queue: str,
    *,
    concurrency: int = 1,
    retries: int | None = None,
    retry_after: Duration = 1.0,
    max_retry_after: Duration = 60.0,
    selector: str | None = None,
) -> Callable[[Handler], Worker]:
    """Return a decorator that makes a function the handler of a queue's messages.

    Args:
        queue: Name of the queue.
        concurrency: Number of messages in work, each on its own thread.
        retries: Further attempts after the first failure. None: the queue's `maxAttempts`.
        retry_after: Seconds, or a `timedelta`, from the first failure to the next attempt; doubled after each.
        max_retry_after: Limit of that time.
        selector: Only messages that match.

    Raises:
        InvalidRequest: An invalid value.

    Example:
        @penstock.worker("orders", concurrency=4, retries=5)
        def handle(message: penstock.ReceivedMessage) -> None:
            print(message.json())
    """

    def made(handle: Handler) -> Worker:
        return Worker(handle, queue, concurrency, retries, retry_after, max_retry_after, selector)

    return made


def run_all(workers: Sequence[Worker], connection: Connection, stop: threading.Event, grace_s: float = GRACE_S) -> bool:
    """Run workers on one connection until `stop` is set. Returns whether all handlers have ended in `grace_s` seconds."""
    failures: list[BaseException] = []
    threads = []
    for worker in workers:
        lanes = [_Lane() for _ in range(worker.concurrency)]
        for number, lane in enumerate(lanes):
            arguments = (lane, [sibling for sibling in lanes if sibling is not lane], connection, stop, failures)
            name = f"penstock-worker-{number}"
            threads.append(threading.Thread(target=worker._work, args=arguments, name=name, daemon=True))
    for thread in threads:
        thread.start()
    stop.wait()
    deadline = time.monotonic() + grace_s
    for thread in threads:
        thread.join(min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX))
    if failures:
        raise failures[0]
    return not any(thread.is_alive() for thread in threads)
