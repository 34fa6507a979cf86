"""Queues, exchanges, bindings and policies that a start declares. This module checks their form, the engine their content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from .. import errors
from . import strict_json


@dataclass(frozen=True)
class DeclaredQueue:
    """A queue."""

    name: str
    type: str = "fifo"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DeclaredExchange:
    """An exchange."""

    name: str
    type: str = "direct"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DeclaredBinding:
    """`key` is also the pattern of a topic exchange; `arguments` are for headers."""

    exchange: str
    queue: str
    key: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    selector: str | None = None


@dataclass(frozen=True)
class DeclaredPolicy:
    """Policy for names that match `pattern`."""

    pattern: str
    create: bool = False
    type: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


_T = TypeVar("_T")
KINDS: dict[str, type[Any]] = {
    "queues": DeclaredQueue,
    "exchanges": DeclaredExchange,
    "bindings": DeclaredBinding,
    "policies": DeclaredPolicy,
}
#: By annotation: the type of values, and its name in errors.
_TYPES: dict[str, tuple[Any, str]] = {
    "str": (str, "a text"),
    "bool": (bool, "true or false"),
    "str | None": ((str, type(None)), "a text"),
    "Mapping[str, Any]": (Mapping, "a table"),
}


def allowed(key: str) -> str:
    return f"a list of tables, each with {', '.join(item.name for item in fields(KINDS[key]))}; on the command line as JSON"


def parser(key: str) -> Callable[[object], tuple[Any, ...]]:
    """Return a parser of tables of TOML or JSON, or of declarations. It raises ValueError for any other value, and
    InvalidRequest, with the place, for a wrong field."""

    def parse(value: object) -> tuple[Any, ...]:
        return tuple(
            _declaration(KINDS[key], f"{key}[{number}]", table) for number, table in enumerate(strict_json.tables(value))
        )

    return parse


def _declaration(kind: type[_T], where: str, table: object) -> _T:
    if isinstance(table, kind):
        table = asdict(table)  # type: ignore[call-overload]  # all kinds are dataclasses
    if not isinstance(table, Mapping):
        raise ValueError
    known = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    strict_json.check_keys(where, table, known)
    for name, value in table.items():
        kind_of_value, words = _TYPES[str(known[name].type)]
        if not isinstance(value, kind_of_value):
            raise errors.InvalidRequest(f"{where}.{name} cannot be {value!r:.80}; it must be {words}")
    missing = [name for name in ("name", "exchange", "queue", "pattern") if name in known and name not in table]
    if missing:
        raise errors.InvalidRequest(f"{where}.{missing[0]} is missing")
    return kind(**table)
