"""Similar names: what somebody may have meant who wrote a name that there is not."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_LEAST_ALIKE = 0.75  # as difflib counts it: two letters of eight may be wrong


def plain(name: str) -> str:
    """Return a name without case and signs: `max_attempts`, `--max-attempts` and `maxAttempts` are the same."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Find the known name that is written otherwise, or nearly like it; None where no guess is good enough."""
    ours = {plain(each): each for each in known}
    near = difflib.get_close_matches(plain(name), ours, 1, _LEAST_ALIKE)  # an equal one is the closest
    return ours[near[0]] if near else None
