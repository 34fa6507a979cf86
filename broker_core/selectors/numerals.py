"""Numbers in texts, to compare a DataFrame's properties with numbers.

A numeral has an optional minus, up to `MOST_DIGITS` digits, optionally a point and as many digits, and optionally an exponent of
one or two digits. Digits that fit 64 bits are exact. No other text is a number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .values import NumericColumn, Texts, mask_of

MOST_DIGITS = 30  # before the point, and after it
_INT_DIGITS = 19  # of the largest number of 64 bits
_MANTISSA = rf"[0-9]{{1,{MOST_DIGITS}}}(?:\.[0-9]{{0,{MOST_DIGITS}}})?|\.[0-9]{{1,{MOST_DIGITS}}}"
_NUMERAL = rf"\A-?(?:{_MANTISSA})(?:[eE][+-]?[0-9]{{1,2}})?\z"
_MINUS, _ZERO = ord("-"), ord("0")


def numbers_of(texts: Texts) -> NumericColumn:
    ints, exact = _ints(*texts.extents())
    exact &= texts.present
    rest = np.flatnonzero(~exact & texts.present)
    if not len(rest):
        return NumericColumn(exact, ints, None, exact)
    floats, present = np.zeros(len(ints), np.float64), exact.copy()
    others = texts.array.take(pa.array(rest))
    numerals = mask_of(pc.match_substring_regex(others, _NUMERAL))
    if numerals.any():
        rows = rest[numerals]
        floats[rows] = others.filter(pa.array(numerals)).cast(pa.float64()).to_numpy()
        present[rows] = True
    return NumericColumn(present, ints, floats, exact)


def _ints(octets: Any, starts: Any, ends: Any) -> tuple[Any, Any]:
    """Return the values of texts of digits, and the mask of those texts."""
    if not len(starts):
        return np.zeros(0, np.int64), np.zeros(0, np.bool_)
    first, begin, negative = octets.take(starts, mode="clip"), starts, None
    if (first == _MINUS).any():
        negative = (first == _MINUS) & (ends > starts)
        begin = starts + negative
        first = octets.take(begin, mode="clip")
    digits = ends - begin
    least, most = int(digits.min()), min(int(digits.max()), _INT_DIGITS)
    digit = first - np.uint8(_ZERO)
    fits = (digit < 10) & (digits > 0) & (digits <= _INT_DIGITS)
    values = digit.astype(np.int64 if most < _INT_DIGITS else np.uint64)
    for index in range(1, most):
        digit = octets.take(begin + index, mode="clip") - np.uint8(_ZERO)
        longer = values * values.dtype.type(10) + digit
        if index < least:
            fits &= digit < 10
            values = longer
        else:
            live = digits > index
            fits &= (digit < 10) | ~live
            values = np.where(live, longer, values)
    if most == _INT_DIGITS:
        fits &= values <= np.uint64(2**63 - 1) + (0 if negative is None else negative.astype(np.uint64))
        values = values.astype(np.int64)
    return values if negative is None else np.where(negative, -values, values), fits
