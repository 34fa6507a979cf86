"""A broker in a child process, for programs, notebooks and tests.

    with Broker("data") as broker:
        spark.readStream.format("amqp").option("url", broker.url)…

The child ends with its parent, however that ends: it holds the reading end of a pipe and stops when the other end is gone.
(A death signal set between fork and exec would need `preexec_fn`, which is not safe in a program with threads.)
"""

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

from .. import children, errors
from ..client.credentials import NOBODY, Credentials
from ..settings import keys

#: Seconds. Recovery of tens of millions of messages takes less; a machine that swaps may take more.
START_LIMIT_S = 120.0
#: Seconds. A clean stop finishes what is being written, and takes a snapshot.
STOP_LIMIT_S = 60.0
#: How much of what the child said is quoted in an error.
_QUOTED_BYTES = 2000


class Broker:
    """A broker in a child process, from `start` (or `with`) until `stop`.

    A free port is kept for every later `start`, so that clients find the broker again.

    Args:
        data_dir: Folder of its data; made where it is missing.
        fsync: `always`, `interval` or `never`: when messages are on the disk. None: as the settings say, else `always`.
        config: TOML file with settings; the other arguments win over it.
        start_limit_s: Seconds that a start takes at most.
        **options: Settings by the names in `conf/penstock.toml`. Ports are free ones unless they are named.

    Raises:
        InvalidRequest: A setting that does not exist, or a value that cannot be.

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
        given = {
            name: "off" if name in ("amqp_port", "http_port") and value is None else value for name, value in options.items()
        }
        # Wrong values are refused here, by the caller's line, rather than in the child.
        settings = keys.load(self._config, {**given, "data": self.data_dir})
        self._flags = {name: keys.as_text(getattr(settings, name)) for name, value in given.items() if value is not None}
        self._start_limit = start_limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        self._flight_url: str | None = None
        self._amqp_url: str | None = None
        self._http_url: str | None = None
        self._free_ports = [name for name in ("flight_port", "amqp_port", "http_port") if self._flags.get(name) == "0"]
        self._reserved: list[socket.socket] = []
        weakref.finalize(self, _let_go, self._reserved)

    @property
    def url(self) -> str:
        """Value for the option `url`. It stays the same over a restart."""
        return self.flight_url

    @property
    def flight_url(self) -> str:
        """Address of the Flight plane.

        Raises:
            InvalidRequest: The broker was not started yet.
        """
        if self._flight_url is None:
            raise errors.InvalidRequest("this broker was not started yet: use `with Broker(…) as broker:`, or call start()")
        return self._flight_url

    @property
    def amqp_url(self) -> str:
        """Address of the first AMQP listener, for any AMQP 1.0 client. It stays the same over a restart.

        Raises:
            InvalidRequest: The broker was not started yet, or is without AMQP.
        """
        if self._flight_url is None:
            raise errors.InvalidRequest("this broker was not started yet: use `with Broker(…) as broker:`, or call start()")
        if self._amqp_url is None:
            raise errors.InvalidRequest("this broker was started without AMQP: leave out amqp_port=off")
        return self._amqp_url

    @property
    def http_url(self) -> str:
        """Address of the page, metrics, health and the API in JSON. It stays the same over a restart.

        Raises:
            InvalidRequest: The broker was not started yet, or is without HTTP.
        """
        if self._flight_url is None:
            raise errors.InvalidRequest("this broker was not started yet: use `with Broker(…) as broker:`, or call start()")
        if self._http_url is None:
            raise errors.InvalidRequest("this broker was started without HTTP: leave out http_port=off")
        return self._http_url

    @property
    def pid(self) -> int:
        """The process id of the running broker.

        Raises:
            InvalidRequest: It is not running.
        """
        if self._process is None:
            raise errors.InvalidRequest("this broker is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the process lives."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """Return the text that the broker has written to stderr since its last start."""
        if self._said is None:
            return ""
        # pread: the child writes through the same file description, so its place must not move.
        return os.pread(self._said.fileno(), os.fstat(self._said.fileno()).st_size, 0).decode(errors="replace")

    def declare(self, queue: str, *, credentials: Credentials = NOBODY, **options: Any) -> None:
        """Make a queue; nothing happens when it is there already, declared alike.

        Args:
            queue: Its name.
            credentials: A login, where the broker has users, or a certificate of a CA that this machine does not trust anyway.
            **options: Options of the queue, by the names in docs/queues.md.

        Raises:
            PenstockError: The broker refuses: a wrong option, or a queue that is declared otherwise.

        Example:
            broker.declare("orders", maxMessages=100_000, deadLetterQueue="orders-dead")
        """
        from ..client.flight import Client

        with Client(self.url, credentials) as client:
            client.call("queue.declare", queue=queue, options=options)

    def start(self) -> Broker:
        """Start, and return when connections are accepted; `with` does so.

        Returns:
            This broker.

        Raises:
            InvalidRequest: It is running already.
            PenstockError: The reason that kept it from starting.
        """
        if self.running:
            raise errors.InvalidRequest(f"this broker is running already (process {self.pid})")
        self._forget()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self._said.close)  # `log` may be asked as long as this object lives
        # In the data directory, so that `-m` finds the package where this process has it, not in the folder it happens to be in.
        self._process = subprocess.Popen(
            self._command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            cwd=self.data_dir,
            env=children.environment(),
            # Ctrl-C in a terminal goes to the whole group; when the broker stops is for the parent to say.
            start_new_session=True,
        )
        try:
            answer = self._await_ready(self._process)
        except BaseException:
            self.kill()
            raise
        _let_go(self._reserved)
        self._flight_url, self._amqp_url, self._http_url = str(answer["flight"]), answer["amqp"], answer["http"]
        self._flags["flight_port"] = self._flight_url.rpartition(":")[2]
        if self._http_url is not None:
            self._flags["http_port"] = self._http_url.rpartition(":")[2]
        if self._amqp_url is not None and not self._listens_elsewhere:
            self._flags["amqp_port"] = self._amqp_url.rpartition(":")[2]
        return self

    def stop(self, *, limit_s: float = STOP_LIMIT_S) -> None:
        """Stop cleanly (SIGTERM); nothing happens when it is not running.

        Args:
            limit_s: Seconds that this takes at most; then the broker is killed.

        Raises:
            PeerError: It did not end cleanly.
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
        """End it as a crash would (SIGKILL). `start` brings it back on the same directory and port."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._close()

    def __enter__(self) -> Broker:
        return self if self.running else self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        # What went wrong inside the block is what the reader must see, not how the broker ended after it.
        with contextlib.suppress(*(() if kind is None else (errors.PenstockError,))):
            self.stop()

    def __repr__(self) -> str:
        return f"<Broker {self.data_dir} {self._flight_url if self.running else 'not running'}>"

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "penstock", "serve", "--data", str(self.data_dir), "--stop-with-stdin"]
        if self._config is not None:
            command += ["--config", str(self._config)]
        for name, value in self._flags.items():
            command += ["--" + name.replace("_", "-"), value]
        return command

    @property
    def _listens_elsewhere(self) -> bool:
        """True where the listeners are named one by one, each with its port."""
        return "listeners" in self._flags or (self._config is not None and "listeners" in keys.read_file(self._config))

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
        said = self.log()[-_QUOTED_BYTES:].strip()
        return f"; it said: {said}" if said else ""

    def _close(self) -> None:
        process, self._process = self._process, None
        for pipe in (process.stdin, process.stdout) if process else ():
            if pipe is not None:
                pipe.close()
        self._reserve_ports()

    def _reserve_ports(self) -> None:
        """A port that was free once is given to the next who asks for any, a client's connection for one, unless it is bound. So
        it is, while no broker runs; the next `start` binds it all the same, since nobody listens."""
        _let_go(self._reserved)
        urls = {"flight_port": self._flight_url, "amqp_port": self._amqp_url, "http_port": self._http_url}
        for name, url in urls.items():
            if name not in self._free_ports or url is None:
                continue
            host, _, port = url.partition("://")[2].rpartition(":")
            with contextlib.suppress(OSError):  # somebody was quicker
                held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
                self._reserved.append(held)
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                held.bind((host.strip("[]"), int(port)))

    def _forget(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._close()
        if self._said is not None:
            self._said.close()
            self._said = None


def _let_go(reserved: list[socket.socket]) -> None:
    while reserved:
        reserved.pop().close()


def _read_line(process: subprocess.Popen[bytes], deadline: float) -> bytes | None:
    """The first line of its stdout; shorter when it ended before; None when the deadline passed."""
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
