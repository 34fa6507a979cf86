"""Patterns of LIKE. An escape character is literal unless `_`, `%` or another one follows, as in other brokers."""

from __future__ import annotations

from typing import Any

MAX_WILDCARDS = 32  # runs of % in a pattern

ANY, ONE = object(), object()


def parts(pattern: str, escape: str | None) -> list[Any]:
    """Return texts, ONE (for `_`) and ANY (for `%`, never twice in a row)."""
    pieces: list[Any] = []
    index = 0
    while index < len(pattern):
        character = pattern[index]
        index += 1
        if character == escape and index < len(pattern) and pattern[index] in ("_", "%", escape):
            _literal(pieces, pattern[index])
            index += 1
        elif character == "_":
            pieces.append(ONE)
        elif character == "%":
            if not pieces or pieces[-1] is not ANY:
                pieces.append(ANY)
        else:
            _literal(pieces, character)
    return pieces


def _literal(pieces: list[Any], character: str) -> None:
    if pieces and isinstance(pieces[-1], str):
        pieces[-1] += character
    else:
        pieces.append(character)
