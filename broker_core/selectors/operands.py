"""Operands: the values of an expression in many messages.

An operand has a column for each type, with the mask of rows whose value has that type. In other rows the value is NULL, or has no
type in JMS (a binary, a decimal). A column or mask of one element stands for all rows, as for a literal.

An operand is *loose* if only text could be sent: a DataFrame's `properties` are a map of strings. Its text counts as a number or
boolean if the other side has that type.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .numerals import numbers_of
from .truth import NO, YES, Mask
from .values import Booleans, NumericColumn, Texts, mask_of


@dataclass
class Operand:
    """Values of an expression by type. `null` is the mask of NULL."""

    null: Mask
    numbers: NumericColumn | None = None
    texts: Texts | None = None
    booleans: Booleans | None = None
    loose: bool = False

    @cached_property
    def as_numbers(self) -> NumericColumn | None:
        if self.loose and self.texts is not None:
            return numbers_of(self.texts)
        return self.numbers

    @cached_property
    def as_booleans(self) -> Booleans | None:
        """Loose text counts if it is `true` or `false`, in any letter case."""
        if self.loose and self.texts is not None:
            lower = pc.ascii_lower(self.texts.array)
            true, false = mask_of(pc.equal(lower, "true")), mask_of(pc.equal(lower, "false"))
            return Booleans((true | false) & self.texts.present, true)
        return self.booleans


def literal(value: bool | int | float | str) -> Operand:
    if isinstance(value, bool):
        return Operand(NO, booleans=Booleans(YES, np.bool_(value)))
    if isinstance(value, int):
        return Operand(NO, NumericColumn(YES, np.int64(value), None, YES))
    if isinstance(value, float):
        return Operand(NO, NumericColumn(YES, None, np.float64(value), NO))
    return Operand(NO, texts=Texts(YES, literal=value))


def of_texts(array: pa.Array, *, loose: bool = False) -> Operand:
    present = YES if array.null_count == 0 else np.asarray(array.is_valid())
    return Operand(~present, texts=Texts(present, arrow=array), loose=loose)


def of_ints(values: Any, present: Mask) -> Operand:
    """Rows that are not `present` are NULL."""
    return Operand(~present, NumericColumn(present, values, None, YES))


def of_values(values: list[Any]) -> Operand:
    """Values other than None, bool, int, float and str have no type in JMS."""

    def where(*types: type) -> Any:
        return np.array([type(value) in types for value in values], np.bool_)

    exact = np.array([type(value) is int and -(2**63) <= value < 2**63 for value in values], np.bool_)
    present = where(int, float)
    numbers = NumericColumn(
        present,
        np.array([value if known else 0 for value, known in zip(values, exact, strict=True)], np.int64),
        np.array([float(value) if known else 0.0 for value, known in zip(values, present, strict=True)], np.float64),
        exact,
    )
    texts = pa.array([value if type(value) is str else None for value in values], pa.string())
    booleans = Booleans(where(bool), np.array([value is True for value in values], np.bool_))
    return Operand(where(type(None)), numbers, Texts(where(str), arrow=texts), booleans)
