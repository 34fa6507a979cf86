"""The Flight server: its entry points hand over to `Actions`, `Receiver` and `Streams`, and errors get their wire form here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from pyarrow import flight

from broker_core import errors
from broker_core.flight_plane.actions import Actions
from broker_core.flight_plane.callers import Callers
from broker_core.flight_plane.outcomes import OutcomeReceiver
from broker_core.flight_plane.permissions import Check, Permissions
from broker_core.flight_plane.receiver import Receiver
from broker_core.flight_plane.requests import ACTIONS, PUTS, by_op
from broker_core.flight_plane.streams import Streams
from broker_core.security.access import Access
from broker_core.service import BrokerService

MAX_ERROR_BYTES = 1000  # of an error's text: it travels twice in HTTP/2 headers, of which gRPC takes 8 KiB
STOP_GRACE_S = 2.0  # for calls that run when the broker stops; a client that neither reads nor sends would hold it for ever


class FlightPlane:
    """A Flight server on its own threads, from construction until `close`.

    `access`: who may do what; without it everybody everything. `tls`: certificate chain and key in PEM, and then it speaks
    nothing but TLS (1.2 and later); pyarrow reads them once, so that another certificate needs another start.
    """

    def __init__(
        self,
        service: BrokerService,
        host: str,
        port: int,
        *,
        access: Access | None = None,
        tls: tuple[bytes, bytes] | None = None,
    ) -> None:
        self.scheme = "grpc" if tls is None else "grpc+tls"
        self._server = _Server(service, f"{self.scheme}://{host}:{port}", access, tls)
        self.port = int(self._server.port)
        self.url = f"{self.scheme}://{host}:{self.port}"
        self._server.actions.url = self.url

    def close(self) -> None:
        """Take no new calls, and give those that run a while to end."""
        stopping = threading.Thread(target=self._server.shutdown, name="penstock-flight-stop", daemon=True)
        stopping.start()
        stopping.join(STOP_GRACE_S)


class _Server(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    def __init__(self, service: BrokerService, location: str, access: Access | None, tls: tuple[bytes, bytes] | None) -> None:
        self._callers = Callers(access, encrypted=tls is not None)
        super().__init__(location, tls_certificates=None if tls is None else [tls], middleware=self._callers.middleware)
        self._service = service
        self._permissions = Permissions(service)
        self.actions = Actions(service, self._permissions)
        self._streams = Streams(service, self._permissions)

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        try:
            return [self.actions.carry_out(self._callers.of(context), action.type, action.body.to_pybytes())]
        except errors.PenstockError as error:
            raise on_the_wire(error) from error

    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        try:
            self._callers.of(context)
        except errors.PenstockError as error:
            raise on_the_wire(error) from error
        return [(name, ", ".join(known)) for name, known in ACTIONS.items()]

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        try:
            caller = self._callers.of(context)
            request = by_op(descriptor.command or b"", PUTS)
            check = self._permissions.check(caller, request["op"], request)
            if request["op"] == "settle":
                OutcomeReceiver(self._service, request, writer, check).receive(reader)
                return
            self._service.create_on_use(request["queue"] or request["exchange"] or "", caller.user)
            Receiver(self._service, request, writer, check).receive(reader)
        except errors.PenstockError as error:
            raise on_the_wire(error) from error

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        try:
            schema, stream, check = self._streams.open(self._callers.of(context), ticket.ticket)
        except errors.PenstockError as error:
            raise on_the_wire(error) from error
        return flight.GeneratorStream(schema, _translated(stream, check))


def _translated(stream: Iterator[Any], check: Check) -> Iterator[Any]:
    try:
        for batch in stream:
            check()
            yield batch
    except errors.PenstockError as error:
        raise on_the_wire(error) from error


_BY_FAULT = {"peer": flight.FlightUnavailableError, "storage": flight.FlightInternalError}
_BY_CODE = {
    errors.Unauthenticated.code: flight.FlightUnauthenticatedError,
    errors.NotAllowed.code: flight.FlightUnauthorizedError,
}


def on_the_wire(error: errors.PenstockError) -> flight.FlightError:
    """The Flight error that carries ours."""
    text = str(error).encode(errors="backslashreplace")
    if len(text) > MAX_ERROR_BYTES:
        error = type(error)(text[:MAX_ERROR_BYTES].decode(errors="ignore") + " …")
    kind = _BY_CODE.get(error.code) or _BY_FAULT.get(error.fault, flight.FlightServerError)
    return kind(str(error), error.to_json())
