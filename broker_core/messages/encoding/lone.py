"""One encoded message in the stored form without Arrow, whose preparations take longer than one message is worth.

What is stored is to the octet what Arrow would write. As with `amqp.disposing` there is no second writer that has to be
right: Arrow writes a record batch of one sample, and where it says how long the sample is, a *template* gets another
length.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from ..columns import MESSAGE_COLUMNS, mask_of, payload_schema
from . import headers
from .headers import HeaderFields

# A length that no other number in a record batch is, nor the length of all of its buffers; padded to 8 octets it is another.
SAMPLE_OCTETS = 1_000_003
KEPT_TEMPLATES = 64  # one for each header; a sender has one or two

_LONG, _INT = struct.Struct("<q"), struct.Struct("<i")
_PADDING = [bytes(count) for count in range(8)]


class Lone(NamedTuple):
    """A bare message as it came, and the header that stood before it: without a ttl, which has a column behind the message."""

    message: bytes
    said: HeaderFields

    @property
    def num_rows(self) -> int:
        """One, as a record batch says it."""
        return 1

    @property
    def mask(self) -> int:
        """The columns that are stored of it."""
        return _template(self.said).mask

    @property
    def batch(self) -> pa.RecordBatch:
        """The record batch that it stands for."""
        return batch_of(self.message, self.said)

    def octets(self) -> list[bytes]:
        """Write what `batch.serialize()` writes, in pieces, of which one is the message itself."""
        return _template(self.said).around(self.message)

    def leaving(self, attempts: int, *, returned: bool) -> bytes:
        """Form the complete message, as `leaving.leaving` does."""
        return headers.write(self.said.priority, self.said.durable, None, attempts, returned) + self.message


def batch_of(message: bytes, said: HeaderFields) -> pa.RecordBatch:
    """Build a record batch of one message, in the stored form."""
    values = {"priority": said.priority, "durable": said.durable, "message": message}
    names = names_of(said)
    columns = [pa.array([values[name]], MESSAGE_COLUMNS[name]) for name in names]
    return pa.RecordBatch.from_arrays(columns, schema=payload_schema(mask_of(names)))


def names_of(said: HeaderFields) -> list[str]:
    """List the columns of messages with such a header, in mask order."""
    return [name for name in ("priority", "durable") if getattr(said, name) is not None] + ["message"]


class _Template(NamedTuple):
    """Octets that Arrow writes before those of a message: metadata, the other columns, the two offsets of the message.

    They hold the length of the message twice, and that of all buffers once.
    """

    head: bytes
    buffers_at: int  # where the length of all buffers stands
    length_at: int  # where the length of the message stands; the second offset, which says it again, is the end of `head`
    buffers: int  # octets of all buffers but the message
    mask: int  # of the columns

    def around(self, message: bytes) -> list[bytes]:
        length, head = len(message), bytearray(self.head)
        padding = _PADDING[-length & 7]
        _LONG.pack_into(head, self.buffers_at, self.buffers + length + len(padding))
        _LONG.pack_into(head, self.length_at, length)
        _INT.pack_into(head, len(head) - _INT.size, length)
        return [bytes(head), message, padding]


@lru_cache(KEPT_TEMPLATES)
def _template(said: HeaderFields) -> _Template:
    written = batch_of(bytes(SAMPLE_OCTETS), said).serialize().to_pybytes()
    padded = SAMPLE_OCTETS + (-SAMPLE_OCTETS & 7)
    head = written[:-padded]
    metadata = _INT.unpack_from(head, 4)[0] + 8  # a marker and this length go before it
    buffers = len(head) - metadata
    return _Template(head, _only(head, buffers + padded), _only(head, SAMPLE_OCTETS), buffers, mask_of(names_of(said)))


def _only(head: bytes, number: int) -> int:
    """Find the one place where a number of 64 bits stands."""
    octets = _LONG.pack(number)
    assert head.count(octets) == 1, "Arrow writes each of the lengths once"
    return head.index(octets)
