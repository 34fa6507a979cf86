"""ActiveMQ Artemis on loopback: an instance of an unpacked distribution, and its process, killed and started again at will.

For the demo, the bench and the tests. Who fetches the distribution is `tests/bench/artemis.py`.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

#: Seconds: `create`, which may measure the disk for its journal; the start of the JVM, with the journal of before; its end.
CREATE_LIMIT_S, START_LIMIT_S, STOP_LIMIT_S = 60, 60, 30
#: Characters of what it said that an error quotes.
_QUOTED = 800


class Unavailable(Exception):
    """Artemis cannot be had or started here; the text says why."""


class Artemis:
    """An instance in `folder`, which is made; it runs from `start` until `kill` or `stop`. `more` are arguments of `create`.

    Raises Unavailable.
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
        """Id of the process; None where it does not run."""
        return None if self._process is None else self._process.pid

    @property
    def command(self) -> tuple[list[str], dict[str, str]]:
        """Command of a script that becomes the JVM, and its environment."""
        return [str(self.folder / "bin" / "artemis"), "run"], self._environment

    def start(self) -> Artemis:
        """Start it on the data that it has, and wait until it listens. Raises Unavailable."""
        command, environ = self.command
        with open(self.folder / "log" / "console.txt", "wb") as console:
            self._process = subprocess.Popen(
                command, cwd=self.folder, env=environ, stdin=subprocess.DEVNULL, stdout=console, stderr=console
            )
        self._await_port(self._process)
        return self

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """Stop it, or kill it where that takes too long."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_LIMIT_S)
            self.kill()

    def _await_port(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                said = (self.folder / "log" / "console.txt").read_text(errors="replace")[-_QUOTED:].strip()
                raise Unavailable(f"Artemis ended with exit code {process.returncode}: {said}")
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
    """Return ours without what a user's shell may say to every Artemis, and every JVM."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("ARTEMIS_", "JAVA_ARGS", "JDK_JAVA"))}


def held_port(owner: object) -> int:
    """Return a port of loopback that is given to nobody else while `owner` lives. A broker may listen there, again and again.

    Linux lets a process listen where a socket is bound that does not listen, if both say SO_REUSEADDR, as brokers do. Elsewhere
    the port is only free now.
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
