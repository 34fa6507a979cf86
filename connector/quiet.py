"""Quiet ends of Spark's Python workers.

Spark closes a worker's socket as soon as it needs no more of it: after a LIMIT, and at a query's end. The worker then prints a
traceback of a BrokenPipeError, always over a socket file (conf/spark.conf), sometimes over TCP. Nothing is wrong then.
"""

from __future__ import annotations

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
    main: Any = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon" and getattr(main, "traceback", None) is traceback:
        main.traceback = _Traceback()
