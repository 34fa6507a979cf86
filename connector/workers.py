"""Spark's Python workers, as far as they can be better where our code runs in them: quiet ends, and short collections of garbage.

Spark closes a worker's socket as soon as it needs no more of it: after a LIMIT, and at a query's end. The worker then prints a
traceback of a BrokenPipeError, always over a socket file (conf/spark.conf), sometimes over TCP. Nothing is wrong then.

After each task a worker looks for garbage in all that it has loaded: 20 ms with PySpark, numpy and pyarrow.
"""

from __future__ import annotations

import gc
import sys
import traceback
from typing import Any


class _Traceback:
    """The module `traceback`, but that it does not print a broken pipe."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self) -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            traceback.print_exc()


def hush() -> None:
    """Let this process, if it is one of Spark's workers, end without a word when Spark has closed its socket."""
    main = _worker()
    if getattr(main, "traceback", None) is traceback:
        main.traceback = _Traceback()


def freeze_modules() -> None:
    """Let this process, if it is one of Spark's workers, look for garbage only in what is made from now on; the first time."""
    if _worker() is not None and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def _worker() -> Any:
    """Return the main module of this process, if it is one of Spark's workers."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    return main if spec is not None and spec.name == "pyspark.daemon" else None
