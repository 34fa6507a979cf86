"""Header sections (3.2.1) and the columns `durable`, `priority`, `ttl`: a null is a field of which the sender said nothing.

Headers repeat from message to message, so both directions are kept by what they come from. The ttl is the one field that may be
another in every message: a header is kept without the octets of its ttl, too.

A field that the sender said is said again, a default included, and one it did not say stays unsaid: the specification lets a
receiver have defaults of its own ("unless other target or node specific defaults have otherwise been set"), so a default put into
words and a field left out are not the same. `first-acquirer` is said whenever it is true. Its default, false, claims no more than
that the message *may* have been acquired before, and `delivery-count` of 0 is the default too: a header that would say nothing
else is left out, which the text makes equal to one without fields. In practice that is a message without a header of its own that
was released once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...amqp.composites import from_values
from ...amqp.decoder import decode
from ...amqp.encoder import encode_into, put_boolean, put_compound, put_ubyte, put_uint
from ...amqp.messages import scan, skip
from ...amqp.performatives import Header

KEPT_HEADERS = 1024  # in each table; then it begins anew
KEPT_OCTETS = 64  # a longer header is read each time: nothing sensible needs more than 20
_SHORT = b"\x00\x53\x70\xc0"  # a header of less than 256 octets begins so
_UINT = b"\x70"  # of 4 octets. Those of one octet are few enough to be `known`


class HeaderFields(NamedTuple):
    """Fields of a header, in the order of the stored columns."""

    priority: int | None
    durable: bool | None
    ttl: int | None


NOTHING = HeaderFields(None, None, None)

known: dict[bytes, HeaderFields] = {}
"""What header sections say that were read before. Read only."""
but_ttl: dict[int, tuple[int, dict[bytes, HeaderFields]]] = {}
"""What headers say but for their ttl, by their length: where the 4 octets of the ttl stand, and by the octets around them what
was read before, without the ttl. Read only.

All that is kept for a length is cut in the same place. So what is found has the same octets before its ttl as a valid header has,
with the ttl's constructor as the last of them, and the 4 octets that follow may be any. Found in what was cut elsewhere, they
might be others.
"""
_written: dict[tuple[Any, ...], bytes] = {}


def read(octets: bytes) -> HeaderFields:
    """Read a header section. Raises DecodeError, or FieldError for a field of the wrong type or too many of them."""
    said = known.get(octets)
    if said is None:
        said = _read(octets)
        if len(octets) <= KEPT_OCTETS:
            _keep(known, octets, said)
            _keep_but_ttl(octets, said)
    return said


def learn(octets: bytes, but_its_ttl: HeaderFields, ttl: bytes) -> None:
    """A header that was found by what is around its ttl, and comes again."""
    _keep(known, octets, but_its_ttl._replace(ttl=int.from_bytes(ttl, "big")))


def _keep(table: dict[Any, Any], key: Any, value: Any) -> None:
    if len(table) >= KEPT_HEADERS:
        table.clear()
    table[key] = value


def _keep_but_ttl(octets: bytes, said: HeaderFields) -> None:
    """Remember a valid header, so that one that differs only in its ttl need not be read. In rare forms it is."""
    if not octets.startswith(_SHORT):
        return
    at = len(_SHORT) + 2  # after size and count
    for _ in range(2):  # durable, priority
        if at < len(octets):
            at = skip(octets, at, len(octets))
    if octets[at : at + 1] != _UINT:
        return
    at += 1
    place, shapes = but_ttl.get(len(octets), (at, {}))
    if place != at:
        shapes = {}
    _keep(shapes, octets[:at] + octets[at + 4 :], said._replace(ttl=None))
    but_ttl[len(octets)] = at, shapes


def _read(octets: bytes) -> HeaderFields:
    (section,) = scan(octets)
    values, _ = decode(octets, section.value, section.end)
    from_values(Header, values)  # checks the types, which are the ranges
    assert isinstance(values, list)
    durable, priority, ttl = (*values, None, None, None)[:3]
    return HeaderFields(None if priority is None else int(priority), durable, None if ttl is None else int(ttl))


def write(priority: int | None, durable: bool | None, ttl: int | None, attempts: int, returned: bool) -> bytes:
    """A header section, `first-acquirer` being true unless `returned`; empty if it would say nothing."""
    key = priority, durable, ttl, attempts, returned
    octets = _written.get(key)
    if octets is None:
        octets = _write(*key)
        _keep(_written, key, octets)
    return octets


def _write(priority: int | None, durable: bool | None, ttl: int | None, attempts: int, returned: bool) -> bytes:
    fields = (
        (durable, put_boolean),
        (priority, put_ubyte),
        (ttl, put_uint),
        (None if returned else True, put_boolean),
        (attempts or None, put_uint),
    )
    body = bytearray()
    kept = count = 0
    for number, (value, put) in enumerate(fields, 1):
        if value is None:
            encode_into(body, None)
            continue
        put(body, value)
        kept, count = len(body), number
    if not count:
        return b""
    out = bytearray((0x00, 0x53, 0x70))
    put_compound(out, 0xC0, count, body[:kept])
    return bytes(out)


def written(payload: pa.RecordBatch, names: list[str], attempts: Any, returned: Any) -> list[bytes] | bytes:
    """The header of each row of a stored batch with columns of these names, or the one that all have.

    `attempts` and `returned` are one for all, or one for each row. Work per distinct header, not per row.
    """
    columns = [_codes(payload, name) if name in names else _ABSENT for name in ("priority", "durable", "ttl")]
    columns += [_distinct(attempts), _distinct(returned)]
    varying = [codes for codes, _ in columns if codes is not None]
    if not varying:
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


_Codes = tuple["npt.NDArray[np.int64] | None", list[Any]]  # which of the values a row has; None: all have the first


_ABSENT: _Codes = None, [None]


def _codes(payload: pa.RecordBatch, name: str) -> _Codes:
    column = payload.column(name)
    if column.null_count == len(column):
        return _ABSENT
    if column.null_count == 0:  # the usual case, without a dictionary
        plain = column.to_numpy(zero_copy_only=False)
        if (plain == plain[0]).all():
            return None, [plain[0].item()]
    found = column.dictionary_encode(null_encoding="encode")
    values = found.dictionary.to_pylist()
    if len(values) < 2:
        return None, values or [None]
    return found.indices.to_numpy(zero_copy_only=False).astype(np.int64), values


def _distinct(numbers: Any) -> _Codes:
    if isinstance(numbers, (int, np.integer, np.bool_)):
        return None, [int(numbers)]
    values, codes = np.unique(numbers, return_inverse=True)
    if len(values) < 2:
        return None, values.tolist() or [0]
    return codes.astype(np.int64), values.tolist()
