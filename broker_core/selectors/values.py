"""Values of one type in many messages, with the mask of rows that have such a value."""

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


class NumericColumn(NamedTuple):
    """Numbers: `ints` in the rows `exact`, `floats` elsewhere. None: no values."""

    present: Mask
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
    """Strings. Other rows contain any text, or null.

    They are one `literal` for all rows, an Arrow array, or slices of a buffer that are not copied yet.
    """

    present: Mask
    literal: str | None = None
    arrow: pa.Array | None = None
    buffer: pa.Buffer | None = None
    starts: Any = None
    ends: Any = None

    @cached_property
    def array(self) -> pa.Array:
        if self.arrow is not None:
            return self.arrow
        return with_nulls(slices(self.buffer, self.starts, self.ends), pa.string(), None)

    def extents(self) -> tuple[Any, Any, Any]:
        """Return the bytes of all strings, and their starts and ends."""
        buffer, starts, ends = self.buffer, self.starts, self.ends
        if self.arrow is not None:
            bounds = offsets(self.arrow)
            buffer, starts, ends = self.arrow.buffers()[2], bounds[:-1], bounds[1:]
        octets = np.frombuffer(buffer, np.uint8) if buffer is not None and buffer.size else np.zeros(1, np.uint8)
        return octets, starts, ends

    def equal(self, text: str) -> Any:
        if self.literal is not None:
            return np.bool_(self.literal == text)
        if self.arrow is not None:
            return mask_of(pc.equal(self.arrow, text))
        wanted = text.encode()
        octets, starts, ends = self.extents()
        equal = ends - starts == len(wanted)
        rows = np.flatnonzero(equal & (len(wanted) > 0))
        if len(rows):
            equal[rows] = equal_at(octets, starts[rows], wanted)
        return equal


def equal_at(octets: Any, starts: Any, wanted: bytes) -> Any:
    """Return the mask of starts at which `octets` contains `wanted`. As many bytes must follow each start."""
    width = len(wanted)
    # numpy's byte strings ignore zeros at their ends, which does not matter for strings of one width.
    texts = np.ndarray((len(octets) - width + 1,), f"S{width}", octets, strides=(1,))
    return texts[starts] == np.bytes_(wanted)


class Booleans(NamedTuple):
    """Booleans in the rows `present`."""

    present: Mask
    values: Mask


def mask_of(array: pa.Array) -> Any:
    """Null is False."""
    if array.null_count:
        array = array.fill_null(False)
    return array.to_numpy(zero_copy_only=False)
