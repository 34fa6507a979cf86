"""Arrow's IPC messages in a Flight stream: incoming messages are measured before pyarrow decodes them, outgoing ones are framed.

pyarrow's reader decompresses bodies, and follows buffers before they can be checked. So each message's metadata (a flatbuffer) is
parsed here first. These messages are refused:

- compressed bodies, and buffers that overlap (one buffer as many columns);
- more rows than a batch may have, and a body of another length than its metadata claims;
- dictionaries beyond `DICTIONARY_BYTES`;
- one text at many places of a flatbuffer: pyarrow would make as many copies.

A message takes no more memory than its bytes, until the next one is requested, or for a dictionary until its stream ends.
`batch_checks.validate` limits the size after a cast.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .. import errors
from . import arrow_types, protobuf

if TYPE_CHECKING:
    from .calls import Call
    from .transports import Octets

METADATA_BYTES = 1 << 20  # of one message, and of all texts in it
MOST_FIELDS = 1024  # of one schema, at any depth, and as many notes (`custom_metadata`); the message columns have some forty
DICTIONARY_BYTES = 32 << 20  # of all streams together: dictionaries last as long as their stream
DICTIONARY_COST = 1 << 10  # of each dictionary or addition: pyarrow keeps all of them, also empty ones
MOST_BUFFERS = 1024  # of one record batch; all message columns have some sixty
_CONTINUATION = b"\xff\xff\xff\xff"
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3  # MessageHeader
_KINDS = ("nothing", "a schema", "a dictionary", "a record batch", "a tensor", "a sparse tensor")  # by MessageHeader
_BYTE_ORDERS = range(2)  # Endianness: little, and big, which pyarrow converts
_VERSIONS = range(3, 5)  # MetadataVersion: V4 and V5; pyarrow reads no older ones


class Dictionaries:
    """Bytes of the streams' dictionaries. Thread-safe."""

    def __init__(self) -> None:
        self._left = DICTIONARY_BYTES
        self._lock = threading.Lock()

    def take(self, octets: int) -> None:
        """Raises ResourceLimit if all dictionaries together are too large."""
        with self._lock:
            if octets > self._left:
                raise errors.ResourceLimit(
                    f"the dictionaries of all senders have at most {DICTIONARY_BYTES} bytes together: send these columns without"
                    " dictionaries, or try again later"
                )
            self._left -= octets

    def give(self, octets: int) -> None:
        with self._lock:
            self._left += octets


class ArrowBatchReader:
    """The record batches of one `do_put`. `close` it when the call is over."""

    def __init__(self, call: Call, dictionaries: Dictionaries, *, most_bytes: int, most_rows: int) -> None:
        self._call, self._dictionaries = call, dictionaries
        self._most_bytes, self._most_rows = most_bytes, most_rows
        self._held: dict[int, int] = {}  # dictionary id -> octets
        self._pieces: deque[memoryview | bytes] = deque()
        self._began = self._ended = False
        self._reader: Any = None
        self._metadata: deque[bytes] = deque()
        self.app_metadata = b""  # of the last batch
        self.waiting: Callable[[], None] | None = None  # called from time to time while a batch waits for memory
        self.closed = False  # read by pyarrow

    def begin(self) -> bytes:
        message = self._call.next(self.waiting)
        if message is None:
            raise errors.InvalidRequest("put: the stream is empty; its first message must contain the request")
        fields = protobuf.parse("put", message.view)
        descriptor = protobuf.parse("put", fields.get(protobuf.FLIGHT_DESCRIPTOR, b""))
        self._queue(fields)
        return bytes(descriptor.get(protobuf.DESCRIPTOR_COMMAND, b""))

    def next(self) -> pa.RecordBatch | None:
        """Return the next record batch, not validated; None after the last."""
        try:
            if self._reader is None:
                self._reader = pa.ipc.open_stream(self)
            batch = self._reader.read_next_batch()
            self.app_metadata = self._metadata.popleft()
            return batch
        except StopIteration:
            return None
        except pa.ArrowException as error:
            if self._ended and not self._began:
                return None  # a stream without a schema is empty
            raise errors.InvalidRequest(f"the record batch is malformed: {error}") from None

    def close(self) -> None:
        self.closed = True
        self._reader = None
        self._dictionaries.give(sum(self._held.values()))
        self._held.clear()

    def read(self, octets: int) -> memoryview | bytes:
        """For pyarrow: return the next bytes of a stream in IPC's own framing. A whole piece is not copied."""
        while not self._pieces and not self._ended:
            message = self._call.next(self.waiting)
            if message is None:
                self._ended = True
            else:
                self._queue(protobuf.parse("put", message.view))
        if not self._pieces:
            return b""
        piece = self._piece(octets)
        if len(piece) == octets:
            return piece
        joined = bytearray(piece)
        while len(joined) < octets and self._pieces:
            joined += self._piece(octets - len(joined))
        return bytes(joined)

    def _piece(self, most: int) -> memoryview | bytes:
        piece = self._pieces.popleft()
        if len(piece) > most:
            self._pieces.appendleft(piece[most:])
        return piece[:most]

    def _queue(self, fields: dict[int, memoryview]) -> None:
        metadata, body = fields.get(protobuf.DATA_HEADER, b""), fields.get(protobuf.DATA_BODY, b"")
        if not len(metadata):
            if len(body):
                raise errors.InvalidRequest("the record batch is malformed: a body without a header")
            return
        kind = self._measure(metadata, len(body))
        if kind == _BATCH:
            self._metadata.append(bytes(fields.get(protobuf.APP_METADATA, b"")))
        elif kind == _DICTIONARY:
            body = bytes(body)  # a view would keep the whole message
        self._pieces += [_CONTINUATION, len(metadata).to_bytes(4, "little"), metadata]
        if len(body):
            self._pieces.append(body)

    def _measure(self, metadata: memoryview | bytes, body: int) -> int:
        if len(metadata) > METADATA_BYTES:
            raise _too_much_metadata()
        try:
            kind, dictionary, sizes = _inspect(metadata)
        except (struct.error, ValueError, IndexError) as error:
            raise errors.InvalidRequest(f"the record batch is malformed: its metadata cannot be read ({error})") from None
        if kind not in (_SCHEMA, _DICTIONARY, _BATCH) or (kind == _SCHEMA) == self._began:
            description = _KINDS[kind] if kind < len(_KINDS) else f"a message of the unknown kind {kind}"
            raise errors.InvalidRequest(f"the stream is malformed: {description} is not expected here")
        self._began = True
        if sizes.body_length != body:
            raise errors.InvalidRequest(
                f"the record batch is malformed: a body of {body} bytes, {sizes.body_length} in its metadata"
            )
        if kind == _SCHEMA:
            return kind
        if body > self._most_bytes:
            raise too_large(self._most_bytes, body)
        sizes.check(body, self._most_rows)
        if dictionary is not None:
            number, delta = dictionary
            before, cost = self._held.get(number, 0), body + DICTIONARY_COST
            self._dictionaries.take(cost)
            self._held[number] = before + cost if delta else cost
            if not delta:
                self._dictionaries.give(before)
        return kind


