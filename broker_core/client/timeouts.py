"""An end for every wait at a broker that says nothing more: gRPC has a deadline for a whole call, but none for a step of one.

A network that has gone silent (a pulled cable, a firewall that forgot the connection, a host that was suspended) sends no error:
a read of it would wait for ever. So each blocking step of a stream has a thread to block, and who waits for it gives up in time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from queue import SimpleQueue
from typing import Any, TypeVar

from .. import errors

#: Seconds of silence in the midst of a call after which the broker is given up. The broker says something every `ALIVE_S`.
SILENCE_S = 45.0
#: Seconds after which a broker that has nothing to say yet says so: several times in `SILENCE_S`.
ALIVE_S = 10.0
#: Options of a gRPC channel. A broker that is given up leaves a thread behind that blocks: a ping at an interval that gRPC
#: servers permit (five minutes) finds the connection dead and ends it. What was sent and never acknowledged ends it sooner.
CHANNEL = [("grpc.keepalive_time_ms", 310_000), ("grpc.keepalive_timeout_ms", int(SILENCE_S * 1000))]

_Result = TypeVar("_Result")


def silent(url: str, seconds: float) -> errors.PeerError:
    """Make the error for a broker that has said nothing for so many seconds."""
    return errors.Unreachable(
        f"the broker at {url} has said nothing for {seconds:g} s: the network is silent, or the broker stands still. Try again "
        "when it can be reached; what was sent may have been stored"
    )


class Steps:
    """The steps of one stream, one after another. Close it: then its thread ends, at once or when its last step does."""

    def __init__(self, url: str, seconds: float) -> None:
        self._url, self._seconds = url, seconds
        self._asked: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._begun = False
        self.stuck = False

    def take(self, step: Callable[[], _Result]) -> _Result:
        """Take a step in the other thread; return what it returns, or raise what it raises.

        Raises PeerError when it takes too long; then nothing else can be asked."""
        asked = self.begin(step)
        self.wait(asked)
        return asked.result()

    def begin(self, step: Callable[[], _Result]) -> Future[_Result]:
        """Let the other thread take a step, and do not wait for it."""
        if self.stuck:
            raise silent(self._url, self._seconds)
        if not self._begun:
            self._begun = True
            # A daemon: one that is stuck keeps no process from its end.
            threading.Thread(target=self._run, name="penstock-call", daemon=True).start()
        asked: Future[_Result] = Future()
        self._asked.put((step, asked))
        return asked

    def wait(self, *begun: Future[Any]) -> None:
        """Wait until one of these steps is over. Raises PeerError as `take`."""
        if not wait(begun, self._seconds, FIRST_COMPLETED).done:
            self.stuck = True
            raise silent(self._url, self._seconds)

    def close(self) -> None:
        """End the thread, after the step that is under way."""
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
