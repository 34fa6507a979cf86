"""The broker's log: lines of text for people or of JSON for programs.

Whoever logs never waits for who reads: a pipe that nobody empties, or a full disk, would stop the broker. Lines wait in a
bounded queue. What it cannot hold is counted, and the log says so when it goes on.

A line about a client, a user or a queue names it in the record's attributes `peer`, `user`, `queue` (logging's `extra`), which
are fields of a line of JSON. The text has the names, too.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import sys
import threading
import time
from collections import deque
from datetime import datetime, timezone
from typing import TextIO

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
    """Writes lines to a stream: at once where it takes them, else in a thread of its own. `emit` never waits."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._poll = select.poll()
        self._poll.register(stream.fileno(), select.POLLOUT)
        self._lines: deque[str] = deque()
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
        with self._changed:
            if not self._lines and not self._writing and self._takes(line):
                self._put(line + "\n")
            elif len(self._lines) < MAX_WAITING:
                self._lines.append(line)
                self._changed.notify_all()
            else:
                self.left_out += 1

    def flush(self) -> None:
        """Wait until all lines are written, at most `FLUSH_S`."""
        deadline = time.monotonic() + FLUSH_S
        with self._changed:
            while (self._lines or self._writing) and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)

    def _takes(self, line: str) -> bool:
        """Say whether the stream takes a line at once: a pipe that can be written to has room for `select.PIPE_BUF` octets."""
        if 4 * len(line) >= select.PIPE_BUF:
            return False
        try:
            return bool(self._poll.poll(0))
        except OSError:
            return False

    def _put(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # its disk is full, its reader is gone: the broker goes on
            self._stream.write(text)
            self._stream.flush()

    def _write(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                while not self._lines:
                    self._changed.wait()
                text = "\n".join(self._lines) + "\n"
                self._lines.clear()
                self._writing = True
                left_out, self._told = self.left_out - self._told, self.left_out
            if left_out:
                said = f"{left_out} lines of the log were left out: nobody took them"
                text += self.format(logging.LogRecord("penstock", logging.WARNING, __file__, 0, said, (), None)) + "\n"
            self._put(text)
