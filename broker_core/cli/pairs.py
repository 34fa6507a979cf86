"""NAME=VALUE on the command line."""

from __future__ import annotations

from collections.abc import Iterable

from .main import UsageError


def pairs(texts: Iterable[str], flag: str = "--option") -> dict[str, str]:
    """Each name once. The values stay texts: the broker reads numbers out of them, and a queue may be called 7."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"{flag} cannot be {text!r}; it must be NAME=VALUE")
        if name in found:
            raise UsageError(f"{flag} names {name!r} twice; give it once")
        found[name] = value
    return found
