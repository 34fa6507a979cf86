"""The broker's interface to the process that writes tables."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from ...children import frames, processes

STOP_S = 5.0  # until an ending process is killed, which loses nothing


class ProcessEnded(Exception):
    """The process has ended, or could not be started."""


class RecorderProcess:
    """One process, from the first request until it dies or `close`. Requests come from one thread; `close` from any."""

    def __init__(self, hello: dict[str, Any]) -> None:
        self._hello = hello
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._asking = threading.Lock()  # held while a request waits for its reply
        self._closed = False

    @property
    def pid(self) -> int | None:
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def ask(self, request: dict[str, Any], attachments: Sequence[bytes] = ()) -> dict[str, Any]:
        """Return the reply to a request. Raises ProcessEnded; the next request starts another process."""
        with self._asking:
            try:
                process = self._started()
                assert process.stdin is not None
                assert process.stdout is not None
                frames.send(process.stdin, request, attachments)
                answer = frames.receive(process.stdout)
            except OSError as error:
                self._end()
                raise ProcessEnded(f"the archiver's process cannot be reached: {error}") from error
            if answer is None:
                code = self._end()
                how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
                raise ProcessEnded(f"the archiver's process ended, {how}")
            return answer.header

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise ProcessEnded("the broker stops")
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "penstock", "archiver"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    cwd=self._hello["data"],  # so that `-m` finds the same package
                    env=processes.environment(),
                    **processes.OWN_GROUP,
                )
                assert self._process.stdin is not None
                frames.send(self._process.stdin, self._hello)
            return self._process

    def _end(self) -> int | None:
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            return process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def close(self) -> None:
        """End the process, within twice `STOP_S`. A waiting request raises ProcessEnded."""
        with self._lock:
            self._closed = True
            process = self._process
        if process is not None:
            process.terminate()
        if not self._asking.acquire(timeout=STOP_S):  # it was stopped, or hangs in the system
            if process is not None:
                process.kill()
            self._asking.acquire()
        try:
            self._end()
        finally:
            self._asking.release()
