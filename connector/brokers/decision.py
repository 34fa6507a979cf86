"""Decision of a write over several brokers: its attempts at each, in order. The first publish keeps it with the write's key.

Brokers keep it for a year, so that older forms are read. Numbers are told as differences and compressed: tasks that Spark has
started in their order take a few characters, however many they are, others some three characters each.
"""

from __future__ import annotations

import json
import zlib
from base64 import b85decode, b85encode
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple


class Decision(NamedTuple):
    """A write, and the attempts that belong to it at each of its brokers, in the order in which these publish."""

    write: str
    parts: dict[str, list[int]]


def written(write: str, parts: Mapping[str, Sequence[int]]) -> str:
    """Return a decision as text."""
    steps = {broker: [after - before for before, after in pairwise([0, *mine])] for broker, mine in parts.items()}
    packed = zlib.compress(json.dumps(steps, separators=(",", ":")).encode(), 9)
    return json.dumps({"write": write, "packed": b85encode(packed).decode()})


def read(text: str) -> Decision:
    """Return the decision that `written` wrote, or a version before it: pairs of a first number and a count."""
    found = json.loads(text)
    if "packed" in found:
        steps = json.loads(zlib.decompress(b85decode(found["packed"])))
        return Decision(found["write"], {broker: list(accumulate(mine)) for broker, mine in steps.items()})
    return Decision(found["write"], {broker: _numbers(pairs) for broker, pairs in found["brokers"].items()})


def _numbers(pairs: Sequence[int]) -> list[int]:
    return [first + i for first, count in zip(pairs[::2], pairs[1::2], strict=True) for i in range(count)]