def too_large(limit: int, octets: int) -> errors.PenstockError:
    return errors.ResourceLimit(f"a record batch has at most {limit} bytes, this one {octets}: send smaller ones")


def _too_much_metadata() -> errors.PenstockError:
    return errors.ResourceLimit(f"the metadata of an Arrow message has at most {METADATA_BYTES} bytes")


class _BatchSizes:
    def __init__(self, body_length: int) -> None:
        self.body_length = body_length
        self.rows = 0
        self.compressed = False
        self.buffers: list[tuple[int, int]] = []  # offset, length

    def check(self, body: int, most_rows: int) -> None:
        if self.compressed:
            raise errors.InvalidRequest("compressed record batches are refused: send without compression")
        if not 0 <= self.rows <= most_rows:
            raise errors.ResourceLimit(f"a record batch has at most {most_rows} rows, this one {self.rows}: send smaller ones")
        end = 0
        for offset, length in self.buffers:
            if length and not end <= offset <= offset + length <= body:
                raise errors.InvalidRequest("the record batch is malformed: its buffers overlap, or lie outside of its body")
            end = offset + length if length else end


def _inspect(metadata: memoryview | bytes) -> tuple[int, tuple[int, bool] | None, _BatchSizes]:
    """Return a message's kind, a dictionary's id and whether it is an addition, and the sizes."""
    data = memoryview(metadata)
    message = _Table(data, _offset(data, 0))
    kind, sizes = message.scalar(1, "<B"), _BatchSizes(message.scalar(3, "<q"))
    header = message.table(2)
    if (version := message.scalar(0, "<h")) not in _VERSIONS:
        raise errors.InvalidRequest(f"metadata version {version + 1} of Arrow's format is refused: send version 4 or 5")
    _check_texts(message, header if kind == _SCHEMA else None)
    if kind == _SCHEMA and header is not None:
        if (order := header.scalar(0, "<h")) not in _BYTE_ORDERS:
            raise errors.InvalidRequest(f"the schema is malformed: the byte order {order} is unknown")
        _check_types(header)
    if header is None or kind not in (_DICTIONARY, _BATCH):
        return kind, None, sizes
    dictionary = None
    if kind == _DICTIONARY:
        dictionary = header.scalar(0, "<q"), bool(header.scalar(2, "<B"))
        header = header.table(1)
        if header is None:
            raise ValueError("a dictionary without values")
    sizes.rows = header.scalar(0, "<q")
    sizes.compressed = header.table(3) is not None
    sizes.buffers = header.pairs(2)
    return kind, dictionary, sizes


def _check_types(schema: _Table) -> None:
    """Refuse types that no message column can have. `_check_texts` has limited the fields."""
    for column in schema.tables(1):
        waiting = [column]
        while waiting:
            field = waiting.pop()
            number = field.scalar(2, "<B")
            if number not in arrow_types.ACCEPTED and (error := arrow_types.refusal(column.text(0), number)) is not None:
                raise error
            waiting += field.tables(5)


