"""Encoding of dispositions by templates: only their delivery ids change. A template is an encoded disposition, cut at two
conspicuous ids.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from .frames import encode_frame
from .performatives import Accepted, DeliveryState, Disposition, Released

_ALIKE = (None, Accepted, Released)  # states without a field have the same octets
_KEPT = 1024  # templates; a channel has a handful

_ONE, _SEVERAL = struct.Struct(">BI"), struct.Struct(">BIBI")
_UINT = 0x70
_FIRST, _LAST = 0xF1F2F3F4, 0xF5F6F7F8


def frames(
    channel: int, ranges: Iterable[tuple[int, int]], *, role: bool, state: DeliveryState | None, settled: bool
) -> list[bytes] | None:
    """Return a frame for each range of delivery ids, last included; None for a state with fields."""
    kind: Any = None if state is None else type(state)
    if kind not in _ALIKE:
        return None
    dispositions = []
    for first, last in ranges:
        head, tail = _around(channel, role, kind, settled, first == last)
        dispositions.append(head + _ids(first, last) + tail)
    return dispositions


@lru_cache(_KEPT)
def _around(channel: int, role: bool, kind: type[Accepted | Released] | None, settled: bool, single: bool) -> tuple[bytes, bytes]:
    disposition = Disposition(
        role=role,
        first=_FIRST,
        last=None if single else _LAST,
        settled=settled,
        state=None if kind is None else kind(),
    )
    head, tail = encode_frame(channel, disposition.encode()).split(_ids(_FIRST, _FIRST if single else _LAST))
    return head, tail


def _ids(first: int, last: int) -> bytes:
    return _ONE.pack(_UINT, first) if first == last else _SEVERAL.pack(_UINT, first, _UINT, last)
