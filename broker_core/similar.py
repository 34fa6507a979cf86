"""A guess at the meaning of an unknown name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_LEAST_ALIKE = 0.75  # two letters of eight may be wrong
_MOST = 255  # characters: the time of a comparison is proportional to their square


def plain(name: str) -> str:
    """Return a name in lower case without punctuation: `max_attempts` and `maxAttempts` are the same."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return None if no guess is good enough."""
    by_letters = {plain(candidate): candidate for candidate in known}
    near = difflib.get_close_matches(plain(name), by_letters, 1, _LEAST_ALIKE)
    return by_letters[near[0]] if near else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name, empty without a good guess."""
    guess = nearest(name[:_MOST], known)
    return "" if guess is None else f": did you mean {guess!r}?"
