"""A client of the Flight plane (docs/protocols/flight.md).

With an AMQP address it asks the broker for its Flight endpoint. It asks again when the endpoint may have changed: its token has
expired, or it does not answer.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import flight

from ... import errors, wrong_port
from .. import credentials, discovery, timeouts
from ..credentials import NOBODY, Credentials
from ..discovery import Endpoint
from .putting import Batches, Put, Sent, SourceFailed

#: Seconds after which the next call replaces a token, valid for an hour: tasks that wait for their start need it.
TOKEN_FRESH_S = 1200.0
#: Seconds until the next attempt if that failed.
RENEW_AGAIN_S = 60.0

_Result = TypeVar("_Result")


def check(url: str, credentials: Credentials) -> None:
    """Raise InvalidRequest for credentials that do not fit the URL, or would cross the network in the open."""
    if credentials.certificates and not url.startswith(("grpc+tls://", "amqps://")):
        raise errors.InvalidRequest(f"certificates have no meaning for {url}: use grpc+tls:// or amqps://, or leave them out")
    host = url.partition("://")[2].rpartition(":")[0]
    if credentials.user is not None and url.startswith("grpc://") and not discovery.is_loopback(host):
        raise errors.InvalidRequest(
            f"a password for {url} would cross the network in the open: use grpc+tls://, or the broker's amqp:// or amqps://"
            " address, where the login does not reveal the password"
        )


class Client:
    """One connection to the broker at `url`, for any number of threads.

    `known` is an endpoint that was discovered before, perhaps by another process. `timeout_s` limits every wait for the broker;
    None: `timeouts.SILENCE_S`. `program` names the kind of program in the broker's audit log.
    """

    def __init__(
        self,
        url: str,
        credentials: Credentials = NOBODY,
        *,
        known: Endpoint | None = None,
        timeout_s: float | None = None,
        program: str = "python",
    ) -> None:
        check(url, credentials)
        self.url = url
        self._credentials = credentials
        self._timeout = timeouts.SILENCE_S if timeout_s is None else timeout_s
        self._discovers = url.startswith(discovery.SCHEMES)
        self._changing = threading.Lock()
        self._fresh_until = float("inf")
        self._lost = False
        self._closed = False
        #: For another client's `known`. Its token is a secret.
        self.endpoint = Endpoint("")
        self._flight: Any = None
        self._program = (b"penstock-client", program.encode())
        self._headers: list[tuple[bytes, bytes]] = []
        if not self._discovers:
            self._use(Endpoint(url))
        elif known is not None:
            self._use(known)
        else:
            self._discover()

    def call(self, action: str, /, *, timeout_s: float | None = None, **fields: Any) -> dict[str, Any]:
        body = json.dumps(fields).encode()

        def ask() -> list[flight.Result]:
            return list(self._flight.do_action((action, body), self._options(timeout_s or self._timeout)))

        results = self._again_if_refused(ask)
        answer = json.loads(results[0].body.to_pybytes())
        if not isinstance(answer, dict):
            raise errors.PeerError(f"{self.url} answered {action} with something else than an object")
        return answer

    def put(self, command: dict[str, Any], schema: pa.Schema, batches: Iterable[Sent], *, window: int = 8) -> dict[str, Any]:
        """Send record batches; return the last acknowledgement, which confirms that all are durable. The octets of a pair are the
        batch's metadata. At most `window` batches are unacknowledged.
        """
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
        repeatable = Batches(batches)

        def begin() -> Any:
            return self._flight.do_put(descriptor, schema, self._options())

        def send() -> dict[str, Any]:
            return Put(begin, repeatable, window, self._steps, self._timeout).run()

        try:
            return self._again_if_refused(send, lambda: repeatable.are_all_here)
        except SourceFailed as failed:
            failure = failed.error
        try:
            raise failure  # unchanged: here no other error is its context
        finally:
            del failure  # it would keep this frame, and batches with it

    def get(self, **ticket: Any) -> Iterator[pa.RecordBatch]:
        named = flight.Ticket(json.dumps(ticket).encode())

        steps = self._steps()
        reader: Any = None

        def begin() -> flight.FlightStreamChunk | None:
            nonlocal reader
            reader = steps.take(lambda: self._flight.do_get(named, self._options()))
            return steps.take(lambda: next(reader, None))

        try:
            chunk = self._again_if_refused(begin)
            while chunk is not None:
                yield chunk.data
                chunk = None  # freed before the next one comes
                chunk = steps.take(lambda: next(reader, None))
        except pa.ArrowException as error:
            raise self._translate(error) from error
        finally:
            if steps.stuck and reader is not None:
                reader.cancel()
            steps.close()

    def close(self) -> None:
        self._closed = True
        self._flight.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _again_if_refused(self, attempt: Callable[[], _Result], may_repeat: Callable[[], bool] = lambda: True) -> _Result:
        self._renew()
        used = self.endpoint
        try:
            return self._attempt(attempt)
        except errors.Unauthenticated:
            if not self._discovers or not may_repeat():
                raise
        except errors.PeerError:
            self._lost = True  # the broker may have restarted elsewhere
            raise
        self._renew(used)
        return self._attempt(attempt)

    def _attempt(self, attempt: Callable[[], _Result]) -> _Result:
        try:
            return attempt()
        except pa.ArrowException as error:
            raise self._translate(error) from error

    def _renew(self, used: Endpoint | None = None) -> None:
        """Discover again when it is time, or when `used` is invalid."""
        if not self._discovers or self._closed:
            return
        with self._changing:
            if self._lost or self.endpoint is used:
                self._discover()
            elif time.monotonic() >= self._fresh_until:
                self._fresh_until = time.monotonic() + RENEW_AGAIN_S
                with suppress(errors.PenstockError):  # the old token is still valid
                    self._discover()

    def _discover(self) -> None:
        self._use(discovery.discover(self.url, self._credentials, self._timeout))
        self._fresh_until, self._lost = time.monotonic() + TOKEN_FRESH_S, False

    def _use(self, endpoint: Endpoint) -> None:
        if endpoint.token is not None:
            authorization: str | None = f"Bearer {endpoint.token}"
        else:  # a broker that gives no token has no users
            authorization = None if self._discovers else self._credentials.authorization()
        self._headers = [self._program, *([] if authorization is None else [(b"authorization", authorization.encode())])]
        # Another thread may use the old client, which ends with its last user.
        if self.endpoint.url != endpoint.url:
            self._flight = self._connected(endpoint.url)
        self.endpoint = endpoint

    def _connected(self, url: str) -> flight.FlightClient:
        options: dict[str, Any] = {}
        if url.startswith("grpc+tls://"):
            mine = self._credentials
            options = {"tls_root_certs": mine.ca or credentials.system_ca(), "cert_chain": mine.cert, "private_key": mine.key}
        options["generic_options"] = timeouts.CHANNEL
        try:
            return flight.connect(url.replace("grpc://", "grpc+tcp://", 1), **options)
        except (pa.ArrowException, ValueError) as error:
            raise errors.InvalidRequest(f"cannot use {url!r} as a broker's address: {error}") from error

    def _steps(self) -> timeouts.Steps:
        return timeouts.Steps(self.endpoint.url, self._timeout)

    def _options(self, timeout_s: float | None = None) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=timeout_s, headers=self._headers)

    def _translate(self, error: Exception) -> errors.PenstockError:
        info = getattr(error, "extra_info", b"")
        if info and info.startswith(b"{"):
            return errors.from_json(info)
        if isinstance(error, flight.FlightTimedOutError):
            return timeouts.silent(self.endpoint.url, self._timeout)
        if isinstance(error, flight.FlightUnavailableError):
            return _unavailable(self.endpoint.url)
        return errors.PeerError(f"the call to {self.endpoint.url} failed: {error}")


def _unavailable(url: str) -> errors.PeerError:
    scheme, _, place = url.partition("://")
    host, _, port = place.rpartition(":")
    host, secure, hint = host.strip("[]"), scheme == "grpc+tls", ""
    protocol = wrong_port.look(host, int(port))
    wrong = wrong_port.mismatch(protocol, wrong_port.TLS if secure else wrong_port.FLIGHT)
    if wrong is not None:
        return errors.WrongPort(f"{url}: {wrong}")
    if secure and protocol is not None:
        ended = wrong_port.expired(host, int(port))
        if ended is not None:
            return errors.PeerError(f"the certificate of {url} is not valid any more: {ended}")
        hint = " with a certificate that is trusted here (which CA issued it, and to which host name?)"
    return errors.Unreachable(f"no broker answers at {url}{hint}: start one with `penstock serve --data DIR`, or correct the url")
