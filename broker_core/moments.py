"""Times such as `-2h`, `yesterday`, `2026-11-25T10:00`, `2026-11-25 Europe/Zurich`.

A text without a zone is UTC everywhere.
"""

from __future__ import annotations

import argparse
import re
from datetime import datetime, time, timedelta, timezone, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

from . import quantities
from .errors import InvalidRequest

#: The accepted texts, for errors.
FORMS = (
    "a time such as -2h, -30m, -90s, -7d, now, today, yesterday, 2026-11-25, 2026-11-25T10:00 or 2026-11-25T10:00:00.5, or"
    " milliseconds since 1970. It is in UTC, unless a zone follows: Z, +01:00 or Europe/Zurich"
)
#: The same in a few words, for `--help`.
SHORT_FORMS = "-2h, yesterday, 2026-11-25 or 2026-11-25T10:00, in UTC or with a zone such as +01:00"

#: A request may contain a megabyte.
MAX_CHARACTERS = 100

_UNITS = {unit: seconds for unit, seconds in quantities.TIMES.items() if unit}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECONDS = re.compile("[0-9]{12,14}")  # fewer digits: a date
_ZONED = re.compile(r"(.*[0-9a-z])(?:\s*(z|[+-][0-9]{2}:?[0-9]{2})|\s+([a-z][a-z0-9_+/-]*))", re.IGNORECASE)
_CLOCK = r"([0-9]{2}):?([0-9]{2})(?::?([0-9]{2})(?:[.,]([0-9]{1,9}))?)?"
_DATE = re.compile(rf"([0-9]{{4}})(-?)([0-9]{{2}})\2([0-9]{{2}})(?:[T ]{_CLOCK})?", re.IGNORECASE)


class Moment(NamedTuple):
    """A time in microseconds since 1970. A relative text depends on the current time."""

    micros: int
    is_relative: bool


def parse(text: str, now: datetime, zone: tzinfo) -> Moment:
    """`zone` applies to a text without one. Raises ValueError.

    A day begins at its first moment in the zone. A clock time that occurs twice is the first one. A clock time that is skipped in
    spring is counted from before the change. `-7d` is always 168 hours.
    """
    text = text.strip()
    if len(text) > MAX_CHARACTERS:
        raise ValueError
    try:
        return _parse(text, now, zone)
    except OverflowError as error:
        raise ValueError("a year before 1 or after 9999") from error


def _parse(text: str, now: datetime, zone: tzinfo) -> Moment:
    if text.startswith("-"):
        return Moment(_micros(now - timedelta(seconds=quantities.parse(text[1:], _UNITS))), True)
    if _MILLISECONDS.fullmatch(text):
        return Moment(int(text) * 1000, False)
    if text.lower() == "now":
        return Moment(_micros(now), True)
    if zoned := _ZONED.fullmatch(text):
        text, zone = zoned[1], _offset(zoned[2]) if zoned[2] else _zone(zoned[3])
    days_ago = {"today": 0, "yesterday": 1}.get(text.lower())
    if days_ago is not None:
        day = now.astimezone(zone).date() - timedelta(days=days_ago)
        return Moment(_micros(datetime.combine(day, time(), zone)), True)
    date = _DATE.fullmatch(text)
    if date is None:
        raise ValueError
    year, _, month, day_of_month, hour, minute, second, fraction = (part or "00" for part in date.groups())
    clock = f"{hour}:{minute}:{second}.{fraction.ljust(6, '0')[:6]}"
    return Moment(_micros(datetime.fromisoformat(f"{year}-{month}-{day_of_month}T{clock}").replace(tzinfo=zone)), False)


def parse_bounds(since: str | None, until: str | None, now: datetime) -> tuple[int | None, int | None]:
    """Parse the flags or fields `since` and `until`. Raises InvalidRequest."""
    bounds = _parse_bound("since", since, now), _parse_bound("until", until, now)
    if bounds[0] is not None and bounds[1] is not None and bounds[0] >= bounds[1]:
        raise InvalidRequest(f"since {written(bounds[0])} is not before until {written(bounds[1])}: no message can match")
    return bounds


def written(micros: int) -> str:
    """Return a time in ISO 8601 in UTC, without zeros at the end of a fraction."""
    text = (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None).isoformat(sep="T")
    return f"{text.rstrip('0') if '.' in text else text}Z"


def described(since: int | None, until: int | None) -> str:
    """Return ` since 2026-11-25T08:00:00Z until 2026-11-26T00:00:00Z`."""
    return "".join(f" {name} {written(micros)}" for name, micros in (("since", since), ("until", until)) if micros is not None)


def add_flags(parser: argparse.ArgumentParser, of: str) -> None:
    """Add `--since` and `--until`. `of` names their times in the help."""
    # A minus and a digit begin a value, so that `--since -2h` is `--since=-2h`.
    parser._negative_number_matcher = re.compile("-[0-9]")
    for flag, text in (("--since", f"first {of}"), ("--until", f"end of the {of}s (excluded)")):
        parser.add_argument(flag, type=_checked, metavar="TIME", help=f"{text}: {SHORT_FORMS}")


def _checked(text: str) -> str:
    try:
        parse(text, _EPOCH.replace(year=2000), timezone.utc)
    except ValueError:
        raise argparse.ArgumentTypeError(_refusal(text)) from None
    return text


def _parse_bound(name: str, text: str | None, now: datetime) -> int | None:
    if text is None:
        return None
    try:
        return parse(text, now, timezone.utc).micros
    except ValueError:
        raise InvalidRequest(f"{name}: {_refusal(text)}") from None


def _refusal(text: str) -> str:
    return f"{text!r:.80} is not a time; it must be {FORMS}"


def _offset(text: str) -> tzinfo:
    if text in "zZ":
        return timezone.utc
    sign = -1 if text[0] == "-" else 1
    return timezone(sign * timedelta(hours=int(text[1:3]), minutes=int(text[-2:])))


def _zone(name: str) -> tzinfo:
    if name.upper() == "UTC":
        return timezone.utc
    try:
        return ZoneInfo(name)
    except (LookupError, OSError) as error:  # unknown, or a folder of zones
        raise ValueError(name) from error


def _micros(moment: datetime) -> int:
    # Differences of clock times around a change are right in UTC only.
    since = moment.astimezone(timezone.utc) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
