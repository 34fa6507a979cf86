"""Modules of `broker_core` that travel to Spark's processes.

Spark Connect, and the planner of a stream after `--py-files`, send the pickled data source with its modules to processes that
cannot import them. Modules that would make imports slow travel as source, for the first use.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from typing import Any

from .errors import PenstockError, from_json

#: The result of `sources` in a process that received this code by value, else None. See `connector.registration`.
SOURCES: dict[str, bytes] | None = None
#: `broker_core` among the sources. Under its own name it would look installed, and a later pickle would refer to it.
NAME = "penstock_shipped"

#: Folders whose modules go to executors, and single modules. They import no other part of `broker_core`.
FOLDERS = (
    *("broker_core/amqp", "broker_core/archive", "broker_core/archive/read", "broker_core/archive/table"),
    *("broker_core/client", "broker_core/client/amqp", "broker_core/client/flight"),
    *("broker_core/messages", "broker_core/messages/encoding", "broker_core/selectors", "broker_core/stores", "connector"),
    *("connector/batch", "connector/brokers", "connector/foreign", "connector/sink", "connector/stream", "connector/task"),
)
_SINGLE = ("quantities", "moments", "errors", "local_files", "notations", "executor_modules", "similar", "wrong_port")
MODULES = ("__init__", "broker_core/__init__", *(f"broker_core/{name}" for name in _SINGLE))
#: Packages and modules that the connector imports, which a pickle by value contains. Later imports use the sources.
AT_ONCE = ("archive", "client", "messages", "stores", *_SINGLE)


def module(name: str) -> Any:
    """Import `broker_core.NAME` or its shipped copy, whose error classes are different."""
    try:
        return importlib.import_module(f".{name}", __package__)
    except ModuleNotFoundError as error:
        if SOURCES is None or error.name is None or error.name.partition(".")[0] != "penstock":
            raise
    if NAME not in sys.modules:
        sys.meta_path.append(Finder(SOURCES))
    return importlib.import_module(f"{NAME}.{name}")


@contextmanager
def own_errors() -> Iterator[None]:
    """Convert errors of a shipped copy to errors of `broker_core.errors`."""
    try:
        yield
    except Exception as error:
        if isinstance(error, PenstockError) or not hasattr(error, "to_json"):
            raise
        raise from_json(error.to_json()) from error


class Finder(MetaPathFinder, InspectLoader):
    """Imports from sources. A package's name ends with a dot."""

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        self._sources = sources

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        return spec_from_loader(name, self) if self.is_package(name) or name in self._sources else None

    def is_package(self, name: str) -> bool:
        return name + "." in self._sources

    def get_source(self, name: str) -> str:
        return zlib.decompress(self._sources.get(name) or self._sources[name + "."]).decode()


def sources() -> dict[str, bytes]:
    """Return the content of `SOURCES`."""
    texts = {}
    for name in _modules():
        key, source = _source(name)
        texts[key.replace("penstock.broker_core", NAME, 1)] = zlib.compress(source.encode(), 9)  # its own imports are relative
    return texts


def _modules() -> Iterator[str]:
    yield from (f"penstock.{name.replace('/', '.')}".removesuffix(".__init__") for name in MODULES[1:])
    for folder in FOLDERS:
        if folder.startswith("broker_core/"):
            package = f"penstock.{folder.replace('/', '.')}"
            yield package
            path = importlib.import_module(package).__path__
            yield from (entry.name for entry in pkgutil.iter_modules(path, package + ".") if not entry.ispkg)


def _source(name: str) -> tuple[str, str]:
    # Without an import, because a planner may lack numpy.
    spec = find_spec(name)
    assert spec is not None
    loader: Any = spec.loader  # of a file, or of a zip
    source: str = loader.get_source(spec.name)
    return spec.name + ("." if spec.submodule_search_locations is not None else ""), source
