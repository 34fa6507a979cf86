"""Kinds of settings: the form of a value, and the allowed values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..quantities import SIZES, TIMES
from ..quantities import parse as parse_quantity
from . import declarations, listeners

#: A century, which Python's clocks, dates and waits support.
LONGEST_S = 36_525 * 86_400.0


@dataclass(frozen=True)
class Kind:
    """Form of a key's value. `parse` raises ValueError for a value that is not `allowed`."""

    allowed: str
    parse: Callable[[object], Any]


def _number_with_unit(value: object, units: Mapping[str, int]) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    return parse_quantity(value, units) if isinstance(value, str) else value


def size(least: int, *, most: int | None = None, unset: bool = False) -> Kind:
    """Kind of a number of bytes, with or without a unit; None is allowed if the key may be `unset`."""

    def parse(value: object) -> int | None:
        if value is None and unset:
            return None
        number = _number_with_unit(value, SIZES)
        if number != int(number) or number < least or (most is not None and number > most):
            raise ValueError
        return int(number)

    return Kind(
        f"a size in bytes, at least {least:,}{'' if most is None else f' and at most {most:,}'}, as a number or a text such as"
        f' "64 MiB"{_or_unset(unset)}',
        parse,
    )


def count(least: int, most: int) -> Kind:
    """Kind of a whole number from `least` to `most`."""

    def parse(value: object) -> int:
        number = listeners.parse_number(value)
        if not least <= number <= most:
            raise ValueError
        return number

    return Kind(f"a whole number from {least:,} to {most:,}", parse)


def seconds(least: float, *, most: float = LONGEST_S, unset: bool = False) -> Kind:
    """Kind of a duration in seconds, with or without a unit; None is allowed if the key may be `unset`."""

    def parse(value: object) -> float | None:
        if value is None and unset:
            return None
        number = float(_number_with_unit(value, TIMES))
        if not least <= number <= most:
            raise ValueError
        return number

    return Kind(
        f'a time in seconds, at least {least:g} and at most {most:.0f}, as a number or a text such as "5 s", "12 h", "7 d"'
        f"{_or_unset(unset)}",
        parse,
    )


def seconds_or_off(least: float) -> Kind:
    """Kind of a duration in seconds, or "off", which becomes None."""
    duration = seconds(least)
    return Kind(f'{duration.allowed}, or "off"', lambda value: None if value in (None, "off") else duration.parse(value))


def choice(*names: str) -> Kind:
    """Kind of one of `names`."""

    def parse(value: object) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return Kind("one of " + ", ".join(names), parse)


def _or_unset(unset: bool) -> str:
    return ", or left out" if unset else ""


def _parse_port_or_off(value: object) -> int | None:
    return None if value is None or value == "off" else listeners.parse_port(value)


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


def _parse_file(value: object) -> Path | None:
    return None if value is None else _parse_path(value)


def _parse_archive(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError
    return value


def _parse_text(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError
    return value


def _parse_host_or_unset(value: object) -> str | None:
    return None if value is None else listeners.parse_host(value)


def _parse_names(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [] if value in ("", "[]") else value.split(",")
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise ValueError
    return tuple(listeners.parse_host(name.strip().lower()) for name in value)


PORT = Kind("a port number, or 0 for a free one", listeners.parse_port)
PORT_OR_OFF = Kind('a port number, 0 for a free one, or "off"', _parse_port_or_off)
HOST = Kind("a host name or address to listen on", listeners.parse_host)
PATH = Kind("a folder", _parse_path)
FILE = Kind("a file, or left out", _parse_file)
ARCHIVE = Kind('a folder, a URL such as s3://bucket/folder, gs://… or abfss://…, or "off"', _parse_archive)
STORE = Kind("a URL such as s3://bucket/folder, gs://…, az://…, or the path of a folder, or left out", _parse_text)
SWITCH = Kind("true or false", _parse_switch)
LISTENERS = Kind(listeners.ALLOWED, listeners.parse)
QUEUES, EXCHANGES, BINDINGS, POLICIES = (Kind(declarations.allowed(key), declarations.parser(key)) for key in declarations.KINDS)
HOST_OR_UNSET = Kind("a host name or address to listen on, or left out", _parse_host_or_unset)
NAMES = Kind("a list of host names; on the command line with commas between them", _parse_names)
