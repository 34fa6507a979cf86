"""Named integers and integer arrays as one byte string: the persisted form of a block's columns.

Layout: the length of the header (u32, little-endian); the header as JSON, `{"v": 1, "n": {name: number}, "a": [[name, dtype,
count]]}`, padded with spaces to a multiple of 8 bytes; the arrays, each padded to 8 bytes.

To change the layout or a name after a release, raise the version and still read the earlier one. A new column needs a new
version, because an older broker would drop it.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

from ...errors import DamagedJournal

VERSION = 1
_LENGTH = struct.Struct("<I")


def pack(values: dict[str, Any]) -> bytes:
    numbers = {k: v for k, v in values.items() if not isinstance(v, np.ndarray)}
    arrays = {k: v for k, v in values.items() if isinstance(v, np.ndarray)}
    header = json.dumps({"v": VERSION, "n": numbers, "a": [[k, a.dtype.str, len(a)] for k, a in arrays.items()]}).encode()
    header += b" " * (-(len(header) + _LENGTH.size) % 8)
    parts = [_LENGTH.pack(len(header)), header]
    for array in arrays.values():
        data = array.tobytes()
        parts += [data, b"\0" * (-len(data) % 8)]
    return b"".join(parts)


def unpack(data: Any) -> dict[str, Any]:
    """The arrays are views of `data`."""
    view = memoryview(data)
    (length,) = _LENGTH.unpack_from(view)
    header = json.loads(bytes(view[_LENGTH.size : _LENGTH.size + length]))
    if header["v"] != VERSION:
        raise DamagedJournal(
            f"columns of format {header['v']}: this Penstock reads format {VERSION}; open them with the version that wrote them"
        )
    values: dict[str, Any] = dict(header["n"])
    at = _LENGTH.size + length
    for name, dtype, count in header["a"]:
        values[name] = np.frombuffer(view, dtype, count, at)
        at += -(-values[name].nbytes // 8) * 8
    return values
