"""Patterns of LIKE: `_` is any one character, `%` any number of them; after the escape character both stand for themselves.

An escape character before anything else stands for itself, as in the other brokers.
"""

from __future__ import annotations

from typing import Any

MAX_WILDCARDS = 32  # signs % of a pattern, neighbours counted once: a search reads the text once for each

ANY, ONE = object(), object()


def parts(pattern: str, escape: str | None) -> list[Any]:
    """Return the pattern as texts, ONE (for `_`) and ANY (for `%`, never twice in a row)."""
    found: list[Any] = []
    index = 0
    while index < len(pattern):
        character = pattern[index]
        index += 1
        if character == escape and index < len(pattern) and pattern[index] in ("_", "%", escape):
            _literal(found, pattern[index])
            index += 1
        elif character == "_":
            found.append(ONE)
        elif character == "%":
            if not found or found[-1] is not ANY:
                found.append(ANY)
        else:
            _literal(found, character)
    return found


def _literal(found: list[Any], character: str) -> None:
    if found and isinstance(found[-1], str):
        found[-1] += character
    else:
        found.append(character)


def wildcards(pattern: str, escape: str | None) -> int:
    """Return the number of ANY in a pattern."""
    return sum(part is ANY for part in parts(pattern, escape))
