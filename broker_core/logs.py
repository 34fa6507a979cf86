"""The broker's log: lines of text or JSON.

Logging never blocks, because a pipe without a reader, or a full disk, would stop the broker. Lines beyond the limit of a queue
are dropped, and a later line reports their number.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from functools import partial
from typing import NamedTuple, TextIO

MAX_WAITING = 10_000  # lines
FLUSH_S = 2.0  # for the last lines of an ending process
#: Attributes of a record (logging's `extra`) that become fields of JSON. The text also contains them.
FIELDS = ("queue", "peer", "user", "alarm")
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_FORMAT = "PENSTOCK_LOG_FORMAT"  # environment variable for the processes of a broker


def begin(level: int = logging.INFO) -> None:
    """Log in the format of the broker that started this process, else as text."""
    logging.basicConfig(level=level, handlers=[LogHandler(sys.stderr)])
    use_format(os.environ.get(_FORMAT, "text"))


def use_format(name: str) -> None:
    """Also in processes that this one starts later."""
    os.environ[_FORMAT] = name
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonLines() if name == "json" else logging.Formatter(TEXT))


def counted(number: int, noun: str) -> str:
    """Format a number with its noun: `1 message`, `2,000 messages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def one_line(text: str, limit: int) -> str:
    """Cut a client's text, and remove line breaks, so that it cannot forge a log line."""
    return (text if text.isprintable() else ascii(text))[:limit]


class JsonLines(logging.Formatter):
    """Formats a record as JSON, with its time in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"time": moment, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        line |= {name: str(value) for name in FIELDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class LogHandler(logging.Handler):
    """Writes lines immediately if the stream accepts them, else in a thread. Other processes may write to the same pipe or
    terminal, so only a non-blocking write shows how much it accepts."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream.fileno()
        self._non_blocking: _NonBlockingStream | None = _without_blocking(self._stream)
        self._lines: deque[bytes] = deque()
        self._changed = threading.Condition(threading.Lock())
        self.dropped = 0  # lines
        self._reported = 0
        self._writing = False
        threading.Thread(target=self._write, name="penstock-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # a wrong logging call must not fail its caller
            line = f"a line of {record.name} cannot be written: {record.msg!r}"
        data = (line + "\n").encode(errors="backslashreplace")
        with self._changed:
            if not self._lines and not self._writing:
                data = data[self._write_immediately(data) :]
            if len(self._lines) >= MAX_WAITING:
                self.dropped += 1
            elif data:
                self._lines.append(data)
                self._changed.notify_all()

    def flush(self) -> None:
        """Wait for all lines, at most `FLUSH_S` seconds."""
        deadline = time.monotonic() + FLUSH_S
        with self._changed:
            while (self._lines or self._writing) and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)

    def close(self) -> None:
        """Leave later lines to the thread."""
        with self._changed:
            if self._non_blocking is not None:
                self._non_blocking.close()
            self._non_blocking = None
        super().close()

    def _write_immediately(self, data: bytes) -> int:
        """Return the number of written bytes. A pipe accepts up to `select.PIPE_BUF` bytes atomically."""
        if self._non_blocking is None or len(data) > select.PIPE_BUF:
            return 0
        try:
            return self._non_blocking.write(data)
        except BlockingIOError:
            return 0
        except OSError:  # a full disk or a lost reader does not stop the broker
            return len(data)

    def _put(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._stream, rest) :]
            except BlockingIOError:  # another process has made the shared stream non-blocking
                waiting = select.poll()
                waiting.register(self._stream, select.POLLOUT)
                waiting.poll()
            except OSError:
                return

    def _write(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                while not self._lines:
                    self._changed.wait()
                lines = list(self._lines)
                self._lines.clear()
                self._writing = True
                dropped, self._reported = self.dropped - self._reported, self.dropped
            if dropped:
                text = f"{dropped} lines of the log were dropped, because its reader was too slow"
                line = self.format(logging.LogRecord("penstock", logging.WARNING, __file__, 0, text, (), None))
                lines.append((line + "\n").encode())
            for data in _joined(lines):
                self._put(data)


def _joined(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines up to the atomic size of a pipe, so that other processes do not interrupt them."""
    joined = b""
    for line in lines:
        if joined and len(joined) + len(line) > select.PIPE_BUF:
            yield joined
            joined = b""
        joined += line
    yield joined


class _NonBlockingStream(NamedTuple):
    """A stream whose `write` raises BlockingIOError instead of blocking."""

    write: Callable[[bytes], int]
    close: Callable[[], object]


def _without_blocking(stream: int) -> _NonBlockingStream | None:
    """Open a stream again, because O_NONBLOCK affects all processes that share it. Return None if that is impossible."""
    mode = os.fstat(stream).st_mode
    if stat.S_ISSOCK(mode):  # the journal of a service manager
        connected = socket.socket(fileno=os.dup(stream))
        return _NonBlockingStream(lambda data: connected.send(data, socket.MSG_DONTWAIT), connected.close)
    if stat.S_ISREG(mode):  # never blocks, and must share its position
        return _NonBlockingStream(partial(os.write, stream), lambda: None)
    try:
        again = os.open(f"/proc/self/fd/{stream}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # a stream of another user, or a system other than Linux
        return None
    return _NonBlockingStream(partial(os.write, again), partial(os.close, again))
