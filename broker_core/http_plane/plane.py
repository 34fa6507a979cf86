"""The plane in the broker's process. It replaces an HTTP process that ends."""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .. import errors
from ..actions.actions import Actions
from ..children.frames import ChildFrame
from ..security.access import Access
from ..security.tls import ServerTls
from ..service.broker import BrokerService
from ..settings.keys import Settings
from ..settings.listeners import in_url
from .answers import Answers, Planes
from .child import HttpProcess

BACKLOG = 4096  # connections that wait until the HTTP process accepts them; the system may allow fewer
THREADS = 8  # that answer questions
PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0  # before an ended process is replaced; doubles while processes end within SOON_S
SOON_S = 60.0

log = logging.getLogger("penstock.http")


class HttpPlane:
    """Listens from construction until `close`. Until `open` it answers that the broker is recovering. `connections`: a limit
    below the settings', for lack of file descriptors. Raises InvalidRequest if the address cannot be used."""

    def __init__(self, settings: Settings, access: Access, tls: ServerTls | None = None, connections: int | None = None) -> None:
        listener = settings.http_listener
        assert listener is not None
        assert tls is not None or not listener.tls
        self._tls = tls if listener.tls else None
        self._settings = settings
        self._most = settings.http_max_connections if connections is None else connections
        self._service: BrokerService | None = None
        self._answers = Answers(settings, access)
        self._socket = _listening(listener.host, listener.port)
        self.port = int(self._socket.getsockname()[1])
        self.url = f"{'https' if listener.tls else 'http'}://{in_url(listener.host)}:{self.port}"
        self._closing = threading.Event()
        self._wake, self._woken = socket.socketpair()
        self._child: HttpProcess | None = None
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS, "penstock-http-answer")
        self._pulse = ThreadPoolExecutor(2, "penstock-http-pulse")  # for probes, which are answered while all other threads hang
        self._thread = threading.Thread(target=self._run, name="penstock-http", daemon=True)
        self._thread.start()

    def open(self, service: BrokerService, actions: Actions, planes: Planes) -> None:
        self._service = service
        self._answers.open(service, actions, planes)

    @property
    def pid(self) -> int | None:
        child = self._child
        return None if child is None else child.pid

    def close(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        self._socket.close()
        self._wake.send(b"x")
        with self._lock:
            child = self._child
        if child is not None:
            # `say` waits while the process does not read.
            threading.Thread(target=child.say, args=({"op": "stop"},), name="penstock-http-stop", daemon=True).start()
            child.end(immediately=False)
        self._thread.join()
        for threads in (self._threads, self._pulse):
            threads.shutdown(wait=False, cancel_futures=True)
        for end in (self._wake, self._woken):
            end.close()

    def _run(self) -> None:
        pause_s = PAUSE_S
        waiting = select.poll()
        waiting.register(self._woken, select.POLLIN)
        waiting.register(self._socket, select.POLLIN)
        while True:
            waiting.poll()
            if self._closing.is_set():
                return
            begun = time.monotonic()
            reason = self._serve()
            if self._closing.is_set():
                return
            if time.monotonic() - begun > SOON_S:
                pause_s = PAUSE_S
            log.error("%s; another one is started when a connection comes, in %g s at the earliest", reason, pause_s)
            self._closing.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _serve(self) -> str:
        """Run a process. Returns why it ended."""
        try:
            certificate = () if self._tls is None else self._tls.files[:2]  # the files may already have newer ones
            child = HttpProcess(self._socket, self._hello(), str(self._settings.data), certificate)
        except (OSError, ValueError) as error:  # ValueError: the socket was closed just now
            return f"the process for HTTP cannot be started: {error}"
        with self._lock:
            self._child = child
        log.info("the process for HTTP is started: %d", child.pid)
        if self._closing.is_set():  # `close` has not seen it
            child.end(immediately=True)
        child.listen(lambda frame: self._receive(child, frame))
        code = child.end(immediately=False)
        with self._lock:
            self._child = None
        return f"the process for HTTP ended, {f'by signal {-code}' if code < 0 else f'with exit code {code}'}"

    def _receive(self, child: HttpProcess, frame: ChildFrame) -> None:
        op = frame.header["op"]
        threads = self._pulse if op in ("live", "ready") else self._threads
        if self._closing.is_set():
            return
        if op == "renewed":
            threads.submit(self._look)
        elif op == "starved":
            if self._service is not None:
                self._service.connections.cannot_accept("HTTP", os.strerror(errno.EMFILE))
        else:
            threads.submit(self._answer, child, frame)

    def _look(self) -> None:
        """Keep the certificate that the process has read, for the next one."""
        assert self._tls is not None
        _ = self._tls.files

    def _answer(self, child: HttpProcess, frame: ChildFrame) -> None:
        header, attachments = self._answers.of(frame)
        child.say({**header, "id": frame.header["id"]}, attachments)

    def _hello(self) -> dict[str, Any]:
        settings = self._settings
        names = {name: getattr(settings, name) for name in _SETTINGS}
        return {
            **{name: str(value) if value is not None and name.endswith("_file") else value for name, value in names.items()},
            "host": settings.http_host or settings.host,
            "port": self.port,
            "http_max_connections": self._most,
            "broker": os.getpid(),
            "log_level": logging.getLogger("penstock").getEffectiveLevel(),
        }


#: That the process receives.
_SETTINGS = (
    *("http_tls", "http_names", "http_max_connections", "http_request_timeout_s", "http_metrics_queues"),
    *("http_sessions", "http_sessions_per_user", "http_session_idle_s", "http_session_s", "tls_cert_file", "tls_key_file"),
)


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise errors.InvalidRequest(
            f"cannot listen for HTTP on {host}:{port}: {error.strerror or error}; choose another with --http-port or"
            " --http-host, or --http-port off for none"
        ) from error
    listening.setblocking(False)
    return listening
