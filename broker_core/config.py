"""What can be set on a broker, each with its unit, its limits and the reason for its default.

One table, the fields of `Settings`, serves four readers: the program (`Settings(data=…)`), the file (`--config`), the command
line (a flag for each key) and `conf/penstock.toml`, which a test compares with it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from broker_core import errors

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

#: Where `penstock serve` listens and the other commands look, unless told otherwise.
DEFAULT_FLIGHT_PORT = 8815
DEFAULT_URL = f"grpc://127.0.0.1:{DEFAULT_FLIGHT_PORT}"

_SIZES = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "tib": 1024 * GIB}
_TIMES = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Kind:
    """How a key's value is written and which values it may have."""

    allowed: str
    parse: Callable[[object], Any]


def key(default: Any, kind: Kind, why: str) -> Any:
    return field(default=default, metadata={"kind": kind, "why": why})


def _number_with_unit(value: object, units: Mapping[str, float]) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*([a-z]*)\s*", value.lower())
    if match is None or match[2] not in units:
        raise ValueError
    number = float(match[1]) if "." in match[1] else int(match[1])
    return number * units[match[2]]


def size(least: int, *, unset: bool = False) -> Kind:
    def parse(value: object) -> int | None:
        if value is None and unset:
            return None
        number = _number_with_unit(value, _SIZES)
        if number != int(number) or number < least:
            raise ValueError
        return int(number)

    return Kind(f'a size in bytes, at least {least:,}, as a number or a text such as "64 MiB"{_or_unset(unset)}', parse)


def seconds(least: float, *, unset: bool = False) -> Kind:
    def parse(value: object) -> float | None:
        if value is None and unset:
            return None
        number = float(_number_with_unit(value, _TIMES))
        if not least <= number < float("inf"):
            raise ValueError
        return number

    return Kind(
        f'a time in seconds, at least {least:g}, as a number or a text such as "5 s", "12 h", "7 d"{_or_unset(unset)}', parse
    )


def choice(*names: str) -> Kind:
    def parse(value: object) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return Kind("one of " + ", ".join(names), parse)


def _or_unset(unset: bool) -> str:
    return ", or left out" if unset else ""


def _parse_port(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError
    number = int(value)
    if not 0 <= number <= 65535:
        raise ValueError
    return number


def _parse_host(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9A-Za-z._:\[\]-]+", value):
        raise ValueError
    return value


def _parse_path(value: object) -> Path:
    if not isinstance(value, (str, Path)) or not str(value):
        raise ValueError
    return Path(value)


def _parse_absent(value: object) -> None:
    if value is not None:
        raise ValueError


PORT = Kind("a port number, or 0 for a free one", _parse_port)
HOST = Kind("a host name or address to listen on", _parse_host)
PATH = Kind("a folder", _parse_path)
NOT_YET = Kind("left out: this version has no such plane yet", _parse_absent)


@dataclass(frozen=True)
class Settings:
    """Everything a broker is started with. Values are checked, and texts such as "64 MiB" turned into numbers, here."""

    data: Path = field(metadata={"kind": PATH, "why": "The journal, its snapshots and the lock; one broker at a time."})
    host: str = key("127.0.0.1", HOST, "Nobody else reaches it until you say so: there is no password yet.")
    # A program gets a free port; `penstock serve` the documented one (`load`).
    flight_port: int = key(0, PORT, f"Arrow Flight, which Spark speaks. `penstock serve` takes {DEFAULT_FLIGHT_PORT}.")
    amqp_port: None = key(None, NOT_YET, "AMQP 1.0.")
    http_port: None = key(None, NOT_YET, "Metrics and health.")
    fsync: str = key(
        "always",
        choice("always", "interval", "never"),
        "When a confirmed message is on the disk: at once (group commit), every fsync_interval_s, or when the system likes. With"
        " interval and never a confirmed message survives kill -9, but not a power cut.",
    )
    fsync_interval_s: float = key(1.0, seconds(0.001), "The most a power cut takes with fsync = interval.")
    segment_bytes: int = key(
        256 * MIB,
        size(MIB),
        "The journal's files: large enough that few are open, small enough for retention, which unlinks whole ones.",
    )
    snapshot_every_bytes: int = key(
        256 * MIB,
        size(MIB),
        "Journal bytes between two snapshots: what a restart reads at most, half a second of reading on a slow disk.",
    )
    retention_age_s: float | None = key(
        None, seconds(1, unset=True), "How long settled messages stay readable; left out: for ever."
    )
    retention_bytes: int | None = key(
        None,
        size(MIB, unset=True),
        "How much journal is kept; the oldest segments with nothing unsettled go first. Left out: no limit.",
    )
    free_space_mark_bytes: int = key(
        256 * MIB,
        size(MIB),
        "Below this much free disk, enqueue and stage are refused; settling, purging and retention go on from what is left.",
    )
    max_batch_bytes: int = key(
        64 * MIB, size(KIB), "One record batch on the wire and one record in the journal; bounds memory for each client."
    )
    max_message_bytes: int = key(
        32 * MIB, size(KIB), "One message, body and properties: it must fit a batch, with room for the batch's own bytes."
    )

    def __post_init__(self) -> None:
        for item in fields(self):
            object.__setattr__(self, item.name, _checked(item.name, getattr(self, item.name)))
        if self.max_message_bytes > self.max_batch_bytes:
            raise errors.InvalidRequest(
                f"max_message_bytes ({self.max_message_bytes:,}) is more than max_batch_bytes ({self.max_batch_bytes:,}): such a"
                " message could never travel; lower the first or raise the second"
            )


KEYS: dict[str, Kind] = {item.name: item.metadata["kind"] for item in fields(Settings)}
REASONS: dict[str, str] = {item.name: item.metadata["why"] for item in fields(Settings)}


def _checked(name: str, value: object) -> Any:
    try:
        return KEYS[name].parse(value)
    except (ValueError, TypeError, OverflowError):
        raise errors.InvalidRequest(f"{name} cannot be {value!r}; it must be {KEYS[name].allowed}") from None


def load(config: Path | None = None, flags: Mapping[str, object] | None = None) -> Settings:
    """The settings from a file, then the flags that were given (those that are not None); `data` must be among them."""
    values: dict[str, Any] = {"flight_port": DEFAULT_FLIGHT_PORT}
    if config is not None:
        values.update(read_file(config))
    values.update({name: value for name, value in (flags or {}).items() if value is not None})
    if "data" not in values:
        raise errors.InvalidRequest("no data directory is named: give --data DIR, or `data` in the config file")
    return Settings(**values)


def read_file(path: Path) -> dict[str, Any]:
    """The checked keys of one TOML file. A relative `data` counts from the file's own folder."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise errors.InvalidRequest(f"the config file {path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise errors.InvalidRequest(f"the config file {path} is not TOML: {error}") from error
    for name, value in table.items():
        if name not in KEYS:
            raise errors.InvalidRequest(f"{path}: {name} is not a key; allowed are {', '.join(KEYS)}")
        try:
            table[name] = _checked(name, value)
        except errors.InvalidRequest as error:
            raise errors.InvalidRequest(f"{path}: {error}") from None
    if "data" in table:
        table["data"] = path.parent / table["data"]
    return table
