"""What a task does: the record batches of one part, from the broker or, on its own host, straight from its segment files.

An executor on the broker's host needs no server to copy messages: it asks where they lie (`op=map`, which also checks the epoch
and journals the read), maps the files (`mapping.py`) and assembles the columns itself. Where that cannot be, or is not worth it,
the broker sends them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from broker_core import assembly, discovery, message
from broker_core.client import Client
from broker_core.discovery import Endpoint
from broker_core.errors import PeerError
from connector.access import Access
from connector.connections import CONNECTIONS
from connector.context import spark_batch
from connector.mapping import Piece, mapped, may_be_mapped
from connector.patience import RECONNECT_S, Patience

# A record batch below this costs Spark more in fixed work than in rows; one far above only memory.
BATCH_ROWS = 1 << 16
BATCH_BYTES = 8 << 20
# Pieces from here on are worth a batch of their own, without a copy.
LARGE_ROWS = 1 << 12
# A block above this is sent in halves: it must fit the broker's limit on one, and its memory.
MOST_BYTES = 2 * BATCH_BYTES
# Messages that one request sets aside, with their reasons: it fits into the mebibyte that a request may have.
TOLD_AT_ONCE = 2000


@dataclass(kw_only=True, eq=False, repr=False)
class Part(InputPartition):
    """One task of a leased batch: sequence numbers `first` to `last`, both included; of a queue with message groups those of them
    whose groups fall into `bucket` of so many `buckets`. Carries all that the task must know besides the options."""

    known: Endpoint | None  # where the planner has found the broker
    broker: str
    queue: str
    lease: str
    run: str
    epoch: int
    batch: int
    first: int
    last: int
    bucket: int = 0
    buckets: int = 1

    def __repr__(self) -> str:
        groups = f", groups {self.bucket} of {self.buckets}" if self.buckets > 1 else ""
        return f"Part(batch {self.batch} of lease {self.lease!r}: {self.first}..{self.last}{groups})"

    def ticket(self, op: str, columns: Sequence[str], fail_on_data_loss: bool) -> dict[str, Any]:
        names = ("lease", "run", "epoch", "batch", "first", "last", "bucket", "buckets")
        fields = {name: getattr(self, name) for name in names}
        query, number = spark_batch() or (None, None)
        fields |= {"query": query, "queryBatch": number}  # a repeated write of it may turn out to have dropped what we read
        return {"op": op, **fields, "columns": list(columns), "failOnDataLoss": fail_on_data_loss}


class Look(InputPartition):
    """One task of a batch read: what the ticket `op=browse` says."""

    def __init__(self, known: Endpoint | None, ticket: dict[str, Any]) -> None:
        self.known = known
        self.ticket = ticket

    def __repr__(self) -> str:
        return f"Look({self.ticket})"


# --- A task ----------------------------------------------------------------------------------------------------------------


def read_part(part: Part, access: Access, columns: Sequence[str], fail_on_data_loss: bool) -> Iterator[pa.RecordBatch]:
    """The messages of a part in order, as batches of `arrow_schema(columns)`."""
    with CONNECTIONS.lent(access.at(part.known)) as client:
        yield from coalesce(_patiently(lambda: _messages(client, part, columns, fail_on_data_loss)))


def set_aside(client: Client, part: Part, malformed: Mapping[int, str]) -> None:
    """Tell the broker what messages of the part nobody can decode: they are not delivered, and become dead letters when the batch
    is settled. Told again by a task that is repeated, it changes nothing."""
    for first in range(0, len(malformed), TOLD_AT_ONCE):
        reasons: dict[str, list[int]] = {}
        for sequence, reason in islice(malformed.items(), first, first + TOLD_AT_ONCE):
            reasons.setdefault(reason, []).append(sequence)
        client.call("lease.setAside", lease=part.lease, run=part.run, epoch=part.epoch, batch=part.batch, reasons=reasons)


def _patiently(stream: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """The stream, opened again while the broker is away before its first batch; after that Spark repeats the task."""
    patience = Patience(RECONNECT_S)
    while True:
        batches = stream()
        try:
            first = next(batches, None)
        except PeerError as error:
            patience.wait(error)
            continue
        if first is not None:
            yield first
            yield from batches
        return


def _messages(client: Client, part: Part, columns: Sequence[str], fail_on_data_loss: bool) -> Iterator[pa.RecordBatch]:
    ticket = part.ticket("batch", assembly.needed(columns), fail_on_data_loss)
    reached = part.first
    # A settlement's key is the broker's to write.
    if "delivery" not in columns and may_be_mapped(part.broker) and (host := discovery.this_host()) is not None:
        answer = client.get(**{**ticket, "op": "map", "orMessages": True, "host": host})
        first = next(answer, None)
        if first is None:
            return
        answer = chain((first,), answer)
        if not _says_where(first):
            yield from _delivered(client, part, answer, columns)
            return
        files: dict[str, pa.Buffer] | None = {}
        # The broker checks the payloads of the next pieces while Spark takes the rows of these.
        for pieces in map(_pieces, answer):
            files = mapped(pieces, files, part.broker)
            if files is None:
                break
            yield from _assembled(pieces, files, columns, part.queue, partial(set_aside, client, part))
            reached = pieces[-1].end
        else:
            return
    yield from _delivered(client, part, client.get(**{**ticket, "first": reached, "stored": True}), columns)


def read_look(look: Look, access: Access) -> Iterator[pa.RecordBatch]:
    with access.at(look.known).client() as client:
        columns = look.ticket["columns"]
        ticket = {**look.ticket, "columns": assembly.needed(columns), "stored": True}
        queue = look.ticket["queue"]
        for batch in coalesce(client.get(**ticket)):
            malformed: dict[int, str] = {}
            yield assembly.converted(columns, batch, queue, malformed)
            for sequence, reason in malformed.items():
                print(f"penstock: message {sequence} of {queue!r} is no valid AMQP message ({reason})", file=sys.stderr)


def _delivered(client: Client, part: Part, batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Messages as the broker stores them, into the columns asked for: here, not there, since here are more processors."""
    for batch in coalesce(batches):
        malformed: dict[int, str] = {}
        found = assembly.converted(columns, batch, part.queue, malformed)
        if malformed:
            set_aside(client, part, malformed)
            found = assembly.readable(found, batch.column("sequenceNumber"), malformed)
        yield found


