"""The decision of a write over several brokers: its attempts at each broker, in order of publication.

The first publish stores it with the write's key, for a year. Attempts are compressed differences: tasks that Spark started in
order take a few characters in total, other tasks about three each.

To change the form: raise `VERSION`, and keep reading the previous one in `read` for a year.
"""

from __future__ import annotations

import json
import zlib
from base64 import b85decode, b85encode
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from ...broker_core.errors import InvalidRequest

VERSION = 1


class WriteDecision(NamedTuple):
    """`parts`: the attempts at each broker, in the order in which the brokers publish."""

    write: str
    parts: dict[str, list[int]]


def written(write: str, parts: Mapping[str, Sequence[int]]) -> str:
    steps = {broker: [after - before for before, after in pairwise([0, *attempts])] for broker, attempts in parts.items()}
    packed = zlib.compress(json.dumps(steps, separators=(",", ":")).encode(), 9)
    return json.dumps({"v": VERSION, "write": write, "packed": b85encode(packed).decode()})


def read(text: str) -> WriteDecision:
    """Raises InvalidRequest for another version."""
    fields = json.loads(text)
    if fields.get("v") != VERSION:
        raise InvalidRequest(
            f"a connector of another version began this write (decision {fields.get('v')!r}, this connector reads {VERSION}):"
            " repeat the write with the newer connector"
        )
    steps = json.loads(zlib.decompress(b85decode(fields["packed"])))
    return WriteDecision(fields["write"], {broker: list(accumulate(differences)) for broker, differences in steps.items()})
