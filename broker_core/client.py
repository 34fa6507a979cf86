"""A thin client of the Flight plane (docs/flight-protocol.md): JSON out, JSON in, Penstock's errors raised.

It needs nothing but pyarrow, so that a Spark executor can use it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight

from broker_core import errors


class Client:
    """One connection to the broker at `url` (`grpc://host:port`). Safe to use from several threads."""

    def __init__(self, url: str, *, timeout_s: float = 60.0) -> None:
        self.url = url
        self._timeout = timeout_s
        try:
            self._flight = flight.connect(url.replace("grpc://", "grpc+tcp://", 1))
        except (pa.ArrowException, ValueError) as error:
            raise errors.InvalidRequest(f"cannot use {url!r} as a broker's address: {error}") from error

    def call(self, action: str, *, timeout_s: float | None = None, **fields: Any) -> dict[str, Any]:
        """Send one action and return its answer."""
        options = flight.FlightCallOptions(timeout=timeout_s or self._timeout)
        try:
            results = list(self._flight.do_action((action, json.dumps(fields).encode()), options))
        except pa.ArrowException as error:
            raise self._translate(error) from error
        answer = json.loads(results[0].body.to_pybytes())
        if not isinstance(answer, dict):
            raise errors.PeerError(f"{self.url} answered {action} with something else than an object")
        return answer

    def put(
        self, command: dict[str, Any], schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, window: int = 8
    ) -> dict[str, Any]:
        """Send record batches, at most `window` unacknowledged; return the last acknowledgement, all of it durable."""
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
        last: dict[str, Any] = {"batches": 0, "messages": 0}
        sent = 0
        try:
            writer, reader = self._flight.do_put(descriptor, schema)
            try:
                for batch in batches:
                    writer.write_batch(batch)
                    sent += 1
                    while sent - last["batches"] >= window:
                        last = _acknowledgement(reader)
                writer.done_writing()
                while last["batches"] < sent:
                    last = _acknowledgement(reader)
            finally:
                writer.close()
        except pa.ArrowException as error:
            raise self._translate(error) from error
        return last

    def get(self, **ticket: Any) -> Iterator[pa.RecordBatch]:
        """Stream the record batches that a ticket names."""
        try:
            for chunk in self._flight.do_get(flight.Ticket(json.dumps(ticket).encode())):
                yield chunk.data
        except pa.ArrowException as error:
            raise self._translate(error) from error

    def close(self) -> None:
        self._flight.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _translate(self, error: Exception) -> errors.PenstockError:
        info = getattr(error, "extra_info", b"")
        if info and info.startswith(b"{"):
            return errors.from_json(info)
        if isinstance(error, flight.FlightUnavailableError):
            return errors.PeerError(
                f"no broker answers at {self.url}: start one with `penstock serve --data DIR`, or correct the url"
            )
        return errors.PeerError(f"the call to {self.url} failed: {error}")


def _acknowledgement(reader: flight.FlightMetadataReader) -> dict[str, Any]:
    buffer = reader.read()
    if buffer is None:
        raise errors.PeerError("the broker ended the stream before it had acknowledged everything")
    answer: dict[str, Any] = json.loads(buffer.to_pybytes())
    return answer
