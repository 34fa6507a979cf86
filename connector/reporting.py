"""Our errors in the form of Spark's errors."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ..broker_core.errors import PenstockError
from .workers import hush

_Class = TypeVar("_Class", bound=type)


def reported(error: PenstockError) -> PenstockError:
    """Begin the text with the code, like Spark's errors: `[PENSTOCK.QUEUE_NOT_FOUND] there is …`."""
    text = str(error)
    if text.startswith("[PENSTOCK."):
        return error
    coded = copy.copy(error)
    coded.args = (f"[PENSTOCK.{error.code}] {text}",)
    return coded


def reports_errors(kind: _Class) -> _Class:
    """Decorator of classes that Spark calls: public methods, and their iterators, raise errors as `reported`, without causes.

    Spark prints the tracebacks of all causes, and those from pyarrow and gRPC repeat the error in more words.
    """
    hush()  # on import; each call repeats it for a connector that came by value
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, _reporting(method))
    return kind


def _reporting(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **fields: Any) -> Any:
        hush()
        try:
            result = method(*args, **fields)
        except PenstockError as error:
            raise reported(error) from None
        return _reporting_items(result) if isinstance(result, Iterator) else result

    return call


def _reporting_items(items: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from items
    except PenstockError as error:
        raise reported(error) from None
