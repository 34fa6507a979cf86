"""AMQP values as text, one at a time: the texts of values other than strings in Spark's columns, and JSON for a body.

Every decoded value has exactly one text. `rendering` does the same for many values; tests compare both.

| AMQP | text | in JSON |
|---|---|---|
| null | null | `null` |
| boolean | `true`, `false` | the same |
| ubyte … ulong, byte … long | decimal digits | the same |
| float, double | the shortest digits that round-trip | the same (1) |
| decimal32/64/128 | as in Python's `decimal` | the same (1) |
| char, string, symbol | itself | a string |
| timestamp | ISO 8601 in UTC: `2026-01-31T23:59:59.999Z` (2) | a string |
| uuid | `8-4-4-4-12` lower-case hexadecimal digits | a string |
| binary | base64 (RFC 4648, padded) | a string |
| list, array | its JSON | an array |
| map | its JSON | an object (3) |
| described | its JSON | `{"descriptor": …, "value": …}`, also in an array |

(1) Values that are not numbers are `NaN`, `Infinity` or `-Infinity`, in JSON a string. (2) Years beyond 0 to 9999 have a sign and
at least six digits. (3) Its names are the texts of the keys (`null` for a null key). If two keys have the same text, it is an
array of arrays `[key, value]`.

JSON text is UTF-8 without spaces and without escapes beyond ASCII.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from ...amqp.types import Array, Decimal32, Decimal64, Decimal128, Described, Float, Pairs, Timestamp

_DAY = 86_400_000  # milliseconds


def text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, (list, dict, Pairs, Array, Described)):
        return to_json(value)
    simple = _simple(value)
    return simple if isinstance(simple, str) else _scalar(simple)


def to_json(value: Any) -> str:
    if isinstance(value, list):
        return _array(to_json(item) for item in value)
    if isinstance(value, (dict, Pairs)):
        return _map(list(value.items()) if isinstance(value, dict) else list(value))
    if isinstance(value, Array):
        return _array(_described(value.descriptors, item) for item in value.items)
    if isinstance(value, Described):
        return _described((value.descriptor,), value.value)
    simple = _simple(value)
    return json.dumps(str(simple), ensure_ascii=False) if isinstance(simple, str) else _scalar(simple)


def _array(items: Any) -> str:
    return f"[{','.join(items)}]"


def _map(pairs: list[tuple[Any, Any]]) -> str:
    values = {"null" if (name := text(key)) is None else name: value for key, value in pairs}
    if len(values) < len(pairs):
        return _array(_array((to_json(key), to_json(value))) for key, value in pairs)
    entries = (f"{json.dumps(str(name), ensure_ascii=False)}:{to_json(value)}" for name, value in values.items())
    return f"{{{','.join(entries)}}}"


def _described(descriptors: tuple[Any, ...], value: Any) -> str:
    if not descriptors:
        return to_json(value)
    return f'{{"descriptor":{to_json(descriptors[0])},"value":{_described(descriptors[1:], value)}}}'


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, Decimal):
        return str(value)
    # Arrow's digits, as in `rendering`, where Arrow writes a million together.
    kind = pa.float32() if isinstance(value, Float) else pa.float64()
    digits: str = pa.array([float(value)], kind).cast(pa.string())[0].as_py()
    return digits


def _simple(value: Any) -> Any:
    """Return a string for a value that JSON quotes; otherwise a number, boolean or null."""
    if isinstance(value, (Decimal32, Decimal64, Decimal128)):
        value = _decimal(bytes(value))
        return value if isinstance(value, Decimal) else str(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Timestamp):
        return iso(int(value))
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    return str.__str__(value) if isinstance(value, str) else value


def iso(milliseconds: int) -> str:
    """Return a 64-bit time in ISO 8601, UTC (`datetime` ends at the year 9999)."""
    days, rest = divmod(milliseconds, _DAY)
    # The proleptic Gregorian calendar in eras of 400 years from 1 March: the leap day is then a year's last.
    era, day = divmod(days + 719_468, 146_097)
    of_era = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * of_era + of_era // 4 - of_era // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    month += 3 if month < 10 else -9
    year = of_era + era * 400 + (month <= 2)
    seconds, fraction = divmod(rest, 1000)
    date = f"{year:04}" if 0 <= year <= 9999 else f"{year:+07}"
    time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:03}"
    return f"{date}-{month:02}-{day:02}T{time}Z"


# Bytes → bits of the exponent, its bias, digits of the coefficient (IEEE 754-2008, 3.5.2).
_DECIMALS = {4: (8, 101, 7), 8: (10, 398, 16), 16: (14, 6176, 34)}


def _decimal(octets: bytes) -> Decimal | str:
    """Decode the binary integer encoding: the exact value, or the name of NaN or an infinity."""
    exponent_bits, bias, digits = _DECIMALS[len(octets)]
    bits = int.from_bytes(octets, "big")
    width = 8 * len(octets)
    sign, combination = bits >> width - 1, bits >> width - 6 & 0b11111
    if combination == 0b11111:
        return "NaN"
    if combination == 0b11110:
        return "-Infinity" if sign else "Infinity"
    large = combination >> 3 == 0b11  # the coefficient's first bits are then 100, and left out
    rest = width - 1 - exponent_bits - (2 if large else 0)
    exponent = (bits >> rest) & ((1 << exponent_bits) - 1)
    coefficient = (bits & ((1 << rest) - 1)) | (0b100 << rest if large else 0)
    if coefficient >= 10**digits:
        coefficient = 0  # not canonical: zero by the standard
    return Decimal((sign, tuple(int(digit) for digit in str(coefficient)), exponent - bias))
