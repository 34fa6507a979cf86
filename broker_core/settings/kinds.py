"""Allowed values of settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..quantities import SIZES, TIMES
from ..quantities import parse as parse_quantity
from . import declarations, listeners

#: A century, which Python's dates and waits support.
LONGEST_S = 36_525 * 86_400.0


@dataclass(frozen=True)
class Kind:
    """`parse` raises ValueError for a value that is not `allowed`."""

    allowed: str
    parse: Callable[[object], Any]


def _number_with_unit(value: object, units: Mapping[str, int]) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    return parse_quantity(value, units) if isinstance(value, str) else value


def or_unset(kind: Kind) -> Kind:
    return Kind(f"{kind.allowed}, or left out", lambda value: None if value is None else kind.parse(value))


def or_off(kind: Kind, allowed: str | None = None) -> Kind:
    """A setting that is off is None."""
    return Kind(allowed or f'{kind.allowed}, or "off"', lambda value: None if value in (None, "off") else kind.parse(value))


def size(least: int, *, most: int | None = None) -> Kind:
    def parse(value: object) -> int:
        number = _number_with_unit(value, SIZES)
        if number != int(number) or number < least or (most is not None and number > most):
            raise ValueError
        return int(number)

    return Kind(
        f"a size in bytes, at least {least:,}{'' if most is None else f' and at most {most:,}'}, as a number or a text such as"
        ' "64 MiB"',
        parse,
    )


def count(least: int, most: int) -> Kind:
    def parse(value: object) -> int:
        number = listeners.parse_number(value)
        if not least <= number <= most:
            raise ValueError
        return number

    return Kind(f"a whole number from {least:,} to {most:,}", parse)


def seconds(least: float, *, most: float = LONGEST_S) -> Kind:
    def parse(value: object) -> float:
        number = float(_number_with_unit(value, TIMES))
        if not least <= number <= most:
            raise ValueError
        return number

    return Kind(
        f'a time in seconds, at least {least:g} and at most {most:.0f}, as a number or a text such as "5 s", "12 h", "7 d"',
        parse,
    )


def choice(*names: str) -> Kind:
    def parse(value: object) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return Kind("one of " + ", ".join(names), parse)


def _parse_switch(value: object) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError
    return value


def _parse_path(value: object) -> Path:
    if not isinstance(value, (str, Path)) or not str(value):
        raise ValueError
    return Path(value)


def _parse_text(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError
    return value


def _parse_names(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [] if value in ("", "[]") else value.split(",")
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise ValueError
    return tuple(listeners.parse_host(name.strip().lower()) for name in value)


PORT = Kind("a port number, or 0 for a free one", listeners.parse_port)
PORT_OR_OFF = or_off(PORT, 'a port number, 0 for a free one, or "off"')
HOST = Kind("a host name or address to listen on", listeners.parse_host)
PATH = Kind("a folder", _parse_path)
FILE = or_unset(Kind("a file", _parse_path))
ARCHIVE = Kind('a folder, a URL such as s3://bucket/folder, gs://… or abfss://…, or "off"', _parse_text)
STORE = or_unset(Kind("a URL such as s3://bucket/folder, gs://…, az://…, or the path of a folder", _parse_text))
SWITCH = Kind("true or false", _parse_switch)
LISTENERS = Kind(listeners.ALLOWED, listeners.parse)
QUEUES, EXCHANGES, BINDINGS, POLICIES = (Kind(declarations.allowed(key), declarations.parser(key)) for key in declarations.KINDS)
HOST_OR_UNSET = or_unset(HOST)
NAMES = Kind("a list of host names; on the command line with commas between them", _parse_names)
