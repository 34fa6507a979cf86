"""Messages in the stored form that came together, with the same header: their octets as they are.

Arrow is asked once, for what is stored of them. Nearly all of them leave soon after they came, and to get single messages out of
a record batch again takes longer than all else that is done with them on that way.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from ..columns import MESSAGE_COLUMNS, mask_of, payload_schema
from . import headers
from .headers import HeaderFields
from .lone import KEPT_TEMPLATES, Lone, names_of

FEW = 16  # messages for which plain Python is faster than Arrow


class Alike(NamedTuple):
    """Bare messages as they came, and the header that stood before each of them: without a ttl, as for `Lone`."""

    messages: list[bytes]
    said: HeaderFields

    @property
    def num_rows(self) -> int:
        """Return their number, as a record batch says it."""
        return len(self.messages)

    @property
    def mask(self) -> int:
        """Return the columns that are stored of them."""
        return _form(self.said).mask

    @property
    def batch(self) -> pa.RecordBatch:
        """The record batch that they stand for, made anew."""
        form, rows = _form(self.said), len(self.messages)
        columns = [pa.repeat(value, rows) for value in form.values]
        return pa.RecordBatch.from_arrays([*columns, binary(self.messages)], schema=form.schema)

    def serialize(self) -> pa.Buffer:
        """Write what `batch.serialize()` writes."""
        return self.batch.serialize()

    def slice(self, first: int, count: int) -> Alike:
        """Return consecutive messages."""
        return self._replace(messages=self.messages[first : first + count])

    def take(self, rows: Iterable[int]) -> Alike:
        """Return some of the messages, by number."""
        return self._replace(messages=[self.messages[row] for row in rows])

    def leaving(self, attempts: int, *, returned: bool) -> list[bytes]:
        """Form the complete messages, as `leaving.leaving` does."""
        head = headers.write(self.said.priority, self.said.durable, None, attempts, returned)
        return [head + message for message in self.messages]


class _Form(NamedTuple):
    """Columns that the record batches of messages with one header have in common."""

    values: list[pa.Scalar]  # of the columns before the messages
    schema: pa.Schema
    mask: int


@lru_cache(KEPT_TEMPLATES)
def _form(said: HeaderFields) -> _Form:
    *before, _ = names = names_of(said)
    mask = mask_of(names)
    return _Form([pa.scalar(getattr(said, name), MESSAGE_COLUMNS[name]) for name in before], payload_schema(mask), mask)


#: Messages in the stored form.
Payload: TypeAlias = "pa.RecordBatch | Lone | Alike"


def as_batch(payload: Payload) -> pa.RecordBatch:
    """Return messages as a record batch, whichever form they have."""
    return payload.batch if isinstance(payload, Lone | Alike) else payload


def binary(values: list[bytes]) -> pa.Array:
    """Do as `pa.array(values, pa.binary())`, which takes longer for its preparations than for a few values."""
    if len(values) > FEW:
        return pa.array(values, pa.binary())
    ends = np.array([0, *accumulate(map(len, values))], np.int32)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))])
