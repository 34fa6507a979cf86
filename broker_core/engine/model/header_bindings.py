"""Bindings of headers exchanges.

A binding names headers (application properties) and their values; no value means any. `x-match` is `all` (the default) or `any`.
Names that begin with `x-` count only with `all-with-x` or `any-with-x`. Values are compared as texts in the form of the column
`properties`: 42 equals "42".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from ...errors import InvalidRequest
from ..columns.series import Ints

X_MATCH = "x-match"
MODES = ("all", "any", "all-with-x", "any-with-x")
PLAIN = -6, 10  # powers of ten of the first digit for which Arrow writes no exponent
CELLS = 1 << 22  # of one table of counts: a few MiB

Term = tuple[str, str | None]  # name and text of a header; None: any text
Arguments = Mapping[str, Any]


def check(arguments: Arguments) -> None:
    mode = arguments.get(X_MATCH, MODES[0])
    if mode not in MODES:
        raise InvalidRequest(f"argument {X_MATCH!r}: {mode!r:.80} is not one of {', '.join(MODES)}")
    for name, value in arguments.items():
        if value is not None and not isinstance(value, (str, bool, int, float)):
            raise InvalidRequest(f"argument {name!r:.80}: {value!r:.80} is not a text, a number or a truth value")
        if isinstance(value, float) and not math.isfinite(value):  # which JSON lacks
            raise InvalidRequest(f"argument {name!r:.80} must be finite, or a text: {_digits(value)!r} matches such a header")


def terms(arguments: Arguments) -> list[Term]:
    with_x = str(arguments.get(X_MATCH, "")).endswith("-with-x")
    names = [name for name in arguments if name != X_MATCH and (with_x or not name.startswith("x-"))]
    return [(name, _text(arguments[name])) for name in names]


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _digits(value)
    return None if value is None else str(value)


def _digits(value: float) -> str:
    """As in the column: the shortest text that reads back equal, without a needless point."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first = len(digits) + exponent - 1  # the power of ten of the first digit
    whole = abs(Decimal((0, digits, exponent)))
    if PLAIN[0] <= first < PLAIN[1] or not value:
        text = f"{whole:f}"
    else:
        text = f"{whole.scaleb(-first):f}e{first:+d}"
    return f"-{text}" if sign else text


def matching(bindings: Iterable[tuple[int, Arguments]], having: Mapping[Term, Ints], count: int) -> dict[int, Ints]:
    """Return by number of a binding the indexes, ascending, of its matches among `count` messages.

    `having`: by term, the indexes, ascending, of messages with this header, or this header and value.
    """
    numbered = list(bindings)
    wanted: dict[Term, list[int]] = {}  # → indexes in `numbered`
    need = np.zeros(len(numbered), np.int32)
    for index, (_, arguments) in enumerate(numbered):
        looked_for = terms(arguments)
        need[index] = 1 if str(arguments.get(X_MATCH, "")).startswith("any") else len(looked_for)
        for term in looked_for:
            wanted.setdefault(term, []).append(index)
    present = [(having[term], np.array(indexes)) for term, indexes in wanted.items() if term in having]
    parts: dict[int, list[Ints]] = {}
    step = max(1, CELLS // max(1, len(numbered)))
    for first in range(0, count, step):
        hits = _hits(present, first, min(count, first + step), len(numbered)) >= need
        for index in np.flatnonzero(hits.any(axis=0)).tolist():
            parts.setdefault(numbered[index][0], []).append(np.flatnonzero(hits[:, index]) + first)
    return {number: np.concatenate(several) for number, several in parts.items()}


def _hits(present: list[tuple[Ints, Ints]], first: int, stop: int, bindings: int) -> Ints:
    """Count by message and binding the terms that the message has."""
    counts = np.zeros((stop - first, bindings), np.int32)
    for rows, indexes in present:
        begin, end = np.searchsorted(rows, (first, stop))
        counts[np.ix_(rows[begin:end] - first, indexes)] += 1
    return counts
