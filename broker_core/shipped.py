"""Modules of `broker_core` that are imported only where they are needed, also where the code travels by value.

Spark Connect, and the planner of a stream after `--py-files`, get the data source pickled with the modules it uses, to processes
that cannot import them. What would make every import slow (the AMQP library, the decoder of messages) does not travel like that:
it goes along as source, and is imported from there when it is first asked for.
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

#: Where this code travels by value: what `sources` gave, else None. See `connector.registration`.
SOURCES: dict[str, bytes] | None = None
#: What `broker_core` is called in there. By its own name it would seem to be installed: what is pickled next would refer to it.
NAME = "penstock_shipped"

#: Folders of `penstock` that go to executors, with the modules in them, and single modules beside those: this is said here, and
#: `connector.pyfiles` and `connector.registration` follow. Nothing else of `broker_core` is sent, and none of these imports it.
FOLDERS = (
    *(
        "broker_core/amqp",
        "broker_core/archive",
        "broker_core/archive/read",
        "broker_core/archive/table",
        "broker_core/client",
        "broker_core/client/amqp",
        "broker_core/client/flight",
    ),
    *("broker_core/messages", "broker_core/messages/encoding", "broker_core/selectors", "broker_core/stores", "connector"),
    *("connector/batch", "connector/brokers", "connector/foreign", "connector/sink", "connector/stream", "connector/task"),
)
MODULES = (
    "__init__",
    "broker_core/__init__",
    "broker_core/quantities",
    "broker_core/errors",
    "broker_core/local_files",
    "broker_core/notations",
    "broker_core/shipped",
    "broker_core/similar",
    "broker_core/wrong_port",
)
#: Packages and modules of `broker_core` that the connector imports when it is imported. Where code travels by value these are
#: pickled with it; those that are imported late go as source, with all that they import.
AT_ONCE = (
    *("archive", "client", "quantities", "errors", "local_files", "messages", "notations", "shipped", "similar", "stores"),
    "wrong_port",
)


def module(name: str) -> Any:
    """`broker_core.NAME`, or its shipped copy, whose classes are its own: an error of it is none of `broker_core.errors`."""
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
    """Around what is called in `module`: an error of its copy's classes becomes the one of ours."""
    try:
        yield
    except Exception as error:
        if isinstance(error, PenstockError) or not hasattr(error, "to_json"):
            raise
        raise from_json(error.to_json()) from error


class Finder(MetaPathFinder, InspectLoader):
    """Imports from sources in memory, after everything else has been asked. A package's name ends with a dot."""

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        self._sources = sources

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        """Find a module among the sources."""
        return spec_from_loader(name, self) if self.is_package(name) or name in self._sources else None

    def is_package(self, name: str) -> bool:
        """Say whether the source of this name is a package's."""
        return name + "." in self._sources

    def get_source(self, name: str) -> str:
        """Return the text of a module."""
        return zlib.decompress(self._sources.get(name) or self._sources[name + "."]).decode()


def sources() -> dict[str, bytes]:
    """Collect what `SOURCES` is to be: by module name, compressed."""
    found = {}
    for name in _modules():
        key, source = _source(name)
        found[key.replace("penstock.broker_core", NAME, 1)] = zlib.compress(source.encode(), 9)  # its own imports are relative
    return found


def _modules() -> Iterator[str]:
    """The full names of all modules of `broker_core` that go to executors."""
    yield from (f"penstock.{name.replace('/', '.')}".removesuffix(".__init__") for name in MODULES[1:])
    for folder in FOLDERS:
        if folder.startswith("broker_core/"):
            package = f"penstock.{folder.replace('/', '.')}"
            yield package
            path = importlib.import_module(package).__path__
            yield from (entry.name for entry in pkgutil.iter_modules(path, package + ".") if not entry.ispkg)


def _source(name: str) -> tuple[str, str]:
    # Found, not imported: a planner need not have numpy.
    spec = find_spec(name)
    assert spec is not None
    loader: Any = spec.loader  # of a file, or of a zip
    source: str = loader.get_source(spec.name)
    return spec.name + ("." if spec.submodule_search_locations is not None else ""), source
