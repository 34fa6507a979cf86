"""Builds the client programs of this folder in build/clients/, once for each version of their sources.

Each tool chain fetches the pinned client from its registry: npm, Go, crates.io, Maven Central or PyPI. proton is in the venv.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build" / "clients"
#: Limit of a build, seconds. The longest ones, Rust's and Go's, need one minute of CPU time each from an empty cache.
BUILD_LIMIT_S = 300
STORE_LIMIT_S = 1200  # the S3 server has three hundred packages


class MissingTool(Exception):
    """Lack of a client's tool chain on this machine."""


def command_of(name: str) -> list[str]:
    """Return the command that starts the client program `name`; build it if necessary. Raises MissingTool, CalledProcessError."""
    tools, make, command = CLIENTS[name]
    for tool, advice in tools.items():
        if shutil.which(tool) is None:
            raise MissingTool(f"{name} needs {tool}, which is not on PATH: {advice}")
    return command(_made(name, make))


def _made(name: str, make: Callable[[Path], None]) -> Path:
    folder = BUILD / f"{name}-{_hash(HERE / name)}"
    with _alone(name):
        if folder.exists():
            return folder
        for old in BUILD.glob(f"{name}-*"):
            shutil.rmtree(old, ignore_errors=True)
        # Built under another name, so that the final name always has a complete build.
        half = BUILD / f"{name}.half"
        shutil.rmtree(half, ignore_errors=True)
        shutil.copytree(HERE / name, half)
        print(f"building the client {name}", file=sys.stderr, flush=True)
        make(half)
        half.rename(folder)
    return folder


def _hash(folder: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        total.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return total.hexdigest()[:16]


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Prevent two test runs from building the same program together."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / f"{name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(folder: Path, *command: str) -> None:
    """The output is written to our stderr."""
    environment = {**os.environ, "GOFLAGS": "-mod=readonly"}
    subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True, timeout=BUILD_LIMIT_S
    )


def _make_by_npm(folder: Path) -> None:
    run(folder, "npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts")


def _make_go_amqp(folder: Path) -> None:
    run(folder, "go", "build", "-o", "client", ".")


def _make_jars(folder: Path) -> None:
    run(folder, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=lib")


def _make_java(folder: Path) -> None:
    _make_jars(folder)
    run(folder, "javac", "-cp", "lib/*", "-d", "classes", *sorted(path.name for path in folder.glob("*.java")))


def _start_java(main: str) -> Callable[[Path], list[str]]:
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return lambda folder: ["java", *options, "-cp", f"{folder}/classes:{folder}/lib/*", main]


def _make_by_cargo(folder: Path) -> None:
    """Keep only the program: the libraries need fifty times its space."""
    run(folder, "cargo", "build", "--quiet", "--target-dir", "target")
    (folder / "target" / "debug" / "client").rename(folder / "client")
    shutil.rmtree(folder / "target")


def _make_versitygw(folder: Path) -> None:
    version = (folder / "version").read_text().strip()
    environment = {**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"}  # works without a C compiler
    command = ["go", "install", f"github.com/versity/versitygw/cmd/versitygw@{version}"]
    subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True, timeout=STORE_LIMIT_S
    )


def _make_by_pip(folder: Path) -> None:
    """Next to the program, because the virtual environment of the tests must not depend on the SDK."""
    run(folder, sys.executable, "-m", "pip", "install", "-q", "--target", "lib", "-r", "requirements.txt")


def _make_proton(folder: Path) -> None:
    pass


JAVA = {"java": "install Java 17", "javac": "install a JDK 17, not only its runtime", "mvn": "install Maven 3"}
#: Client → tools that it needs with the remedy for a missing one, its build, and its start.
CLIENTS: dict[str, tuple[dict[str, str], Callable[[Path], None], Callable[[Path], list[str]]]] = {
    "rhea": (
        dict.fromkeys(("node", "npm"), "install Node 18 or newer"),
        _make_by_npm,
        lambda folder: ["node", str(folder / "client.js")],
    ),
    "azurite": (
        dict.fromkeys(("node", "npm"), "install Node 20 or newer"),
        _make_by_npm,
        lambda folder: ["node", str(folder / "node_modules/azurite/dist/src/blob/main.js")],
    ),
    "go_amqp": ({"go": "install Go 1.25 or newer"}, _make_go_amqp, lambda folder: [str(folder / "client")]),
    "versitygw": ({"go": "install Go 1.25 or newer"}, _make_versitygw, lambda folder: [str(folder / "versitygw")]),
    "qpid_jms": (JAVA, _make_java, _start_java("Client")),
    "vertx": (JAVA, _make_java, _start_java("Questions")),
    "fe2o3_amqp": ({"cargo": "install Rust 1.85 or newer"}, _make_by_cargo, lambda folder: [str(folder / "client")]),
    # Not a command: the jars that Spark needs for s3a://.
    "hadoop_aws": ({"mvn": "install Maven 3"}, _make_jars, lambda folder: sorted(map(str, folder.glob("lib/*.jar")))),
    "servicebus_java": (JAVA, _make_java, _start_java("Client")),
    "servicebus_js": (
        dict.fromkeys(("node", "npm"), "install Node 20 or newer"),
        _make_by_npm,
        lambda folder: ["node", str(folder / "client.js")],
    ),
    "servicebus": ({}, _make_by_pip, lambda folder: [sys.executable, str(folder / "client.py")]),
    "proton": ({}, _make_proton, lambda folder: [sys.executable, str(folder / "client.py")]),
}


if __name__ == "__main__":  # `./dev test` on the build machine builds before the tests; `./dev demo` names one
    if sys.argv[1:]:
        try:
            print(*command_of(sys.argv[1]))
        except (MissingTool, OSError, subprocess.SubprocessError) as error:
            sys.exit(str(error))
    for client in CLIENTS if not sys.argv[1:] else ():
        with suppress(MissingTool, OSError, subprocess.SubprocessError):
            command_of(client)
