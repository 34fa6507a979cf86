"""Named integers and integer arrays as one byte string: the persisted form of a block's columns.

Layout: `<u32 length of the header>`; the header as JSON, `{"v": 8, "n": {name: number}, "a": [[name, dtype, count]]}`,
padded with spaces to a multiple of 8 bytes; then the arrays, each padded to 8 bytes. To change it, or the
names that stand in it: a new version number, and the old ones still read here. Version 1 lacks blocks' `overlays`, 2
the columns from `priority` on, 3 the column `defaulted`, 4 the column `recorded`, 5 the column `leased`, 6 the column `taker`;
up to 7, `errors` has texts by row, and since then their numbers in `texts`.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

from ...errors import DamagedJournal

VERSION = 8
READ = (1, 2, 3, 4, 5, 6, 7, 8)
_LENGTH = struct.Struct("<I")


def pack(values: dict[str, Any]) -> bytes:
    """Pack numbers and arrays into octets, versioned; the reverse of `unpack`."""
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
    """The inverse of `pack`, zero-copy: arrays are views of `data`."""
    view = memoryview(data)
    (length,) = _LENGTH.unpack_from(view)
    header = json.loads(bytes(view[_LENGTH.size : _LENGTH.size + length]))
    if header["v"] not in READ:
        raise DamagedJournal(
            f"columns of format {header['v']}: this Penstock reads up to {VERSION}; open them with the version that wrote them"
        )
    values: dict[str, Any] = dict(header["n"])
    at = _LENGTH.size + length
    for name, dtype, count in header["a"]:
        values[name] = np.frombuffer(view, dtype, count, at)
        at += -(-values[name].nbytes // 8) * 8
    return values
