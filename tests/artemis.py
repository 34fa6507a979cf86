"""ActiveMQ Artemis on loopback, for the demo, the benchmarks and the tests: its distribution, an instance, and its process.

    with artemis(folder, queue, …) as url: …

Maven fetches the distribution and keeps it. Artemis's own `create` makes an instance, whose process can be killed and started
again. Run as a program, this module prints the folder of the distribution; `./dev demo --broker artemis` uses that.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: The newest version whose distribution is in the registry. It runs on Java 17.
VERSION = "2.44.0"
COORDINATES = f"org.apache.activemq:apache-artemis:{VERSION}:tar.gz:bin"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
BUILD = Path(__file__).resolve().parents[1] / "build"
#: Seconds for the download of 46 MB, for `create` (which may measure the disk), for the JVM's start, and for its end.
FETCH_LIMIT_S, CREATE_LIMIT_S, START_LIMIT_S, STOP_LIMIT_S = 300, 60, 60, 30
#: Characters of its output that an error quotes.
_QUOTED = 800


class Unavailable(Exception):
    """Artemis cannot be fetched or started on this machine; the text names the reason."""


class Artemis:
    """An instance in `folder`, which this class creates. It runs from `start` until `kill` or `stop`.

    `more` are arguments of `artemis create`. Raises Unavailable.
    """

    def __init__(self, home: Path, folder: Path, queues: Iterable[str], *more: str, java: str | None = None) -> None:
        home = home.absolute()
        if not (home / "bin" / "artemis").exists():
            raise Unavailable(
                f"there is no ActiveMQ Artemis in {home}: name the folder of an unpacked one, which has bin/artemis"
            )
        self.folder, self.port = folder.absolute(), held_port(self)
        self.url = f"amqp://127.0.0.1:{self.port}"
        self.version = (re.findall(r"artemis-([\d.]+)$", str(home)) or [""])[0]
        self._environment = environment() | ({} if java is None else {"JAVA_ARGS": java})
        self._process: subprocess.Popen[bytes] | None = None
        folder.parent.mkdir(parents=True, exist_ok=True)
        others = ["--no-web", "--no-hornetq-acceptor", "--no-mqtt-acceptor", "--no-stomp-acceptor", "--no-amqp-acceptor"]
        place = ["--host=127.0.0.1", f"--default-port={self.port}", f"--queues={','.join(queues)}", "--silent"]
        command = [str(home / "bin" / "artemis"), "create", str(self.folder), *place, *others, *more]
        finished(command, CREATE_LIMIT_S, folder.parent, self._environment)

    @property
    def pid(self) -> int | None:
        """Id of the process, or None while it does not run."""
        return None if self._process is None else self._process.pid

    @property
    def command(self) -> tuple[list[str], dict[str, str]]:
        """The command, whose script becomes the JVM, and its environment."""
        return [str(self.folder / "bin" / "artemis"), "run"], self._environment

    def start(self) -> Artemis:
        """Start the process on the existing data, and wait until it listens. Raises Unavailable."""
        command, environ = self.command
        with open(self.folder / "log" / "console.txt", "wb") as console:
            self._process = subprocess.Popen(
                command, cwd=self.folder, env=environ, stdin=subprocess.DEVNULL, stdout=console, stderr=console
            )
        self._await_port(self._process)
        return self

    def kill(self) -> None:
        """Send SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL if the process does not end in time."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_LIMIT_S)
            self.kill()

    def _await_port(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                output = (self.folder / "log" / "console.txt").read_text(errors="replace")[-_QUOTED:].strip()
                raise Unavailable(f"Artemis ended with exit code {process.returncode}: {output}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        self.kill()
        raise Unavailable(f"Artemis did not listen within {START_LIMIT_S} s")


def finished(command: list[str], limit_s: float, cwd: Path, environ: dict[str, str] | None = None) -> None:
    """Run a command of Artemis or Maven to its end. Raises Unavailable."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=environment() if environ is None else environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{Path(command[0]).name} took more than {limit_s} s") from None
    if done.returncode != 0:
        raise Unavailable(f"{Path(command[0]).name} ended with exit code {done.returncode}: {done.stdout[-_QUOTED:].strip()}")


def environment() -> dict[str, str]:
    """Return this process's environment without variables that configure every Artemis or every JVM."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("ARTEMIS_", "JAVA_ARGS", "JDK_JAVA"))}


def held_port(owner: object) -> int:
    """Reserve a port of loopback for the lifetime of `owner`. A broker can listen on it repeatedly.

    On Linux, a process can listen on a port that another socket has bound without listening, if both set SO_REUSEADDR, as
    brokers do. On other systems the port is only free at this moment.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    port = int(holder.getsockname()[1])
    if sys.platform == "linux":
        weakref.finalize(owner, holder.close)
    else:
        holder.close()
    return port


def distribution() -> Path:
    """Return the folder of the distribution; fetches it the first time. Raises Unavailable."""
    return fetched(COORDINATES, f"apache-artemis-{VERSION}")


def fetched(coordinates: str, name: str, inside: Path | None = None) -> Path:
    """Return the folder `build/NAME`; the first time, fetch and unpack the archive with these Maven coordinates.

    `inside` is the archive's own folder, if it is not `name`. Raises Unavailable.
    """
    home = BUILD / name
    if home.exists():
        return home
    missing = [tool for tool in ("mvn", "java") if shutil.which(tool) is None]
    if missing:
        raise Unavailable(f"{name} is fetched with Maven and runs on Java, and {' and '.join(missing)} is not on PATH")
    target = BUILD / f"{name}.{os.getpid()}"
    target.mkdir(parents=True, exist_ok=True)
    copy = [f"{PLUGIN}:copy", f"-Dartifact={coordinates}", f"-DoutputDirectory={target}"]
    try:
        finished(["mvn", "-q", "-B", *copy], FETCH_LIMIT_S, target)
        (packed,) = target.glob("*.tar.gz")
        with tarfile.open(packed) as archive:
            archive.extractall(target, filter="data")
        (target / (inside or name)).rename(home)
    finally:
        shutil.rmtree(target, ignore_errors=True)
    return home


@contextmanager
def running(folder: Path, *queues: str) -> Iterator[Artemis]:
    """Run a broker with these queues. It creates `folder` and leaves it to the caller. Raises Unavailable."""
    broker = Artemis(distribution(), folder, queues, "--user=bench", "--password=bench", "--allow-anonymous").start()
    try:
        yield broker
    finally:
        broker.stop()


@contextmanager
def artemis(folder: Path, *queues: str) -> Iterator[str]:
    """Run a broker with these queues, and yield its AMQP URL. Raises Unavailable."""
    with running(folder, *queues) as broker:
        yield broker.url


if __name__ == "__main__":
    try:
        print(distribution())
    except Unavailable as error:
        sys.exit(str(error))
