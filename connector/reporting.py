"""Errors as Spark's users meet them: the code in front, said once, without what led to them."""

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
    """Return a copy of the error whose text begins with its code: `[PENSTOCK.QUEUE_NOT_FOUND] there is …`, as Spark's own do."""
    text = str(error)
    if text.startswith("[PENSTOCK."):
        return error
    found = copy.copy(error)
    found.args = (f"[PENSTOCK.{error.code}] {text}",)
    return found


def reports_errors(kind: _Class) -> _Class:
    """Let the public methods of a class, and what they yield, raise Penstock's errors as `reported`.

    For the classes that Spark calls. It prints the traceback of an error with those of all its causes. Those of pyarrow and gRPC
    say the same again in more words, so they are left out.
    """
    hush()  # where the connector is imported; where it came by value, each call does it
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, _reporting(method))
    return kind


def _reporting(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **fields: Any) -> Any:
        hush()
        try:
            found = method(*args, **fields)
        except PenstockError as error:
            raise reported(error) from None
        return _each(found) if isinstance(found, Iterator) else found

    return call


def _each(items: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from items
    except PenstockError as error:
        raise reported(error) from None
