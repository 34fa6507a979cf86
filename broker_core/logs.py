"""The broker's log: lines of text for people or of JSON for programs.

Whoever logs never waits for who reads: a pipe that nobody empties, or a full disk, would stop the broker. Lines wait in a
bounded queue. What it cannot hold is counted, and the log says so when it goes on.

A line about a client, a user or a queue names it in the record's attributes `peer`, `user`, `queue` (logging's `extra`), which
are fields of a line of JSON. The text has the names, too.
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

#: Lines that wait for the reader; more are left out, and counted.
MAX_WAITING = 10_000
#: Seconds that an ending process waits for the last lines to be read.
FLUSH_S = 2.0
#: Attributes of a record that are fields of a line of JSON.
FIELDS = ("queue", "peer", "user", "alarm")
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_FORMAT = "PENSTOCK_LOG_FORMAT"  # of the environment: how a process of a broker learns its format


def begin(level: int = logging.INFO) -> None:
    """Send what this process logs to stderr: in a process of a broker in the broker's format, else as text."""
    logging.basicConfig(level=level, handlers=[StreamWriter(sys.stderr)])
    use_format(os.environ.get(_FORMAT, "text"))


def use_format(name: str) -> None:
    """Write lines as `text` or as `json` from now on, also in processes that this one starts from now on."""
    os.environ[_FORMAT] = name
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonLines() if name == "json" else logging.Formatter(TEXT))


def counted(number: int, noun: str) -> str:
    """Return `1 message`, `2,000 messages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def one_line(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text from a client, without line breaks: it cannot forge a line of the log."""
    return (text if text.isprintable() else ascii(text))[:limit]


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, the fields of the record, and a traceback as `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"time": moment, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        line |= {name: str(value) for name in FIELDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class StreamWriter(logging.Handler):
    """Writes lines to a stream: at once where it takes them, else in a thread of its own. `emit` never waits.

    Other processes may write to the same pipe or terminal: what it takes at once is known only by a write that does not block.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream.fileno()
        self._at_once: _Opened | None = _without_blocking(self._stream)
        self._lines: deque[bytes] = deque()
        self._changed = threading.Condition(threading.Lock())
        self.left_out = 0  # lines, so far
        self._told = 0
        self._writing = False
        threading.Thread(target=self._write, name="penstock-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line."""
        try:
            line = self.format(record)
        except Exception:  # a mistake in a call of the log is no reason to fail what it tells of
            line = f"a line of {record.name} cannot be written: {record.msg!r}"
        data = (line + "\n").encode(errors="backslashreplace")
        with self._changed:
            if not self._lines and not self._writing:
                data = data[self._write_at_once(data) :]
            if len(self._lines) >= MAX_WAITING:
                self.left_out += 1
            elif data:
                self._lines.append(data)
                self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all lines are written, at most `FLUSH_S`."""
        deadline = time.monotonic() + FLUSH_S
        with self._changed:
            while (self._lines or self._writing) and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)

    def close(self) -> None:
        """Leave what still comes to the thread."""
        with self._changed:
            if self._at_once is not None:
                self._at_once.close()
            self._at_once = None
        super().close()

    def _write_at_once(self, data: bytes) -> int:
        """Write what the stream takes now; return how many octets that were. A pipe takes `select.PIPE_BUF` whole or not."""
        if self._at_once is None or len(data) > select.PIPE_BUF:
            return 0
        try:
            return self._at_once.write(data)
        except BlockingIOError:
            return 0
        except OSError:  # its disk is full, its reader is gone: the broker goes on
            return len(data)

    def _put(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._stream, rest) :]
            except BlockingIOError:  # somebody who shares the stream wants it so
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
                left_out, self._told = self.left_out - self._told, self.left_out
            if left_out:
                said = f"{left_out} lines of the log were left out: nobody took them"
                line = self.format(logging.LogRecord("penstock", logging.WARNING, __file__, 0, said, (), None))
                lines.append((line + "\n").encode())
            for data in _together(lines):
                self._put(data)


def _together(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines up to what a pipe takes whole, so that lines of other processes stand between them and not within."""
    joined = b""
    for line in lines:
        if joined and len(joined) + len(line) > select.PIPE_BUF:
            yield joined
            joined = b""
        joined += line
    yield joined


class _Opened(NamedTuple):
    """A stream whose `write` does not block: it raises BlockingIOError where nothing can be written now."""

    write: Callable[[bytes], int]
    close: Callable[[], object]


def _without_blocking(stream: int) -> _Opened | None:
    """Open a stream once more: O_NONBLOCK on this one would hold for all processes that share it. None where that cannot be."""
    mode = os.fstat(stream).st_mode
    if stat.S_ISSOCK(mode):  # of a service manager
        connected = socket.socket(fileno=os.dup(stream))
        return _Opened(lambda data: connected.send(data, socket.MSG_DONTWAIT), connected.close)
    if stat.S_ISREG(mode):  # never blocks, and has its position in common with others
        return _Opened(partial(os.write, stream), lambda: None)
    try:
        again = os.open(f"/proc/self/fd/{stream}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # of another user, or not Linux
        return None
    return _Opened(partial(os.write, again), partial(os.close, again))
