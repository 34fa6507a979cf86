"""One put of the Flight plane: record batches out, acknowledgements in.

A put may be made a second time, with a new token, as long as no batch was acknowledged. So what was given out is kept until then.
"""

from __future__ import annotations

import json
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

#: Bytes of a put without an acknowledgement, beside the last batch: twice what a broker takes ahead of its disk. Until the first
#: acknowledgement the client keeps them.
MOST_AHEAD_BYTES = 64 << 20

#: A record batch, or one with the octets of its metadata.
Sent: TypeAlias = "pa.RecordBatch | tuple[pa.RecordBatch, bytes]"


class SourceFailed(BaseException):
    """The caller's own source raised `error`: no answer of the broker, whatever it looks like."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Batches:
    """Batches of the caller's. Iterated again, they begin with those that were given out before anything was acknowledged."""

    def __init__(self, batches: Iterable[Sent]) -> None:
        self._source = _of_the_caller(batches)
        self._kept: list[Sent] | None = []

    @property
    def are_all_here(self) -> bool:
        """True until something was acknowledged: what was taken is not sent again."""
        return self._kept is not None

    def acknowledged(self) -> None:
        """Keep nothing any more."""
        self._kept = None

    def __iter__(self) -> Iterator[Sent]:
        yield from list(self._kept or ())
        for batch in self._source:
            if self._kept is not None:
                self._kept.append(batch)
            yield batch


class Put:
    """One attempt at a put. `begin` opens the call; `window` batches, and about `MOST_AHEAD_BYTES`, may be unacknowledged."""

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
        self._heard: Future[dict[str, Any]] | None = None  # what `_listening` waits for
        self._writer: Any = None
        self._reader: Any = None
        self._last: dict[str, Any] = {"batches": 0, "messages": 0}
        self._sent = 0
        self._ahead: deque[int] = deque()  # bytes of each batch that is not acknowledged

    def run(self) -> dict[str, Any]:
        """Send all batches; return the last acknowledgement, all of it durable. What fails ends the call."""
        try:
            self._send()
        except Exception:
            self._end()  # what refuses the call says more than that a write failed
            raise
        except BaseException:  # the caller's own source failed, or somebody interrupts
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
                self._hear()
        self._steps.take(self._writer.done_writing)
        while self._ahead:
            self._hear()

    def _write(self, batch: Sent) -> None:
        """Send a batch. While the broker takes none, it says that it is there: so we listen, if that lasts; and for the first
        acknowledgement in any case, since what is there when a write fails is lost."""
        written = self._steps.begin(partial(_write, self._writer, batch))
        if self._batches.are_all_here:
            self._listen()
        wait([written], self._timeout_s / 4)
        while not written.done():
            heard = self._listen()
            self._steps.wait(written, heard)
            if heard.done():
                self._hear()
        written.result()
        if self._heard is not None and self._heard.done():
            self._hear()

    def _listen(self) -> Future[dict[str, Any]]:
        """Wait for an acknowledgement beside what else is done."""
        self._heard = self._heard or self._listening.begin(partial(_acknowledgement, self._reader))
        return self._heard

    def _hear(self) -> None:
        """Take the next acknowledgement."""
        heard, self._heard = self._heard, None
        if heard is None:
            self._last = self._steps.take(partial(_acknowledgement, self._reader))
        else:
            self._steps.wait(heard)
            self._last = heard.result()
        self._batches.acknowledged()
        while len(self._ahead) > self._sent - self._last["batches"]:
            self._ahead.popleft()

    def _end(self) -> None:
        """End the call. `close` alone would wait for what `_listening` reads, and only then tell the broker of the end."""
        if self._writer is None or self._steps.stuck:
            return
        with suppress(pa.ArrowException):  # `close` says why
            self._steps.take(self._writer.done_writing)
        with suppress(pa.ArrowException, errors.PeerError):
            if self._heard is not None:
                self._hear()  # what was taken before a refusal is not sent again
        self._steps.take(self._writer.close)


def _of_the_caller(batches: Iterable[Sent]) -> Iterator[Sent]:
    source = iter(batches)
    while True:
        try:
            batch = next(source)
        except StopIteration:
            return
        except BaseException as error:
            raise SourceFailed(error) from None
        yield batch
        del batch  # not kept while the next one comes


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
