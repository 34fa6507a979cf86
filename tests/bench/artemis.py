"""ActiveMQ Artemis as the registry has it, with its default journal, on loopback, for as long as it is needed.

    with artemis(folder, queue) as url: …

The distribution is fetched with Maven, which keeps it; the instance is made anew in `folder` by Artemis's own `create`.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: The last version whose distribution is in the registry; it runs on Java 17.
VERSION = "2.44.0"
COORDINATES = f"org.apache.activemq:apache-artemis:{VERSION}:tar.gz:bin"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
#: Seconds: the download of 46 MB; `create`, which measures the disk for its journal; the start of the JVM.
FETCH_LIMIT_S, CREATE_LIMIT_S, START_LIMIT_S, STOP_LIMIT_S = 300, 60, 60, 30
BUILD = Path(__file__).resolve().parents[2] / "build"


class Unavailable(Exception):
    """Artemis cannot be had or started here; the text says why."""


def distribution() -> Path:
    """The unpacked distribution, fetched the first time. Raises Unavailable."""
    return fetched(COORDINATES, f"apache-artemis-{VERSION}")


def fetched(coordinates: str, name: str, inside: Path | None = None) -> Path:
    """The folder `build/NAME`, unpacked from an archive with these coordinates the first time; `inside` is what it calls itself.

    Raises Unavailable.
    """
    home = BUILD / name
    if home.exists():
        return home
    if shutil.which("mvn") is None or shutil.which("java") is None:
        raise Unavailable(f"{name} is fetched with Maven and runs on Java, and one of them is not on PATH")
    target = BUILD / f"{name}.{os.getpid()}"
    target.mkdir(parents=True, exist_ok=True)
    copy = [f"{PLUGIN}:copy", f"-Dartifact={coordinates}", f"-DoutputDirectory={target}"]
    try:
        _run(["mvn", "-q", "-B", *copy], FETCH_LIMIT_S, target)
        (packed,) = target.glob("*.tar.gz")
        with tarfile.open(packed) as archive:
            archive.extractall(target, filter="data")
        (target / (inside or name)).rename(home)
    finally:
        shutil.rmtree(target, ignore_errors=True)
    return home


@contextmanager
def artemis(folder: Path, queue: str) -> Iterator[str]:
    """The AMQP url of a broker with that queue, its data in `folder` (made, and left for the caller). Raises Unavailable."""
    home, port = distribution(), _free_port()
    folder.parent.mkdir(parents=True, exist_ok=True)
    others = ["--no-web", "--no-hornetq-acceptor", "--no-mqtt-acceptor", "--no-stomp-acceptor", "--no-amqp-acceptor"]
    access = ["--user=bench", "--password=bench", "--allow-anonymous"]
    place = ["--host=127.0.0.1", f"--default-port={port}", f"--queues={queue}", "--silent"]
    _run([str(home / "bin" / "artemis"), "create", str(folder), *place, *access, *others], CREATE_LIMIT_S, folder.parent)
    with open(folder / "log" / "console.txt", "wb") as console:
        process = subprocess.Popen(
            [str(folder / "bin" / "artemis"), "run"],
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
        )
    try:
        _await_port(process, port, folder)
        yield f"amqp://127.0.0.1:{port}"
    finally:
        process.terminate()  # the script has become the JVM (exec), so this is the broker itself
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _run(command: list[str], limit_s: float, cwd: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=environment(),
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
        raise Unavailable(f"{Path(command[0]).name} ended with exit code {done.returncode}: {done.stdout[-800:].strip()}")


def environment() -> dict[str, str]:
    """Without what a user's shell may say to every Artemis, and every JVM."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("ARTEMIS_", "JAVA_ARGS", "JDK_JAVA"))}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _await_port(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said = (folder / "log" / "console.txt").read_text(errors="replace")[-800:].strip()
            raise Unavailable(f"Artemis ended with exit code {process.returncode}: {said}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise Unavailable(f"Artemis did not listen within {START_LIMIT_S} s")
