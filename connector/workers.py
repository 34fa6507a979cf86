"""Spark's Python workers: no traceback at a normal end, and shorter garbage collections.

Spark closes a worker's socket when it needs no more rows, as after a LIMIT. The worker then prints the traceback of a
BrokenPipeError: always over a socket file (conf/spark.conf), sometimes over TCP. After each task a worker collects garbage among
all loaded modules, which takes 20 ms with PySpark, numpy and pyarrow.
"""

from __future__ import annotations

import gc
import sys
import traceback
from typing import Any


class _Traceback:
    """The module `traceback`, which does not print a broken pipe."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self) -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            traceback.print_exc()


def hush() -> None:
    main = _worker()
    if getattr(main, "traceback", None) is traceback:
        main.traceback = _Traceback()


def freeze_modules() -> None:
    """Exclude all existing objects from garbage collection, once."""
    main = _worker()
    if main is not None and not hasattr(main, "has_frozen_modules"):
        main.has_frozen_modules = True
        gc.collect()
        gc.freeze()


def _worker() -> Any:
    """Return the main module if this process is a Spark worker."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    return main if spec is not None and spec.name == "pyspark.daemon" else None
