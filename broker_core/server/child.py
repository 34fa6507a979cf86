"""A broker in a child process, for programs, notebooks and tests. The child stops when its stdin is closed, so it ends with its
parent, also if that is killed. (A death signal would need `preexec_fn`, which is not safe with threads.)"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from .. import errors
from ..children import processes
from ..client.credentials import NOBODY, Credentials
from ..settings import keys

#: More than the recovery of tens of millions of messages takes.
START_LIMIT_S = 120.0
#: A clean stop finishes pending writes and takes a snapshot.
STOP_LIMIT_S = 60.0
#: Bytes of the child's output that an error quotes.
_QUOTED_BYTES = 2000


class Broker:
    """A broker in a child process, from `start` (or `with`) until `stop`.

    Every later `start` uses the same ports, so that clients find the broker again.

    Args:
        data_dir: Folder of its data. It is created if necessary.
        fsync: `always`, `interval` or `never`: when messages are on the disk. Default: as in `config`, else `always`.
        config: TOML file with settings. The other arguments override it.
        start_limit_s: Longest time of a start in seconds.
        **options: Settings by their names in `conf/penstock.toml`. By default, ports are free ones.

    Raises:
        InvalidRequest: An unknown setting, or a wrong value.

    Example:
        with penstock.Broker("data") as broker:
            broker.declare("orders")
            with penstock.connect(broker.amqp_url) as connection:
                connection.send("orders", json={"id": 7})
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        *,
        fsync: str | None = None,
        config: str | os.PathLike[str] | None = None,
        start_limit_s: float = START_LIMIT_S,
        **options: Any,
    ) -> None:
        self.data_dir = Path(data_dir).absolute()
        self._config = Path(config).absolute() if config is not None else None
        unknown = sorted(set(options) - (set(keys.KEYS) - {"data"}))
        if unknown:
            raise errors.InvalidRequest(f"{unknown[0]} is not an option; allowed are {', '.join(keys.KEYS)}")
        if fsync is not None:
            options["fsync"] = fsync
        in_file = set() if self._config is None else set(keys.read_file(self._config))
        for name in ("flight_port", "http_port"):
            if name not in in_file:
                options.setdefault(name, 0)
        if not {"amqp_port", "listeners"} & (in_file | set(options)):
            options["amqp_port"] = 0
        values = {
            name: "off" if name in ("amqp_port", "http_port") and value is None else value for name, value in options.items()
        }
        # Wrong values are refused in the caller's traceback.
        settings = keys.load(self._config, {**values, "data": self.data_dir})
        self._flags = {name: keys.as_text(getattr(settings, name)) for name, value in values.items() if value is not None}
        self._start_limit = start_limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._urls: dict[str, str | None] = {}  # by plane, after a start; None: off
        self._free_ports = [name for name in ("flight_port", "amqp_port", "http_port") if self._flags.get(name) == "0"]
        self._reserved: list[socket.socket] = []
        weakref.finalize(self, _release, self._reserved)

    @property
    def url(self) -> str:
        """Value for the option `url`. A restart does not change it."""
        return self.flight_url

    @property
    def flight_url(self) -> str:
        """Address of the Flight plane.

        Raises:
            InvalidRequest: The broker was not started yet.
        """
        return self._url_of("flight")

    @property
    def amqp_url(self) -> str:
        """Address of the first AMQP listener, for any AMQP 1.0 client. A restart does not change it.

        Raises:
            InvalidRequest: The broker was not started yet, or AMQP is off.
        """
        return self._url_of("amqp")

    @property
    def http_url(self) -> str:
        """Address of the page, metrics, health and the JSON API. A restart does not change it.

        Raises:
            InvalidRequest: The broker was not started yet, or HTTP is off.
        """
        return self._url_of("http")

    def _url_of(self, plane: str) -> str:
        if not self._urls:
            raise errors.InvalidRequest("this broker was not started yet: use `with Broker(…) as broker:`, or call start()")
        url = self._urls[plane]
        if url is None:
            raise errors.InvalidRequest(f"this broker was started without {plane.upper()}: leave out {plane}_port=off")
        return url

    @property
    def pid(self) -> int:
        """The process id of the running broker.

        Raises:
            InvalidRequest: The broker is not running.
        """
        if self._process is None:
            raise errors.InvalidRequest("this broker is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the process runs."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """Return the text that the broker has written to stderr since its last start."""
        if self._stderr is None:
            return ""
        # The child writes through the same file description: its position must not change.
        return os.pread(self._stderr.fileno(), os.fstat(self._stderr.fileno()).st_size, 0).decode(errors="replace")

    def declare(self, queue: str, *, credentials: Credentials = NOBODY, **options: Any) -> None:
        """Create a queue. Does nothing if it exists with the same options.

        Args:
            queue: Its name.
            credentials: A login if the broker has users; a CA that this machine does not trust by default.
            **options: Options of the queue, by their names in docs/queues.md.

        Raises:
            PenstockError: The broker refuses it: a wrong option, or a queue with other options.

        Example:
            broker.declare("orders", maxMessages=100_000, deadLetterQueue="orders-dead")
        """
        from ..client.flight import Client

        with Client(self.url, credentials) as client:
            client.call("queue.declare", queue=queue, options=options)

    def start(self) -> Broker:
        """Start, and return when the broker accepts connections. `with` calls this.

        Returns:
            This broker.

        Raises:
            InvalidRequest: The broker is running already.
            PenstockError: The reason of a failed start.
        """
        if self.running:
            raise errors.InvalidRequest(f"this broker is running already (process {self.pid})")
        self._forget()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self._stderr.close)
        # There `-m` finds this package, and no folder of its name.
        self._process = subprocess.Popen(
            self._command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            cwd=self.data_dir,
            env=processes.environment(),
            # Ctrl-C in a terminal goes to the process group, and the parent decides when the broker stops.
            start_new_session=True,
        )
        try:
            answer = self._await_ready(self._process)
        except BaseException:
            self.kill()
            raise
        _release(self._reserved)
        self._urls = {plane: answer[plane] for plane in ("flight", "amqp", "http")}
        has_listeners = "listeners" in self._flags or (self._config is not None and "listeners" in keys.read_file(self._config))
        for plane, url in self._urls.items():
            if url is not None and not (plane == "amqp" and has_listeners):  # they replace `amqp_port`
                self._flags[f"{plane}_port"] = url.rpartition(":")[2]
        return self

    def stop(self, *, limit_s: float = STOP_LIMIT_S) -> None:
        """Stop cleanly (SIGTERM). Does nothing if the broker is not running.

        Args:
            limit_s: Longest time in seconds, after which the broker is killed.

        Raises:
            PeerError: The broker did not stop cleanly.
        """
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise errors.PeerError(f"the broker did not stop within {limit_s:g} s, so it was killed{self._quoted()}") from None
        self._close()
        if code != 0:
            raise errors.PeerError(f"the broker ended with exit code {code}{self._quoted()}")

    def kill(self) -> None:
        """Kill the process (SIGKILL), as in a crash. `start` runs it again with the same directory and ports."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._close()

    def __enter__(self) -> Broker:
        return self if self.running else self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        # An error in the block hides one of the stop.
        with contextlib.suppress(*(() if kind is None else (errors.PenstockError,))):
            self.stop()

    def __repr__(self) -> str:
        return f"<Broker {self.data_dir} {self._urls['flight'] if self.running else 'not running'}>"

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "penstock", "serve", "--data", str(self.data_dir), "--stop-with-stdin"]
        if self._config is not None:
            command += ["--config", str(self._config)]
        for name, value in self._flags.items():
            command += ["--" + name.replace("_", "-"), value]
        return command

    def _await_ready(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        line = _read_line(process, time.monotonic() + self._start_limit)
        if line is None:
            raise errors.PeerError(f"the broker was not ready within {self._start_limit:g} s{self._quoted()}")
        try:
            answer = json.loads(line)
            if answer["ready"]:
                return dict(answer)
            failure = json.dumps(answer["error"]).encode()
        except (ValueError, KeyError, TypeError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            raise errors.PeerError(f"the broker ended before it was ready, exit code {process.poll()}{self._quoted()}") from None
        raise errors.from_json(failure)

    def _quoted(self) -> str:
        output = self.log()[-_QUOTED_BYTES:].strip()
        return f"; its output: {output}" if output else ""

    def _close(self) -> None:
        process, self._process = self._process, None
        for pipe in (process.stdin, process.stdout) if process else ():
            if pipe is not None:
                pipe.close()
        self._reserve_ports()

    def _reserve_ports(self) -> None:
        """Bind the free ports while no broker runs, because the system may give an unbound port to a connection. The next `start`
        can still bind them."""
        _release(self._reserved)
        for plane, url in self._urls.items():
            if f"{plane}_port" not in self._free_ports or url is None:
                continue
            host, _, port = url.partition("://")[2].rpartition(":")
            with contextlib.suppress(OSError):  # another process has the port already
                held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
                self._reserved.append(held)
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                held.bind((host.strip("[]"), int(port)))

    def _forget(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._close()
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None


def _release(reserved: list[socket.socket]) -> None:
    while reserved:
        reserved.pop().close()


def _read_line(process: subprocess.Popen[bytes], deadline: float) -> bytes | None:
    """Return a line of stdout; incomplete if the process ends, None after the deadline."""
    if process.stdout is None:
        return b""
    descriptor = process.stdout.fileno()
    waiting = select.poll()  # not select(): a program may have more than 1,024 files open
    waiting.register(descriptor, select.POLLIN)
    line = b""
    while not line.endswith(b"\n"):
        if not waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return None
        piece = os.read(descriptor, 65536)
        if not piece:
            break
        line += piece
    return line
