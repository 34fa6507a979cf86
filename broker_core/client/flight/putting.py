"""One put of the Flight plane. Until the broker acknowledges a batch, the client keeps all batches, and may repeat the put with a
new token.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import flight

from ... import errors
from ..timeouts import Steps

log = logging.getLogger("penstock")

#: Seconds after which a blocked write also reads the broker's signs of life.
LISTEN_S = 2.0
#: Limit of unacknowledged bytes, besides the last batch: twice the bytes ahead of the broker's disk.
MOST_AHEAD_BYTES = 64 << 20

#: A record batch, or a batch and its metadata.
Sent: TypeAlias = "pa.RecordBatch | tuple[pa.RecordBatch, bytes]"


class SourceFailed(BaseException):
    """The caller's own source raised `error`, not the broker."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Batches:
    """The caller's batches. Until an acknowledgement, iterating begins again with the first batch."""

    def __init__(self, batches: Iterable[Sent]) -> None:
        self._source = _from_source(batches)
        self._kept: list[Sent] | None = []

    @property
    def are_all_here(self) -> bool:
        return self._kept is not None

    def acknowledged(self) -> None:
        self._kept = None

    def __iter__(self) -> Iterator[Sent]:
        yield from list(self._kept or ())
        for batch in self._source:
            if self._kept is not None:
                self._kept.append(batch)
            yield batch


class Put:
    """One attempt at a put. `begin` opens the call."""

    def __init__(
        self,
        begin: Callable[[], tuple[Any, Any]],
        batches: Batches,
        window: int,
        new_steps: Callable[[], Steps],
        timeout_s: float,
    ) -> None:
        self._begin, self._batches, self._window, self._timeout_s = begin, batches, window, timeout_s
        self._steps, self._listening = new_steps(), new_steps()
        self._answer: Future[dict[str, Any]] | None = None  # `_listening` waits for it
        self._writer: Any = None
        self._reader: Any = None
        self._last: dict[str, Any] = {"batches": 0, "messages": 0}
        self._sent = 0
        self._ahead: deque[int] = deque()  # bytes of each unacknowledged batch
        self._has_logged = False  # that a queue is full

    def run(self) -> dict[str, Any]:
        try:
            self._send()
        except Exception:
            self._end()  # the call's end contains the reason, the failed write does not
            raise
        except BaseException:  # the caller's source failed, or an interrupt
            with suppress(pa.ArrowException, errors.PeerError):
                self._end()
            raise
        else:
            self._end()
        finally:
            self._steps.close()
            self._listening.close()
        return self._last

    def _send(self) -> None:
        self._writer, self._reader = self._steps.take(self._begin)
        for batch in self._batches:
            self._sent += 1
            self._ahead.append(_size(batch))
            self._write(batch)
            while len(self._ahead) >= self._window or sum(self._ahead) > MOST_AHEAD_BYTES:
                self._take_acknowledgement()
        self._steps.take(self._writer.done_writing)
        while self._ahead:
            self._take_acknowledgement()

    def _write(self, batch: Sent) -> None:
        """Send a batch. A broker that takes no batch sends signs of life, so a long write also reads them. The first write always
        reads: a failed write would lose an acknowledgement that has come.
        """
        written = self._steps.begin(partial(_write, self._writer, batch))
        if self._batches.are_all_here:
            self._listen()
        wait([written], min(LISTEN_S, self._timeout_s / 4))
        while not written.done():
            answer = self._listen()
            self._steps.wait(written, answer)
            if answer.done():
                self._take_acknowledgement()
        written.result()
        if self._answer is not None and self._answer.done():
            self._take_acknowledgement()

    def _listen(self) -> Future[dict[str, Any]]:
        self._answer = self._answer or self._listening.begin(partial(_acknowledgement, self._reader))
        return self._answer

    def _take_acknowledgement(self) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            self._last = self._steps.take(partial(_acknowledgement, self._reader))
        else:
            self._steps.wait(answer)
            self._last = answer.result()
        self._batches.acknowledged()
        self._log_full()
        while len(self._ahead) > self._sent - self._last["batches"]:
            self._ahead.popleft()

    def _log_full(self) -> None:
        """Log once that the broker waits for room."""
        queue, timeout_s = self._last.pop("fullQueue", None), self._last.pop("timeoutS", None)
        if queue is not None and not self._has_logged:
            self._has_logged = True
            log.warning("queue %r is full: this write waits for room, and fails if it stays full for %g s", queue, timeout_s)

    def _end(self) -> None:
        """End the call at the broker. `close` alone would first wait for the read of `_listening`."""
        if self._writer is None or self._steps.stuck:
            return
        with suppress(pa.ArrowException):  # `close` raises the reason
            self._steps.take(self._writer.done_writing)
        with suppress(pa.ArrowException, errors.PeerError):
            if self._answer is not None:
                self._take_acknowledgement()  # batches acknowledged before a refusal are not sent again
        self._steps.take(self._writer.close)


def _from_source(batches: Iterable[Sent]) -> Iterator[Sent]:
    source = iter(batches)
    while True:
        try:
            batch = next(source)
        except StopIteration:
            return
        except BaseException as error:
            raise SourceFailed(error) from None
        yield batch
        del batch  # freed before the next one comes


def _size(batch: Sent) -> int:
    return int((batch[0] if isinstance(batch, tuple) else batch).nbytes)


def _write(writer: flight.FlightStreamWriter, batch: Sent) -> None:
    if isinstance(batch, tuple):
        writer.write_with_metadata(*batch)
    else:
        writer.write_batch(batch)


def _acknowledgement(reader: flight.FlightMetadataReader) -> dict[str, Any]:
    buffer = reader.read()
    if buffer is None:
        raise errors.PeerError("the broker ended the stream before it had acknowledged everything")
    answer: dict[str, Any] = json.loads(buffer.to_pybytes())
    return answer
