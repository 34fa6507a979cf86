"""ActiveMQ Artemis as the registry has it, with its default journal, on loopback, for as long as it is needed.

    with artemis(folder, queue, …) as url: …

The distribution is fetched with Maven, which keeps it; the instance is made anew in `folder` by Artemis's own `create`. As a
program it prints where the distribution is: `./dev demo --broker artemis` asks.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.jobs.artemis import Artemis, Unavailable, environment, finished

__all__ = ["VERSION", "Unavailable", "artemis", "distribution", "environment", "fetched", "running"]

#: The last version whose distribution is in the registry; it runs on Java 17.
VERSION = "2.44.0"
COORDINATES = f"org.apache.activemq:apache-artemis:{VERSION}:tar.gz:bin"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
FETCH_LIMIT_S = 300  # a download of 46 MB
WARM_UPS = 2  # repeats of each side that do not count: until its JVM has compiled what is hot
BUILD = Path(__file__).resolve().parents[2] / "build"


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
    """A broker with these queues that runs, its data in `folder` (made, and left for the caller). Raises Unavailable."""
    broker = Artemis(distribution(), folder, queues, "--user=bench", "--password=bench", "--allow-anonymous").start()
    try:
        yield broker
    finally:
        broker.stop()


@contextmanager
def artemis(folder: Path, *queues: str) -> Iterator[str]:
    """The AMQP url of such a broker. Raises Unavailable."""
    with running(folder, *queues) as broker:
        yield broker.url


if __name__ == "__main__":
    try:
        print(distribution())
    except Unavailable as error:
        sys.exit(str(error))
