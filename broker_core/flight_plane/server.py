"""The methods of Flight."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from .. import errors
from ..actions.actions import ACTIONS, Actions
from ..actions.archive_reads import ArchiveReads
from ..actions.callers import Caller, Callers
from ..actions.fields import MAX_REQUEST_BYTES, specs_of
from ..actions.permissions import Check, authorize
from ..actions.requests import PUTS, EnqueuePut, SettlePut, permitted_request
from ..security.access import Access
from ..service.broker import BrokerService
from ..settings.listeners import in_url
from . import arrow_ipc, protobuf, statuses
from .calls import Call, CallGone
from .listener import FlightListener, ListenerLimits
from .outcomes import OutcomeReceiver
from .receiver import MessageReceiver
from .streams import Streams

STOP_GRACE_S = 2.0  # for running calls when the broker stops: clients may neither read nor send
SLACK_BYTES = 64 << 10  # of a request besides its JSON: an action's name, protobuf's own bytes
NOTHING_YET = b'{"batches": 0, "messages": 0}'  # to a put whose first message waits for memory
SERVICE = "/arrow.flight.protocol.FlightService/"

log = logging.getLogger("penstock.flight")


class FlightPlane:
    """A Flight server on its own threads, from construction until `close`.

    With `tls`, which returns the context for the next connection (ALPN `listener.PROTOCOL`), the server accepts only TLS.
    `connections` lowers the setting for lack of file descriptors. Raises InvalidRequest if the address is not available.
    """

    def __init__(
        self,
        service: BrokerService,
        host: str,
        port: int,
        *,
        access: Access | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
        connections: int | None = None,
    ) -> None:
        self.scheme = "grpc" if tls is None else "grpc+tls"
        handlers = _Handlers(service, access or Access(service.settings.users_file), encrypted=tls is not None)
        limits, starved = ListenerLimits.of(service.settings, connections), partial(service.connections.cannot_accept, "Flight")
        self._listener = FlightListener(host, port, limits, handlers.serve, tls, starved, lambda: service.listeners)
        self.port = self._listener.port
        self.count_connections, self.count_users = self._listener.count_connections, self._listener.count_users
        self.url = f"{self.scheme}://{in_url(host)}:{self.port}"
        self.actions = handlers.actions
        self.actions.url = self.url
        self._service = service
        service.connections.register(self)

    def connections(self) -> list[dict[str, Any]]:
        now, wall_us = time.monotonic(), self._service.wall_ms() * 1000
        return [
            {
                "id": f"flight-{connection.number}",
                "protocol": "flight",
                "user": connection.user,
                "peer": connection.peer.partition(":")[2],
                "container": "",
                "tls": self.scheme != "grpc",
                "since": wall_us - int((now - connection.since) * 1e6),
                "sessions": 0,
                "stalled": False,
                "slow": False,
                "linkCount": 0,
                "links": [],
                "calls": [path.rpartition("/")[2] for path in connection.running],
            }
            for connection in self._listener.connected()
        ]

    def consumers(self, queue: str, holders: Collection[int]) -> list[dict[str, Any]]:
        """A query's lease is a consumer without a connection."""
        return []

    def slow_consumers(self) -> Counter[str]:
        """A query's lease is not sent messages."""
        return Counter()

    def close_connection(self, identifier: str, reason: str) -> bool:
        """HTTP/2 has no reason that clients would show."""
        for connection in self._listener.connected():
            if f"flight-{connection.number}" == identifier:
                connection.abort()
                return True
        return False

    def close(self) -> None:
        self._service.connections.remove(self)
        stopping = threading.Thread(target=self._listener.close, args=(STOP_GRACE_S,), name="penstock-flight-stop", daemon=True)
        stopping.start()
        stopping.join(STOP_GRACE_S)


class BrokerMistake(errors.PenstockError):
    """A bug in Penstock, of which the caller learns nothing."""

    fault = "storage"


