"""One broker of several: a consumer, and a thread that makes its calls. So a slow broker delays only calls that need it."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from ...broker_core.errors import PenstockError
from ..identity import Identity
from ..options import Options
from ..stream.credit import Credit
from ..stream.protocols import BrokerConsumer

AGAIN_S = 5.0  # until a broker that was left out is tried again

_Result = TypeVar("_Result")


class Poll(NamedTuple):
    """An `advance` that is under way, the offset at which it began, and its credit."""

    start: Mapping[str, Any]
    answer: Future[dict[str, Any]]
    credit: Credit


class Member:
    """Broker of a query. Calls return futures, whose errors name the url. `identity`: once it has answered."""

    def __init__(self, options: Options, make: Callable[[Options], BrokerConsumer]) -> None:
        self.url = options["url"]
        self.identity: Identity | None = None
        self.settled: Mapping[str, Any] | None = None  # an offset
        self.poll: Poll | None = None
        self.left_out = False  # of an `availableNow` run, since the end of its queue is unknown
        self.away_since: float | None = None
        self._options, self._make = options, make
        self._again = 0.0
        self._last: Future[Any] | None = None
        self._consumer: BrokerConsumer | None = None
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[BrokerConsumer], Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def id(self) -> str:
        assert self.identity is not None
        return self.identity.broker

    @property
    def may_be_asked(self) -> bool:
        """True if no call is under way, and the broker is present or due for another attempt."""
        free = self._last is None or self._last.done()
        return free and self.poll is None and not self.left_out and (self.away_since is None or time.monotonic() >= self._again)

    @property
    def is_busy(self) -> bool:
        return self._consumer is not None and self._consumer.is_busy

    def ask(self, call: Callable[[BrokerConsumer], _Result]) -> Future[_Result]:
        if self._thread is None:
            # A daemon: a call without an answer must not keep the process alive.
            self._thread = threading.Thread(target=self._run, name="penstock-broker", daemon=True)
            self._thread.start()
        answer: Future[_Result] = Future()
        self._calls.put((answer, call))
        self._last = answer
        return answer

    def counts(self) -> dict[str, Any]:
        return {} if self._consumer is None else self._consumer.counts()

    def lost(self) -> bool:
        """Return True if it was present before."""
        is_new, now = self.away_since is None, time.monotonic()
        self.away_since, self._again = now if is_new else self.away_since, now + AGAIN_S
        return is_new

    def returned(self) -> float | None:
        since, self.away_since = self.away_since, None
        return None if since is None else time.monotonic() - since

    def close(self) -> None:
        if self._thread is not None:
            self.ask(lambda consumer: consumer.close())
            self._calls.put(None)

    def _run(self) -> None:
        while True:
            asked = self._calls.get()
            if asked is None:
                return
            answer, call = asked
            try:
                if self._consumer is None:
                    self._consumer = self._make(self._options)
                answer.set_result(call(self._consumer))
            except PenstockError as error:
                answer.set_exception(_named(error, self.url))
            except BaseException as error:
                answer.set_exception(error)
            del asked, answer, call


def _named(error: PenstockError, url: str) -> PenstockError:
    if url in str(error):
        return error
    named = copy.copy(error)
    named.args = (f"{url}: {error}",)
    named.__cause__ = error
    return named
