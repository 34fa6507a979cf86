"""What an expression is worth in each of many messages: a value of one of JMS' types, or NULL.

An operand holds up to three columns, one a type, each with the rows in which the value is of that type; in a row that is in none
of them the value is NULL, or something that JMS has no type for (a binary, a decimal). A column or mask may be one element,
which then stands for all rows, as that of a literal does.

An operand is *loose* where only text could be sent: a DataFrame's `properties` are a map of strings. Its text also counts as the
number or boolean that it shows, wherever the other side is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.broker_core.messages.encoding.arrays import offsets
from penstock.broker_core.messages.encoding.octets import slices, with_nulls
from penstock.broker_core.selectors.truth import NO, YES, Mask


class Numbers(NamedTuple):
    """`there`: where the value is a number. `ints` where it is `exact`, `floats` where not; None where there is none at all."""

    there: Mask
    ints: Any
    floats: Any
    exact: Mask

    def as_floats(self) -> Any:
        if self.ints is None:
            return self.floats
        ints = np.asarray(self.ints).astype(np.float64)
        return ints if self.floats is None else np.where(self.exact, ints, self.floats)


@dataclass
class Texts:
    """Strings, anything (null too) where the value is none: one `literal` for all rows, an Arrow `given`, or slices of a buffer
    that nobody has copied yet."""

    there: Mask
    literal: str | None = None
    given: pa.Array | None = None
    buffer: pa.Buffer | None = None
    starts: Any = None
    ends: Any = None

    @cached_property
    def array(self) -> pa.Array:
        """As an Arrow string array."""
        if self.given is not None:
            return self.given
        return with_nulls(slices(self.buffer, self.starts, self.ends), pa.string(), None)

    def places(self) -> tuple[Any, Any, Any]:
        """The octets of all strings, where each begins, and where it ends."""
        buffer, starts, ends = self.buffer, self.starts, self.ends
        if self.given is not None:
            bounds = offsets(self.given)
            buffer, starts, ends = self.given.buffers()[2], bounds[:-1], bounds[1:]
        octets = np.frombuffer(buffer, np.uint8) if buffer is not None and buffer.size else np.zeros(1, np.uint8)
        return octets, starts, ends

    def equal(self, text: str) -> Any:
        """Which of them are just this text."""
        if self.literal is not None:
            return np.bool_(self.literal == text)
        if self.given is not None:
            return mask_of(pc.equal(self.given, text))
        wanted = text.encode()
        octets, starts, ends = self.places()
        found = ends - starts == len(wanted)
        rows = np.flatnonzero(found & (len(wanted) > 0))
        if len(rows):
            found[rows] = are(octets, starts[rows], wanted)
        return found


def are(octets: Any, starts: Any, wanted: bytes) -> Any:
    """Whether the octets from each start on are the wanted ones; so many of them there must be."""
    width = len(wanted)
    # As numpy's byte strings: those of equal width differ only if they differ without the zeros at their ends, which it ignores.
    texts = np.ndarray((len(octets) - width + 1,), f"S{width}", octets, strides=(1,))
    return texts[starts] == np.bytes_(wanted)


class Booleans(NamedTuple):
    there: Mask
    values: Mask


@dataclass
class Operand:
    null: Mask
    numbers: Numbers | None = None
    texts: Texts | None = None
    booleans: Booleans | None = None
    loose: bool = False

    @cached_property
    def as_numbers(self) -> Numbers | None:
        """The numbers, those that loose text shows too."""
        if self.loose and self.texts is not None:
            from penstock.broker_core.selectors.numerals import numbers_of

            return numbers_of(self.texts)
        return self.numbers

    @cached_property
    def as_booleans(self) -> Booleans | None:
        """The booleans, those that loose text shows too: `true` and `false` in any case."""
        if self.loose and self.texts is not None:
            lower = pc.ascii_lower(self.texts.array)
            true, false = mask_of(pc.equal(lower, "true")), mask_of(pc.equal(lower, "false"))
            return Booleans((true | false) & self.texts.there, true)
        return self.booleans


def literal(value: bool | int | float | str) -> Operand:
    if isinstance(value, bool):
        return Operand(NO, booleans=Booleans(YES, np.bool_(value)))
    if isinstance(value, int):
        return Operand(NO, Numbers(YES, np.int64(value), None, YES))
    if isinstance(value, float):
        return Operand(NO, Numbers(YES, None, np.float64(value), NO))
    return Operand(NO, texts=Texts(YES, literal=value))


def of_texts(array: pa.Array, *, loose: bool = False) -> Operand:
    """A column of strings; null is NULL."""
    there = YES if array.null_count == 0 else np.asarray(array.is_valid())
    return Operand(~there, texts=Texts(there, given=array), loose=loose)


def of_ints(values: Any, there: Mask) -> Operand:
    return Operand(~there, Numbers(there, values, None, YES))


def of_booleans(values: Any) -> Operand:
    return Operand(NO, booleans=Booleans(YES, values))


def of_values(values: list[Any]) -> Operand:
    """Python values, one a row: None, bool, int, float, str, and anything else for what JMS has no type for."""

    def where(*types: type) -> Any:
        return np.array([type(value) in types for value in values], np.bool_)

    exact = np.array([type(value) is int and -(2**63) <= value < 2**63 for value in values], np.bool_)
    there = where(int, float)
    numbers = Numbers(
        there,
        np.array([value if one else 0 for value, one in zip(values, exact, strict=True)], np.int64),
        np.array([float(value) if one else 0.0 for value, one in zip(values, there, strict=True)], np.float64),
        exact,
    )
    texts = pa.array([value if type(value) is str else None for value in values], pa.string())
    booleans = Booleans(where(bool), np.array([value is True for value in values], np.bool_))
    return Operand(where(type(None)), numbers, Texts(where(str), given=texts), booleans)


def mask_of(array: pa.Array) -> Any:
    """An Arrow boolean array as numpy's, False where null."""
    if array.null_count:
        array = array.fill_null(False)
    return array.to_numpy(zero_copy_only=False)
