"""Values of one type in many messages: numbers, texts, booleans, each with the rows that have one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..messages.encoding.arrays import offsets
from ..messages.encoding.octets import slices, with_nulls
from .truth import Mask


class Numbers(NamedTuple):
    """Numbers, in rows where `there` is true: `ints` where `exact`, `floats` elsewhere. A column without any value is None."""

    there: Mask
    ints: Any
    floats: Any
    exact: Mask

    def as_floats(self) -> Any:
        """Return all numbers as doubles."""
        if self.ints is None:
            return self.floats
        ints = np.asarray(self.ints).astype(np.float64)
        return ints if self.floats is None else np.where(self.exact, ints, self.floats)


@dataclass
class Texts:
    """Strings, in rows where `there` is true; other rows hold anything, null too.

    They are one `literal` for all rows, an Arrow array `given`, or slices of a buffer that are not copied yet.
    """

    there: Mask
    literal: str | None = None
    given: pa.Array | None = None
    buffer: pa.Buffer | None = None
    starts: Any = None
    ends: Any = None

    @cached_property
    def array(self) -> pa.Array:
        """The strings as an Arrow array."""
        if self.given is not None:
            return self.given
        return with_nulls(slices(self.buffer, self.starts, self.ends), pa.string(), None)

    def extents(self) -> tuple[Any, Any, Any]:
        """Return the octets of all strings, the start and the end of each."""
        buffer, starts, ends = self.buffer, self.starts, self.ends
        if self.given is not None:
            bounds = offsets(self.given)
            buffer, starts, ends = self.given.buffers()[2], bounds[:-1], bounds[1:]
        octets = np.frombuffer(buffer, np.uint8) if buffer is not None and buffer.size else np.zeros(1, np.uint8)
        return octets, starts, ends

    def equal(self, text: str) -> Any:
        """Return the mask of rows with exactly this text."""
        if self.literal is not None:
            return np.bool_(self.literal == text)
        if self.given is not None:
            return mask_of(pc.equal(self.given, text))
        wanted = text.encode()
        octets, starts, ends = self.extents()
        found = ends - starts == len(wanted)
        rows = np.flatnonzero(found & (len(wanted) > 0))
        if len(rows):
            found[rows] = equal_at(octets, starts[rows], wanted)
        return found


def equal_at(octets: Any, starts: Any, wanted: bytes) -> Any:
    """Return the mask of starts at which `octets` holds `wanted`. Each start must have that many octets after it."""
    width = len(wanted)
    # Numpy's byte strings ignore zeros at their ends; strings of one width are equal with them if they are without.
    texts = np.ndarray((len(octets) - width + 1,), f"S{width}", octets, strides=(1,))
    return texts[starts] == np.bytes_(wanted)


class Booleans(NamedTuple):
    """Booleans, in rows where `there` is true."""

    there: Mask
    values: Mask


def mask_of(array: pa.Array) -> Any:
    """Return an Arrow boolean array as numpy's, False where null."""
    if array.null_count:
        array = array.fill_null(False)
    return array.to_numpy(zero_copy_only=False)
