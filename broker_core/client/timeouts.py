"""An end for every wait at a silent broker: gRPC has a deadline for a whole call, but not for a step of a stream.

A silent network sends no error. So steps run in a thread, and the caller stops waiting in time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from queue import SimpleQueue
from typing import Any, TypeVar

from .. import errors

#: Seconds of silence during a call until the client gives up.
SILENCE_S = 45.0
#: Seconds until a waiting broker sends a sign of life.
ALIVE_S = 10.0
#: A ping, at an interval that gRPC servers permit (five minutes), ends a dead connection, and the thread that is blocked there.
#: Unacknowledged data ends it sooner.
CHANNEL = [("grpc.keepalive_time_ms", 310_000), ("grpc.keepalive_timeout_ms", int(SILENCE_S * 1000))]

_Result = TypeVar("_Result")


def silent(url: str, seconds: float) -> errors.PeerError:
    return errors.Unreachable(
        f"the broker at {url} has sent nothing for {seconds:g} s: the network is silent, or the broker stands still. Try again "
        "when it can be reached; sent messages may have been stored"
    )


class Steps:
    """The steps of one stream, one after another. `close` ends its thread after the running step."""

    def __init__(self, url: str, seconds: float) -> None:
        self._url, self._seconds = url, seconds
        self._asked: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._begun = False
        self.stuck = False

    def take(self, step: Callable[[], _Result]) -> _Result:
        """Return a step's result, or raise its error.

        Raises PeerError when it takes too long. Then no other step is possible.
        """
        asked = self.begin(step)
        self.wait(asked)
        return asked.result()

    def begin(self, step: Callable[[], _Result]) -> Future[_Result]:
        if self.stuck:
            raise silent(self._url, self._seconds)
        if not self._begun:
            self._begun = True
            # A daemon does not keep the process alive.
            threading.Thread(target=self._run, name="penstock-call", daemon=True).start()
        asked: Future[_Result] = Future()
        self._asked.put((step, asked))
        return asked

    def wait(self, *begun: Future[Any]) -> None:
        if not wait(begun, self._seconds, FIRST_COMPLETED).done:
            self.stuck = True
            raise silent(self._url, self._seconds)

    def close(self) -> None:
        self._asked.put(None)

    def _run(self) -> None:
        while True:
            asked = self._asked.get()
            if asked is None:
                return
            step, answer = asked
            try:
                answer.set_result(step())
            except BaseException as error:
                answer.set_exception(error)
            del asked, step, answer
