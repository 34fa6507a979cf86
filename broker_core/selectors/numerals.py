"""Texts that show a number: what a DataFrame's properties are compared with numbers by.

A numeral is an optional minus, up to `MOST_DIGITS` decimal digits, perhaps a point and as many again, perhaps an exponent of one
or two digits; nothing around it. One of at most 19 digits alone, which fits 64 bits, is exact. No other text is a number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.encoding.arrays import offsets
from broker_core.selectors.operands import Numbers, Texts, mask_of

MOST_DIGITS = 30  # before the point, and after it
_INT_DIGITS = 19  # of the largest number of 64 bits
_MANTISSA = rf"[0-9]{{1,{MOST_DIGITS}}}(?:\.[0-9]{{0,{MOST_DIGITS}}})?|\.[0-9]{{1,{MOST_DIGITS}}}"
_NUMERAL = rf"\A-?(?:{_MANTISSA})(?:[eE][+-]?[0-9]{{1,2}})?\z"
_MINUS, _ZERO = ord("-"), ord("0")


def numbers_of(texts: Texts) -> Numbers:
    """The numbers that the texts show; `there` says of which texts."""
    array = texts.values
    ints, exact = _ints(array)
    exact &= texts.there
    rest = np.flatnonzero(~exact & texts.there)
    if not len(rest):
        return Numbers(exact, ints, None, exact)
    floats, there = np.zeros(len(array), np.float64), exact.copy()
    others = array.take(pa.array(rest))
    numerals = mask_of(pc.match_substring_regex(others, _NUMERAL))
    if numerals.any():
        rows = rest[numerals]
        floats[rows] = others.filter(pa.array(numerals)).cast(pa.float64()).to_numpy()
        there[rows] = True
    return Numbers(there, ints, floats, exact)


def _ints(array: pa.Array) -> tuple[Any, Any]:
    """The texts that are digits only, digit by digit; and which these are."""
    ends = offsets(array)
    data = array.buffers()[2]
    if data is None or data.size == 0:
        return np.zeros(len(array), np.int64), np.zeros(len(array), np.bool_)
    octets = np.frombuffer(data, np.uint8)
    begin = ends[:-1]
    negative = (octets.take(begin, mode="clip") == _MINUS) & (ends[1:] > begin)
    begin = begin + negative
    digits = ends[1:] - begin
    fits = (digits > 0) & (digits <= _INT_DIGITS)
    values = np.zeros(len(array), np.uint64)
    for place in range(int(digits[fits].max()) if fits.any() else 0):
        digit = octets.take(begin + place, mode="clip") - np.uint8(_ZERO)
        live = fits & (digits > place)
        fits &= ~live | (digit < 10)
        values = np.where(live, values * np.uint64(10) + digit, values)
    fits &= values <= np.uint64(2**63 - 1) + negative.astype(np.uint64)
    signed = values.astype(np.int64)
    return np.where(negative, -signed, signed), fits
