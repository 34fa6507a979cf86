"""Declarations in a broker's settings: queues, exchanges and bindings that are there when it has started, and policies by name.

This module says how they are written; whether the engine takes them shows when they are declared (`service.declared`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from .. import errors
from . import strict_json


@dataclass(frozen=True)
class DeclaredQueue:
    """Queue that is declared at the start."""

    name: str
    type: str = "fifo"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DeclaredExchange:
    """Exchange that is declared at the start."""

    name: str
    type: str = "direct"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DeclaredBinding:
    """`key`: of a direct exchange, the pattern of a topic exchange; `arguments`: of a headers exchange."""

    exchange: str
    queue: str
    key: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    selector: str | None = None


@dataclass(frozen=True)
class DeclaredPolicy:
    """See `engine.policies.Policy`."""

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
_WORDS = {"str": "a text", "bool": "true or false", "str | None": "a text", "Mapping[str, Any]": "a table"}
_TYPES: dict[str, Any] = {"str": str, "bool": bool, "str | None": (str, type(None)), "Mapping[str, Any]": Mapping}


def allowed(what: str) -> str:
    """In words, for the settings' table."""
    return f"a list of tables, each with {', '.join(item.name for item in fields(KINDS[what]))}; on the command line as JSON"


def parser(what: str) -> Callable[[object], tuple[Any, ...]]:
    """From tables (as TOML or JSON have them), or the declarations themselves. ValueError when it is no list of tables;
    InvalidRequest, with the place and the field, when a field is wrong."""

    def parse(value: object) -> tuple[Any, ...]:
        if isinstance(value, str):
            value = strict_json.loads(value)
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            raise ValueError
        return tuple(_one(KINDS[what], f"{what}[{number}]", table) for number, table in enumerate(value))

    return parse


def _one(kind: type[_T], where: str, table: object) -> _T:
    if isinstance(table, kind):
        table = asdict(table)  # type: ignore[call-overload]  # they all are dataclasses
    if not isinstance(table, Mapping):
        raise ValueError
    known = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    for name, value in table.items():
        if name not in known:
            raise errors.InvalidRequest(f"{where}: {name} is not a key; allowed are {', '.join(known)}")
        wanted = str(known[name].type)
        if not isinstance(value, _TYPES[wanted]):
            raise errors.InvalidRequest(f"{where}.{name} cannot be {value!r:.80}; it must be {_WORDS[wanted]}")
    missing = [name for name in ("name", "exchange", "queue", "pattern") if name in known and name not in table]
    if missing:
        raise errors.InvalidRequest(f"{where}.{missing[0]} is missing")
    return kind(**table)
