"""Patterns of LIKE: `_` is any one character, `%` any number of them; after the escape character both stand for themselves.

An escape character before anything else stands for itself, as in the other brokers.
"""

from __future__ import annotations

from typing import Any

MAX_WILDCARDS = 32  # signs % of a pattern, neighbours counted once: a search passes over a text for each

ANY, ONE = object(), object()


def parts(pattern: str, escape: str | None) -> list[Any]:
    """The pattern as texts, ONE (for `_`) and ANY (for `%`, never twice in turn)."""
    found: list[Any] = []
    place = 0
    while place < len(pattern):
        character = pattern[place]
        place += 1
        if character == escape and place < len(pattern) and pattern[place] in ("_", "%", escape):
            _literal(found, pattern[place])
            place += 1
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
    return sum(part is ANY for part in parts(pattern, escape))


def regular(found: list[Any]) -> str:
    """The parts as a regular expression of RE2 for the whole of a text."""
    return r"(?s)\A" + "".join(".*" if part is ANY else "." if part is ONE else _quoted(part) for part in found) + r"\z"


def _quoted(text: str) -> str:
    return "".join(c if c.isalnum() or not c.isascii() else f"\\x{ord(c):02x}" for c in text)
