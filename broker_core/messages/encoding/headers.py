"""Header sections (3.2.1) and the columns `durable`, `priority`, `ttl`. A null is a field that the sender left out.

Headers repeat, so both directions are cached, also without the ttl, which may differ in every message.

A field that the sender set is sent again, even with the default value, and a field that it left out stays out: a receiver may
have its own defaults. `first-acquirer` is written if it is true, `delivery-count` unless it is 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...amqp.composites import from_values
from ...amqp.decoder import decode
from ...amqp.encoder import encode_into, put_boolean, put_compound, put_ubyte, put_uint
from ...amqp.messages import scan, skip
from ...amqp.performatives import Header

KEPT_HEADERS = 1024  # entries of each cache
KEPT_OCTETS = 64  # a longer header is decoded each time; 20 bytes are enough for all fields
_SHORT = b"\x00\x53\x70\xc0"  # a header of less than 256 bytes begins so
_UINT = b"\x70"  # of 4 bytes. Shorter ones are few enough for `known`


class HeaderFields(NamedTuple):
    """Fields in the order of the stored columns."""

    priority: int | None
    durable: bool | None
    ttl: int | None


NOTHING = HeaderFields(None, None, None)

#: By the section. Read-only for other modules.
known: dict[bytes, HeaderFields] = {}
#: Fields without the ttl, by the header's length: the position of the ttl's 4 bytes, and a cache by the bytes around them. All
#: headers of one length have their ttl at the same position. So a hit has the same bytes before its ttl as a valid header, ending
#: with the ttl's constructor, and the next 4 bytes may be any.
but_ttl: dict[int, tuple[int, dict[bytes, HeaderFields]]] = {}


def read(octets: bytes) -> HeaderFields:
    """Decode a header section. Raises DecodeError, or FieldError for wrong types or too many fields."""
    fields = known.get(octets)
    if fields is None:
        fields = _read(octets)
        if len(octets) <= KEPT_OCTETS:
            _keep(known, octets, fields)
            _keep_but_ttl(octets, fields)
    return fields


def with_other_ttl(octets: bytes, before: bytes | None) -> tuple[HeaderFields, bytes]:
    """Return the fields, without the ttl, of a header that differs from a cached one only in its ttl, and the ttl's bytes.

    `before`: the previous message's ttl. A ttl that comes twice is cached with its header. Raises KeyError.
    """
    at, around = but_ttl[len(octets)]
    fields, ttl = around[octets[:at] + octets[at + 4 :]], octets[at : at + 4]
    if ttl == before:
        _keep(known, octets, fields._replace(ttl=int.from_bytes(ttl, "big")))
    return fields, ttl


def _keep(table: dict[Any, Any], key: Any, value: Any) -> None:
    if len(table) >= KEPT_HEADERS:
        table.clear()
    table[key] = value


def _keep_but_ttl(octets: bytes, fields: HeaderFields) -> None:
    """Cache a valid header for other ttls, unless its form is rare."""
    if not octets.startswith(_SHORT):
        return
    at = len(_SHORT) + 2  # after size and count
    for _ in range(2):  # durable, priority
        if at < len(octets):
            at = skip(octets, at, len(octets))
    if octets[at : at + 1] != _UINT:
        return
    at += 1
    place, cache = but_ttl.get(len(octets), (at, {}))
    if place != at:
        cache = {}
    _keep(cache, octets[:at] + octets[at + 4 :], fields._replace(ttl=None))
    but_ttl[len(octets)] = at, cache


def _read(octets: bytes) -> HeaderFields:
    (section,) = scan(octets)
    values, _ = decode(octets, section.value, section.end)
    from_values(Header, values)  # checks the types, which are the ranges
    assert isinstance(values, list)
    durable, priority, ttl = (*values, None, None, None)[:3]
    return HeaderFields(None if priority is None else int(priority), durable, None if ttl is None else int(ttl))


@lru_cache(KEPT_HEADERS)
def write(priority: int | None, durable: bool | None, ttl: int | None, attempts: int, returned: bool) -> bytes:
    """Return a header section, with `first-acquirer` unless `returned`; empty if no field is set."""
    fields = (
        (durable, put_boolean),
        (priority, put_ubyte),
        (ttl, put_uint),
        (None if returned else True, put_boolean),
        (attempts or None, put_uint),
    )
    body = bytearray()
    used = count = 0
    for number, (value, put) in enumerate(fields, 1):
        if value is None:
            encode_into(body, None)
            continue
        put(body, value)
        used, count = len(body), number
    if not count:
        return b""
    out = bytearray((0x00, 0x53, 0x70))
    put_compound(out, 0xC0, count, body[:used])
    return bytes(out)


def written(payload: pa.RecordBatch, names: list[str], attempts: Any, returned: Any) -> list[bytes] | bytes:
    """Return the header of each row of a stored batch with columns of these names, or the one header of all.

    `attempts` and `returned` are one value for all rows, or one for each. The work is per distinct header.
    """
    columns = [_codes(payload, name) if name in names else _ABSENT for name in ("priority", "durable", "ttl")]
    columns += [_distinct(attempts), _distinct(returned)]
    if all(codes is None for codes, _ in columns):
        priority, durable, ttl, count, again = (values[0] for _, values in columns)
        return write(priority, durable, ttl, int(count), bool(again))
    code: Any = 0
    for codes, values in columns:
        code = code * len(values) + (0 if codes is None else codes)
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    octets = []
    for row in first.tolist():
        priority, durable, ttl, count, again = (values[0 if codes is None else codes[row]] for codes, values in columns)
        octets.append(write(priority, durable, ttl, int(count), bool(again)))
    return [octets[i] for i in inverse.tolist()]


_Codes = tuple["npt.NDArray[np.int64] | None", list[Any]]  # index of each row's value; None: all have the first value
_ABSENT: _Codes = None, [None]


def _codes(payload: pa.RecordBatch, name: str) -> _Codes:
    column = payload.column(name)
    if column.null_count == len(column):
        return _ABSENT
    if column.null_count == 0:  # the usual case needs no dictionary
        plain = column.to_numpy(zero_copy_only=False)
        if (plain == plain[0]).all():
            return None, [plain[0].item()]
    encoded = column.dictionary_encode(null_encoding="encode")
    values = encoded.dictionary.to_pylist()
    if len(values) < 2:
        return None, values or [None]
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), values


def _distinct(numbers: Any) -> _Codes:
    if isinstance(numbers, (int, np.integer, np.bool_)):
        return None, [int(numbers)]
    values, codes = np.unique(numbers, return_inverse=True)
    if len(values) < 2:
        return None, values.tolist() or [0]
    return codes.astype(np.int64), values.tolist()
