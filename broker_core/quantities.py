"""Sizes and times such as `64 MiB`, `64m`, `12 h`, and the limit on delays."""

from __future__ import annotations

import re
from collections.abc import Mapping

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

_PREFIXES = {"k": KIB, "m": MIB, "g": GIB, "t": 1024 * GIB}
#: Bytes by unit. `k`, `kb` and `KiB` are the same, as in Spark's settings.
SIZES = {"": 1, "b": 1, **{prefix + end: factor for prefix, factor in _PREFIXES.items() for end in ("", "b", "ib")}}
#: Seconds by unit.
TIMES = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}

#: Delays, and times among a queue's options, are shorter than ten years. A longer one is a mistake of units.
MAX_MILLISECONDS = 10 * 366 * 24 * 3600 * 1000


def parse(text: str, units: Mapping[str, int]) -> int | float:
    match = re.fullmatch(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in units:
        raise ValueError
    return (float(match[1]) if "." in match[1] else int(match[1])) * units[match[2]]