class _Handlers:
    """Flight's methods. Callers are authenticated before their first message is read."""

    def __init__(self, service: BrokerService, access: Access, *, encrypted: bool) -> None:
        self._service = service
        self._callers = Callers(access, encrypted=encrypted, audit=service.audit.add)
        archive = ArchiveReads(service)
        self.actions = Actions(service, archive, access)
        self._streams = Streams(service, archive)
        self._dictionaries = arrow_ipc.Dictionaries()
        self._methods: dict[str, Callable[[Call, Caller], None]] = {
            SERVICE + "DoAction": self._do_action,
            SERVICE + "ListActions": self._list_actions,
            SERVICE + "DoPut": self._do_put,
            SERVICE + "DoGet": self._do_get,
        }

    def serve(self, call: Call) -> bytes:
        """Serve one call, from its login to its trailers. Raises nothing; internal errors are logged."""
        try:
            method = self._methods.get(call.path)
            if method is None:
                return statuses.unknown(f"unknown method {call.path:.100}")
            method(call, self._callers.of(call.headers.authorization, call.peer, lambda: call.gone, door=call.headers.client))
        except CallGone:
            pass
        except errors.PenstockError as error:
            return statuses.of(error)
        except RecursionError:
            return statuses.of(errors.InvalidRequest("the request is nested too deep"))
        except Exception:
            log.exception("%s: %.100s failed", call.peer, call.path)
            return statuses.of(BrokerMistake("internal error: a bug in Penstock. The broker's log has the details"))
        return statuses.OK

    def _do_action(self, call: Call, caller: Caller) -> None:
        action = self._request(call, caller)
        name = bytes(action.get(protobuf.ACTION_TYPE, b"")).decode(errors="backslashreplace")
        answer = self.actions.carry_out(caller, name, bytes(action.get(protobuf.ACTION_BODY, b"")))
        call.send([protobuf.field(protobuf.RESULT_BODY, len(answer)), answer])

    def _list_actions(self, call: Call, caller: Caller) -> None:
        self._request(call, caller)
        for name, action in ACTIONS.items():
            fields = ", ".join(specs_of(action.operation.request))
            call.send([protobuf.octets(1, name.encode()), protobuf.octets(2, fields.encode())])

    def _do_put(self, call: Call, caller: Caller) -> None:
        limits = self._service.settings
        most = limits.max_batch_bytes

        call.admit(caller.user, most + 2 * MAX_REQUEST_BYTES, partial(arrow_ipc.too_large, most))
        reader = arrow_ipc.ArrowBatchReader(call, self._dictionaries, most_bytes=most, most_rows=limits.max_batch_rows)

        def acknowledge(data: bytes) -> None:
            call.send([protobuf.field(protobuf.PUT_RESULT, len(data)), data])

        reader.waiting = lambda: acknowledge(NOTHING_YET)
        try:
            request, check = permitted_request(self._service.state, caller, reader.begin(), PUTS)
            if isinstance(request, SettlePut):
                OutcomeReceiver(self._service, request, acknowledge, check).receive(reader)
                return
            self._service.create_on_use(request.queue or request.exchange or "", caller.origin)

            def reach(queue: str) -> Check:
                mine = authorize(self._service.state, caller, PUTS["enqueue"], EnqueuePut(op="enqueue", queue=queue))
                self._service.create_on_use(queue, caller.origin)
                return mine

            MessageReceiver(self._service, request, acknowledge, check, reach).receive(reader)
        finally:
            reader.close()

    def _do_get(self, call: Call, caller: Caller) -> None:
        ticket = self._request(call, caller).get(protobuf.TICKET, b"")
        schema, stream, check = self._streams.open(caller, bytes(ticket))
        writer = arrow_ipc.ArrowBatchWriter(schema)
        call.send(writer.begin())
        for batch in stream:
            check()
            call.send(writer.message(batch))

    def _request(self, call: Call, caller: Caller) -> dict[int, memoryview]:
        def refusal(octets: int) -> errors.PenstockError:
            return errors.InvalidRequest(f"a request has at most {MAX_REQUEST_BYTES} bytes, this one {octets}")

        call.admit(caller.user, MAX_REQUEST_BYTES + SLACK_BYTES, refusal)
        message = call.next()
        if message is None:
            raise errors.InvalidRequest("the call has no message")
        return protobuf.parse(call.path.removeprefix(SERVICE), message.view)
