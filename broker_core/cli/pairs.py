"""NAME=VALUE arguments."""

from __future__ import annotations

from collections.abc import Iterable

from .main import UsageError


def pairs(texts: Iterable[str], flag: str = "--option") -> dict[str, str]:
    """Parse pairs with unique names. Values stay texts: the broker parses numbers, and a queue may have the name 7."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"{flag} cannot be {text!r}; it must be NAME=VALUE")
        if name in values:
            raise UsageError(f"{flag} names {name!r} twice; give it once")
        values[name] = value
    return values
