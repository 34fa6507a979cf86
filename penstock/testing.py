"""A broker in the process of a test. It leaves nothing behind.

    # conftest.py
    pytest_plugins = ["penstock.testing"]

    # test_shop.py
    from shop import handle                                 # made by @penstock.worker("orders")

    def test_an_order_is_shipped(penstock_broker):
        penstock_broker.declare("orders")
        with penstock_broker.connect() as connection:
            connection.send("orders", json={"id": 7})

            penstock_broker.work(handle)                    # until the queue is empty
            assert penstock_broker.counts("orders").settled == 1

    def test_an_order_waits_an_hour(penstock_broker):
        penstock_broker.declare("orders")
        with penstock_broker.connect() as connection:
            connection.send("orders", json={"id": 7}, delay=3600)
            penstock_broker.advance(3600)                   # without waiting
            assert len(connection.peek("orders")) == 1

It is the whole broker on free ports of this machine, without users, archive and HTTP. Needs `pip install 'penstock-mq[broker]'`.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.broker_core.client.app import Connection, Worker
from penstock.broker_core.client.app.opening import Opener
from penstock.broker_core.client.app.servers import Environment
from penstock.broker_core.client.durations import Duration, milliseconds
from penstock.broker_core.client.flight import Client
from penstock.broker_core.client.public import Public
from penstock.broker_core.errors import PeerError
from penstock.extras import require

if TYPE_CHECKING:
    from penstock.broker_core.settings.keys import Settings

#: For a start, a stop, and a worker to empty a queue.
LIMIT_S = 60.0


class MessageCounts(NamedTuple):
    """Messages of a queue by state.

    Attributes:
        available: Messages that wait.
        acquired: Messages that a consumer holds.
        delayed: Messages that wait for their time.
        settled: Messages that have ended.
        dead_lettered: Dead letters of this queue, in any queue.
    """

    available: int
    acquired: int
    delayed: int
    settled: int
    dead_lettered: int


class InProcessBroker(Public):
    """A broker in this process, from construction (or `with`) until `close`.

    Args:
        **options: Settings by the names in `conf/penstock.toml`.

    Raises:
        InvalidRequest: An unknown setting, or an invalid value.
        PeerError: The broker has not started in time.

    Example:
        with InProcessBroker() as broker:
            broker.declare("orders")
            with broker.connect() as connection:
                connection.send("orders", json={"id": 7})
    """

    def __init__(self, **options: Any) -> None:
        require("numpy", "penstock.testing")
        from penstock.broker_core.settings.keys import Settings

        self._folder = tempfile.mkdtemp(prefix="penstock-testing-")
        quiet = {"fsync": "never", "archive": "off", "flight_port": 0, "amqp_port": 0, "http_port": None}
        try:
            settings = Settings(**{**quiet, **options, "data": Path(self._folder)})
        except BaseException:
            shutil.rmtree(self._folder)
            raise
        from penstock.broker_core.service.clock import AdvancedClock

        self._clock = AdvancedClock()
        self._stop = threading.Event()
        self._begun = threading.Event()
        self._addresses: dict[str, Any] = {}
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, args=(settings,), name="penstock-testing", daemon=True)
        self._thread.start()
        self._begun.wait(LIMIT_S)
        if not self._addresses:
            self.close()
            raise self._failure or PeerError(f"the broker has not begun within {LIMIT_S:g} s")

    def _serve(self, settings: Settings) -> None:
        from penstock.broker_core.server.serve import serve

        def ready(addresses: dict[str, Any]) -> None:
            self._addresses = addresses
            self._begun.set()

        try:
            serve(settings, ready, self._stop, clock=self._clock)
        except BaseException as error:
            self._failure = error
        finally:
            self._begun.set()

    @property
    def amqp_url(self) -> str:
        """Address for AMQP clients."""
        return str(self._addresses["amqp"])

    @property
    def url(self) -> str:
        """Address for Spark's option `url`."""
        return str(self._addresses["flight"])

    def declare(self, queue: str, **options: Any) -> None:
        """Create a queue. Does nothing if it exists with the same options.

        Args:
            queue: Its name.
            **options: Options of the queue, by the names in docs/queues.md.

        Raises:
            PenstockError: The broker refuses: an invalid option, or a queue that exists with other options.
        """
        self._call("queue.declare", queue=queue, options=options)

    def connect(self) -> Connection:
        """Open a connection, as `penstock.connect`.

        Returns:
            An open connection; close it, or use `with`.
        """
        return Opener(Environment(wall=self._time)).connect(self.amqp_url)

    def advance(self, duration: Duration) -> None:
        """Let time pass for the broker's messages, without waiting: delays, `ttl`, locks, leases and transactions.

        Time-outs of connections do not change. A message that is due is available when this returns.

        Args:
            duration: Seconds, or a `timedelta`.

        Raises:
            InvalidRequest: A negative time, or more than ten years.

        Example:
            connection.send("orders", "later", delay=timedelta(hours=1))
            penstock_broker.advance(timedelta(hours=1))
        """
        self._clock.advance(milliseconds("duration", duration) * 1000)

    def _time(self) -> float:
        return time.time() + self._clock.added_us / 1e6

    def counts(self, queue: str) -> MessageCounts:
        """Return the number of messages of a queue, by state.

        Args:
            queue: Its name.

        Raises:
            NotFound: The queue does not exist.
        """
        stat = self._call("queue.stat", queue=queue)
        return MessageCounts(stat["available"], stat["acquired"], stat["delayed"], stat["archived"], stat["deadLettered"])

    def work(self, worker: Worker, *, done: Callable[[], bool] | None = None) -> None:
        """Run a worker until no message of its queue waits, is held or is delayed, or until `done()`.

        Args:
            worker: Function made by `penstock.worker`.
            done: Called repeatedly; ends the work when it returns true.

        Raises:
            TimeoutError: The queue is not empty after `LIMIT_S` seconds.
            PenstockError: The error that ended the worker.
        """
        stop, ended = threading.Event(), threading.Event()
        failures: list[BaseException] = []

        def run(connection: Connection) -> None:
            try:
                worker.run(connection, stop)
            except BaseException as error:
                failures.append(error)
            finally:
                ended.set()

        with self.connect() as connection:
            thread = threading.Thread(target=run, args=(connection,), daemon=True)
            thread.start()
            met = self._wait(ended, done or (lambda: not any(self.counts(worker.queue)[:3])))
            stop.set()
            thread.join(LIMIT_S)
        if failures:
            raise failures[0]
        if not met:
            raise TimeoutError(f"after {LIMIT_S:g} s {worker.queue!r} still has {self.counts(worker.queue)}")

    def _wait(self, ended: threading.Event, done: Callable[[], bool]) -> bool:
        for _ in range(int(LIMIT_S / 0.02)):
            if done():
                return True
            if ended.wait(0.02):
                return False
        return False

    def _call(self, action: str, **fields: Any) -> dict[str, Any]:
        with Client(self.url) as client:
            return client.call(action, **fields)

    def close(self) -> None:
        """Stop the broker, and remove its directory."""
        self._stop.set()
        self._thread.join(LIMIT_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> InProcessBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


try:
    import pytest
except ImportError:
    pass
else:

    @pytest.fixture
    def penstock_broker() -> Iterator[InProcessBroker]:
        """Run a broker for one test.

        Yields:
            An `InProcessBroker`, which ends with the test.
        """
        with InProcessBroker() as broker:
            yield broker
