"""Messages on stdout: for a pipe one by one, each accepted after it is read."""

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

#: After a stop, for the reader of a begun line.
FINISH_S = 3.0
_ONE_PAGE = 4096  # of a pipe with one buffer, which accepts more only when it is empty


class Lines:
    """`idle` is called regularly while the reader of a pipe is slow."""

    def __init__(self, line: Callable[[Delivery], bytes], stop: Stop, idle: Callable[[], object]) -> None:
        self._line, self._stop, self._idle = line, stop, idle
        self._out = sys.stdout.fileno()
        self.pipe = stat.S_ISFIFO(os.fstat(self._out).st_mode)
        self._room = select.poll()
        self._room.register(self._out, select.POLLOUT)
        self._until: float | None = None  # end of the wait after a stop
        self.batch = 1 if self.pipe else sys.maxsize  # messages of one write
        if self.pipe and hasattr(fcntl, "F_SETPIPE_SZ"):  # elsewhere a pipe accepts more than is read
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._out, fcntl.F_SETPIPE_SZ, _ONE_PAGE)

    def write(self, deliveries: Sequence[Delivery]) -> int:
        """Return the number of written lines; for a pipe, of read lines."""
        sys.stdout.flush()
        try:
            whole = self._put(b"".join(map(self._line, deliveries)))
        except BrokenPipeError:
            return 0
        except OSError as error:
            text = f"stdout cannot be written to: {error.strerror}; unaccepted messages return to the queue"
            raise Failed(text) from error
        return len(deliveries) if whole and (not self.pipe or self._read()) else 0

    def _put(self, data: bytes) -> bool:
        """Return False after a stop. A begun line is finished if the reader continues: otherwise a line of which it has a part is
        delivered again."""
        rest = memoryview(data)
        size = select.PIPE_BUF if self.pipe else len(data)  # that a ready pipe accepts
        self._until = None
        while rest:
            if self.pipe and not self._wait(FINISH_S if len(rest) < len(data) else 0.0):
                return False
            rest = rest[os.write(self._out, rest[:size]) :]
        return True

    def _read(self) -> bool:
        """Wait until the pipe is read, or a stop. Return False without a reader."""
        self._until = None
        events = self._wait()
        return not events or any(event & select.POLLOUT for _, event in events)

    def _wait(self, more_s: float = 0.0) -> list[tuple[int, int]]:
        """Wait until the pipe accepts bytes or has lost its reader. Return no event `more_s` seconds after a stop."""
        while not (events := self._room.poll(TURN_S * 1000)):
            if self._stop.asked:
                self._until = time.monotonic() + more_s if self._until is None else self._until
                if time.monotonic() >= self._until:
                    break
            self._idle()
        return events
