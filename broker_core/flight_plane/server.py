"""The Flight server: its entry points hand over to `Actions`, `Receiver` and `Streams`, and errors get their wire form here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from pyarrow import flight

from broker_core import errors
from broker_core.flight_plane.actions import Actions
from broker_core.flight_plane.receiver import Receiver
from broker_core.flight_plane.requests import ACTIONS, PUTS, by_op
from broker_core.flight_plane.streams import Streams
from broker_core.service import BrokerService

MAX_ERROR_BYTES = 1000  # of an error's text: it travels twice in HTTP/2 headers, of which gRPC takes 8 KiB
STOP_GRACE_S = 2.0  # for calls that run when the broker stops; a client that neither reads nor sends would hold it for ever


class FlightPlane:
    """A Flight server on its own threads, from construction until `close`."""

    def __init__(self, service: BrokerService, host: str, port: int) -> None:
        self._server = _Server(service, host, port)
        self.url = f"grpc://{host}:{self._server.port}"
        self._server.actions.url = self.url

    def close(self) -> None:
        """Take no new calls, and give those that run a while to end."""
        stopping = threading.Thread(target=self._server.shutdown, name="penstock-flight-stop", daemon=True)
        stopping.start()
        stopping.join(STOP_GRACE_S)


class _Server(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    def __init__(self, service: BrokerService, host: str, port: int) -> None:
        super().__init__(f"grpc://{host}:{port}")
        self._service = service
        self.actions = Actions(service)
        self._streams = Streams(service)

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        try:
            return [self.actions.carry_out(action.type, action.body.to_pybytes())]
        except errors.PenstockError as error:
            raise on_the_wire(error) from error

    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        return [(name, ", ".join(known)) for name, known in ACTIONS.items()]

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        try:
            Receiver(self._service, by_op(descriptor.command or b"", PUTS), writer).receive(reader)
        except errors.PenstockError as error:
            raise on_the_wire(error) from error

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        try:
            schema, stream = self._streams.open(ticket.ticket)
        except errors.PenstockError as error:
            raise on_the_wire(error) from error
        return flight.GeneratorStream(schema, _translated(stream))


def _translated(stream: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from stream
    except errors.PenstockError as error:
        raise on_the_wire(error) from error


_WIRE_ERRORS = {"peer": flight.FlightUnavailableError, "storage": flight.FlightInternalError}


def on_the_wire(error: errors.PenstockError) -> flight.FlightError:
    """The Flight error that carries ours."""
    text = str(error).encode(errors="backslashreplace")
    if len(text) > MAX_ERROR_BYTES:
        error = type(error)(text[:MAX_ERROR_BYTES].decode(errors="ignore") + " …")
    return _WIRE_ERRORS.get(error.fault, flight.FlightServerError)(str(error), error.to_json())
