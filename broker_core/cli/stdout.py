"""Messages on stdout: into a file or onto a terminal at once, into a pipe line by line, each accepted once it is read."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .amqp_calls import TURN_S, Stop
from .main import Failed

if TYPE_CHECKING:
    from ..amqp.deliveries import Delivery

#: Seconds in which a reader takes more of a line that is begun, when it is time to stop.
FINISH_S = 3.0
_ONE_PAGE = 4096  # octets of a pipe of one buffer, which takes more only once it is empty


class Lines:
    """Lines on stdout, each made of one delivery. `idle` is called now and then while the reader of a pipe is waited for."""

    def __init__(self, line: Callable[[Delivery], bytes], stop: Stop, idle: Callable[[], object]) -> None:
        self._line, self._stop, self._idle = line, stop, idle
        self._out = sys.stdout.fileno()
        self.pipe = stat.S_ISFIFO(os.fstat(self._out).st_mode)
        self._room = select.poll()
        self._room.register(self._out, select.POLLOUT)
        self._until: float | None = None  # when what is waited for is given up, once it is time to stop
        self.at_once = 1 if self.pipe else sys.maxsize  # messages to write before they are accepted
        if self.pipe and hasattr(fcntl, "F_SETPIPE_SZ"):  # elsewhere a pipe takes more than is read
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._out, fcntl.F_SETPIPE_SZ, _ONE_PAGE)

    def write(self, deliveries: Sequence[Delivery]) -> int:
        """Write lines, at most `at_once`; return how many were written as a whole, into a pipe: were read."""
        sys.stdout.flush()
        try:
            whole = self._put(b"".join(map(self._line, deliveries)))
        except BrokenPipeError:
            return 0
        except OSError as error:
            text = f"stdout cannot be written to: {error.strerror}; what is not accepted yet goes back to its place"
            raise Failed(text) from error
        return len(deliveries) if whole and (not self.pipe or self._read()) else 0

    def _put(self, data: bytes) -> bool:
        """Write all of it, into a pipe as much at a time as it takes without blocking. False: it was time to stop before.

        What is begun is finished then, if somebody reads: else a reader has a part of a line that comes again as a whole."""
        rest = memoryview(data)
        at_once = select.PIPE_BUF if self.pipe else len(data)  # what a pipe takes that is ready
        self._until = None
        while rest:
            if self.pipe and not self._wait(FINISH_S if len(rest) < len(data) else 0.0):
                return False
            rest = rest[os.write(self._out, rest[:at_once]) :]
        return True

    def _read(self) -> bool:
        """Wait until what was written is read, or until it is time to stop: then it is still to be read. False: nobody will."""
        self._until = None
        found = self._wait()
        return not found or any(event & select.POLLOUT for _, event in found)

    def _wait(self, more_s: float = 0.0) -> list[tuple[int, int]]:
        """Return what there is to say of the pipe once it takes something or has no reader; nothing when it has been time to stop
        for `more_s` meanwhile."""
        while not (found := self._room.poll(TURN_S * 1000)):
            if self._stop.asked:
                self._until = time.monotonic() + more_s if self._until is None else self._until
                if time.monotonic() >= self._until:
                    break
            self._idle()
        return found