def as_declared(batches: Iterable[pa.RecordBatch], nullable: Sequence[bool]) -> Iterator[pa.RecordBatch]:
    """The same batches with the nullability that a user's schema declares, which Spark compares to the letter."""
    schema: pa.Schema | None = None
    for batch in batches:
        if schema is None:
            schema = pa.schema([field.with_nullable(may) for field, may in zip(batch.schema, nullable, strict=True)])
        yield batch if batch.schema.equals(schema) else pa.RecordBatch.from_arrays(batch.columns, schema=schema)


# --- On the broker's host --------------------------------------------------------------------------------------------------


def _says_where(batch: pa.RecordBatch) -> bool:
    """Is this a batch of pieces? Else the messages lie too scattered, and come themselves."""
    return tuple(batch.schema.names[:1]) == Piece._fields[:1]


def _pieces(batch: pa.RecordBatch) -> list[Piece]:
    return [Piece(*row) for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


def _assembled(
    pieces: Iterable[Piece],
    files: dict[str, pa.Buffer],
    columns: Sequence[str],
    queue: str,
    aside: Callable[[Mapping[int, str]], None],
) -> Iterator[pa.RecordBatch]:
    measured = ((p, p.rows, p.length, message.is_encoded(p.columns), p.rows >= LARGE_ROWS) for p in pieces)
    for group in assembly.grouped(measured, BATCH_ROWS, BATCH_BYTES):
        malformed: dict[int, str] = {}
        found, sequence = _assemble(group, files, columns, queue, malformed)
        if malformed:
            aside(malformed)
            found = assembly.readable(found, sequence, malformed)
        yield found


def _assemble(
    pieces: list[Piece], files: dict[str, pa.Buffer], columns: Sequence[str], queue: str, malformed: dict[int, str]
) -> tuple[pa.RecordBatch, int | pa.Array]:
    """The messages, and their sequence numbers."""
    payloads = [_payload(piece, files) for piece in pieces]
    if len(pieces) == 1:
        one = pieces[0]
        sequence = one.sequence if one.taken is None else _sequences(pieces, pa.nulls(0))
        found = assembly.assemble(
            columns,
            payloads[0],
            queue=queue,
            sequence=sequence,
            time=one.time,
            delivery_count=one.deliveryCount,
            malformed=malformed,
        )
        return found, sequence
    owners = _owners(pieces)
    sequence = _sequences(pieces, owners)
    found = assembly.assemble(
        columns,
        assembly.joined(payloads),
        queue=queue,
        sequence=sequence,
        time=_each([p.time for p in pieces], owners),
        delivery_count=_each([p.deliveryCount for p in pieces], owners),
        malformed=malformed,
    )
    return found, sequence


def _payload(piece: Piece, files: dict[str, pa.Buffer]) -> pa.RecordBatch:
    stored = message.unpack(piece.columns, files[piece.file].slice(piece.offset, piece.length))
    return stored.slice(piece.row, piece.rows) if piece.taken is None else stored.take(piece.numbers())


# Without numpy, which an executor need not have, and without a Python object for each row.


def _owners(pieces: list[Piece]) -> pa.Array:
    """Of each row the place of its piece."""
    import pyarrow.compute as pc

    ends = pa.array([0, *accumulate(p.rows for p in pieces)], pa.int32())
    return pc.list_parent_indices(pa.ListArray.from_arrays(ends, pa.nulls(ends[-1].as_py())))


def _each(values: list[int], owners: pa.Array) -> int | pa.Array:
    """One value of each piece for all of its rows; a number if it is the same for all."""
    return values[0] if values.count(values[0]) == len(values) else pa.array(values, pa.int64()).take(owners)


def _sequences(pieces: list[Piece], owners: pa.Array) -> int | pa.Array:
    import pyarrow.compute as pc

    if any(piece.taken is not None for piece in pieces):
        return pa.concat_arrays([_apart(piece) for piece in pieces])
    before = accumulate((p.rows for p in pieces), initial=0)
    bases = _each([p.sequence - rows for p, rows in zip(pieces, before, strict=False)], owners)  # the last one is the total
    return bases if isinstance(bases, int) else pc.add(bases, assembly.rising(0, len(owners)))


def _apart(piece: Piece) -> pa.Array:
    import pyarrow.compute as pc

    if piece.taken is None:
        return assembly.rising(piece.sequence, piece.rows)
    return pc.add(piece.numbers().cast(pa.int64()), piece.sequence - piece.row)


# --- Many small into few large, and the other way --------------------------------------------------------------------------


def coalesce(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, small batches joined until they hold `BATCH_ROWS` rows or `BATCH_BYTES` bytes."""
    filled = (batch for batch in batches if batch.num_rows)
    # What is large enough by itself is not copied for the sake of the few rows before it.
    measured = ((b, b.num_rows, size := b.nbytes, True, b.num_rows >= BATCH_ROWS or size >= BATCH_BYTES) for b in filled)
    for group in assembly.grouped(measured, BATCH_ROWS, BATCH_BYTES):
        yield _joined(group)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def halved(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in pieces of at most `MOST_BYTES`, or of one row."""
    if batch.nbytes <= MOST_BYTES or batch.num_rows == 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from halved(batch.slice(0, middle))
    yield from halved(batch.slice(middle))