def _check_texts(message: _Table, schema: _Table | None) -> None:
    """Refuse texts that grow when they are read: each place that refers to a text counts."""
    notes, waiting, fields, texts = message.tables(4), [], 0, 0
    if schema is not None:
        notes, waiting = notes + schema.tables(2), schema.tables(1)
    while waiting:
        field, fields = waiting.pop(), fields + 1
        notes += field.tables(6)
        waiting += field.tables(5)
        if fields + len(waiting) > MOST_FIELDS or len(notes) > MOST_FIELDS:
            raise _too_many_fields()
        texts += field.length(0)
        kind = field.table(3)
        if kind is not None and field.scalar(2, "<B") == arrow_types.TIMESTAMP:
            texts += kind.length(1)  # its zone
    if texts + sum(note.length(0) + note.length(1) for note in notes) > METADATA_BYTES:
        raise _too_much_metadata()


def _too_many_fields() -> errors.PenstockError:
    return errors.ResourceLimit(f"a schema has at most {MOST_FIELDS} fields, and as many notes (custom_metadata) to them")


class _Table:
    """A flatbuffer's table. A reference outside of the buffer raises struct.error."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - struct.unpack_from("<i", data, at)[0]
        if self._fields < 0:
            raise ValueError("a table without fields")
        self._size = struct.unpack_from("<H", data, self._fields)[0]

    def _field(self, number: int) -> int | None:
        place = 4 + 2 * number
        if place + 2 > self._size:
            return None
        offset = struct.unpack_from("<H", self._data, self._fields + place)[0]
        return self._at + offset if offset else None

    def scalar(self, number: int, form: str) -> int:
        at = self._field(number)
        return 0 if at is None else int(struct.unpack_from(form, self._data, at)[0])

    def table(self, number: int) -> _Table | None:
        at = self._field(number)
        return None if at is None else _Table(self._data, _offset(self._data, at))

    def length(self, number: int) -> int:
        return self._vector(number)[1]

    def text(self, number: int) -> str:
        """Invalid UTF-8 is replaced: `batch_checks` refuses it."""
        first, size = self._vector(number)
        return str(self._data[first : first + size], errors="replace")

    def tables(self, number: int) -> list[_Table]:
        first, count = self._vector(number)
        if count > MOST_FIELDS:
            raise _too_many_fields()
        return [_Table(self._data, _offset(self._data, place)) for place in range(first, first + 4 * count, 4)]

    def pairs(self, number: int) -> list[tuple[int, int]]:
        first, count = self._vector(number)
        if count > MOST_BUFFERS:
            raise ValueError(f"more than {MOST_BUFFERS} buffers")
        return list(struct.iter_unpack("<qq", self._data[first : first + 16 * count]))

    def _vector(self, number: int) -> tuple[int, int]:
        """Return the place and the length of a vector or a text; 0 without the field."""
        at = self._field(number)
        if at is None:
            return 0, 0
        start = _offset(self._data, at)
        return start + 4, int(struct.unpack_from("<I", self._data, start)[0])


def _offset(data: memoryview, at: int) -> int:
    return at + int(struct.unpack_from("<I", data, at)[0])


# --- out


class ArrowBatchWriter:
    """Frames a schema and its record batches as FlightData, without copies: pyarrow writes buffers here piece by piece."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._pieces: list[Any] = []
        self._writer: Any = None
        self.closed = False  # pyarrow asks

    def begin(self) -> list[Octets]:
        view = memoryview(self._schema.serialize())
        length = int.from_bytes(view[4:8], "little")
        return [protobuf.field(protobuf.DATA_HEADER, length), view[8 : 8 + length]]

    def message(self, batch: pa.RecordBatch) -> list[Octets]:
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self, self._schema)
            self._writer.write_batch(batch)
            self._metadata()  # pyarrow begins a stream with the schema
        else:
            self._writer.write_batch(batch)
        length, metadata = self._metadata()
        body, self._pieces = self._pieces, []
        size = sum(map(len, body))
        begin = protobuf.field(protobuf.DATA_HEADER, length)
        return [begin, *metadata, protobuf.field(protobuf.DATA_BODY, size), *body]

    def _metadata(self) -> tuple[int, list[Octets]]:
        """Remove a message's metadata, padding included, from the pieces. Return its length and pieces."""
        continuation, size = self._pieces[:2]
        length, count, at = int.from_bytes(size, "little"), 0, 2
        while count < length:
            count += len(self._pieces[at])
            at += 1
        if continuation != _CONTINUATION or count != length:
            raise RuntimeError("pyarrow's framing of messages has changed")
        metadata = self._pieces[2:at]
        del self._pieces[:at]
        return length, metadata

    def write(self, piece: Any) -> int:
        """For pyarrow."""
        self._pieces.append(piece)
        return len(piece)

    def flush(self) -> None:
        """For pyarrow."""

    def close(self) -> None:
        """For pyarrow."""
        self.closed = True
