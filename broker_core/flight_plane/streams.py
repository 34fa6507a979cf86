"""Messages out: what a ticket names, as a schema and a stream of record batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from .. import errors
from ..actions import namespaces
from ..actions.browsing import archived, selection
from ..actions.callers import Caller
from ..actions.malformed import by_reason, set_aside
from ..actions.permissions import Check, Permissions
from ..actions.recorded import RecordedMessages, beyond, may_be_beyond
from ..actions.requests import TICKETS, by_op, reader_of, strings
from ..archive.files import Table
from ..client import timeouts
from ..client.discovery import this_host
from ..engine import commands as c
from ..engine.columns.blocks import Block
from ..engine.columns.rowset import BLOCK_ROWS, as_array, row_count
from ..engine.model.groups import in_bucket
from ..engine.model.queue import PackedBlock
from ..messages import delivery_key
from ..messages.columns import OUTCOME_COLUMNS, arrow_schema
from ..reading import mapped
from ..reading.batches import record_batches
from ..reading.slices import BlockSlice
from ..selectors import Selector, parse
from ..service.broker import BrokerService
from ..service.matching import evaluated
from ..service.missing import Missing


class Streams:
    """The tickets of docs/protocols/flight.md on one broker."""

    def __init__(self, service: BrokerService, permissions: Permissions, recorded: RecordedMessages) -> None:
        self._recorded = recorded
        self._service = service
        self._permissions = permissions

    def open(self, caller: Caller, ticket: bytes) -> tuple[pa.Schema, Iterator[Any], Check]:
        """Schema, stream, and whether it is still permitted. Raises PenstockError, now or while the stream is read."""
        request = by_op(ticket, TICKETS)
        namespaces.resolve(self._service.state, caller, request["op"], request)
        check = self._permissions.check(caller, request["op"], request)
        columns = strings("columns", request["columns"])
        schema = arrow_schema(columns, stored=request.get("stored", False) or request.get("orMessages", False))
        if request["op"] == "browse":
            return schema, self._browse(request, columns), check
        if request["op"] == "archive":
            return schema, self._recorded.share(request, columns), check
        missing = Missing()
        queue, found = self._read(request, missing)
        if request["op"] == "batch":
            return schema, self._batch(request, columns, queue, found, missing, stored=request["stored"]), check
        slices = [part for part in found if row_count(part.rows)]  # a bucket may have nothing in a block
        host = this_host()
        if host is None or request["host"] != host:
            refusal: str | None = "the reader is not on the broker's host, as far as it says"
        elif missing:
            refusal = "some of the messages are in the archive"
        else:
            refusal = mapped.unmappable(slices, columns)
        if refusal is None:
            located = (mapped.batch(self._service.journal, each, queue) for each in slices)
            return mapped.SCHEMA, self._noting(located), check
        if not request["orMessages"]:
            raise errors.NotMappable(f"{refusal}; ask for op=batch")
        return schema, self._batch(request, columns, queue, slices, missing, stored=True), check

    def _read(self, f: dict[str, Any], missing: Missing) -> tuple[str, Iterator[BlockSlice]]:
        """The first read of a batch is journaled and durable when this returns: before any byte leaves."""
        loss = f["failOnDataLoss"]
        command = c.ReadBatch(f["lease"], f["run"], f["epoch"], f["batch"], f["first"], f["last"], loss, reader_of(f))
        queue, rows = self._service.submit(command)
        if not 0 <= f["bucket"] < f["buckets"]:
            raise errors.InvalidRequest(f"field 'bucket' must be one of 0 to {f['buckets'] - 1}, not {f['bucket']}")
        select = None if f["buckets"] == 1 else partial(in_bucket, bucket=f["bucket"], buckets=f["buckets"])
        outcomes = not OUTCOME_COLUMNS.isdisjoint(f["columns"])
        if self._service.table(queue) is None:
            return queue, self._service.slices(queue, rows, select, outcomes=outcomes, fail_on_data_loss=loss)
        found = self._service.slices(queue, rows, select, outcomes=outcomes, fail_on_data_loss=loss, missing=missing)
        return queue, found

    def _batch(
        self, f: dict[str, Any], columns: list[str], queue: str, slices: Iterable[BlockSlice], missing: Missing, *, stored: bool
    ) -> Iterator[Any]:
        token = delivery_key.prefix(f["lease"], f["batch"], f["epoch"])
        aside = partial(self._set_aside, f)
        yield from self._batches(slices, columns, queue, token, stored, aside)
        if missing:
            yield from self._recorded.of_batch(queue, missing, columns, token, stored, aside, f["failOnDataLoss"])

    def _note(self, queue: str, block_slice: BlockSlice, indexes: slice, error: errors.DamagedJournal) -> None:
        sequences = block_slice.sequences(indexes)
        self._service.damage.note(errors.DamagedMessages.of(queue, int(sequences[0]), int(sequences[-1]), error))

    def _noting(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass batches on; name what is damaged in the log and in `queue.stat`, too."""
        try:
            yield from batches
        except errors.DamagedMessages as error:
            self._service.damage.note(error)
            raise

    def _set_aside(self, f: dict[str, Any], malformed: Mapping[int, str]) -> None:
        set_aside(self._service, f["lease"], f["batch"], f["epoch"], by_reason(malformed))

    def _batches(
        self,
        slices: Iterable[BlockSlice],
        columns: list[str],
        queue: str,
        token: bytes,
        stored: bool,
        aside: Callable[[Mapping[int, str]], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The slices as record batches; one without rows now and then where there is nothing to be found for long, so that the
        reader can tell a broker that searches from a network that is silent."""
        schema = arrow_schema(columns, stored=stored)
        for number, portion in enumerate(_portions(iter(slices))):
            if number:
                yield pa.RecordBatch.from_pylist([], schema)
            batches = record_batches(self._service.journal, portion, columns, queue, token, stored=stored, set_aside=aside)
            yield from self._noting(batches)

    def _browse(self, f: dict[str, Any], columns: list[str]) -> Iterator[Any]:
        select, may = selection(f), archived(f)
        table = self._service.table(f["queue"]) if "archived" in f["states"] else None
        if table is None and f["recordedAfter"] is None:
            return self._batches(self._looked(f, select, may), columns, f["queue"], b"", f["stored"])
        return self._with_recorded(f, columns, table, select, may)

    def _with_recorded(
        self,
        f: dict[str, Any],
        columns: list[str],
        table: Table | None,
        select: Callable[[Block], Any],
        may: Callable[[PackedBlock], bool],
    ) -> Iterator[pa.RecordBatch]:
        """Yield what the table has, unless the reader reads it by itself; what is not in there; what came there meanwhile."""
        after = f["recordedAfter"]
        if after is None:
            assert table is not None
            after = table.passes
            yield from self._recorded.rows(table, f, columns)
        missing = Missing()
        slices = self._looked(f, beyond(select, after), may_be_beyond(may, after), missing)
        yield from self._batches(slices, columns, f["queue"], b"", f["stored"])
        table = self._service.table(f["queue"]) if missing else None
        if table is not None and table.passes > after:
            yield from self._recorded.rows(table, f, columns, after, missing)

    def _looked(
        self,
        f: dict[str, Any],
        select: Callable[[Block], Any],
        may: Callable[[PackedBlock], object],
        missing: Missing | None = None,
    ) -> Iterator[BlockSlice]:
        """Yield slices of what of a browse is in the journal, of the rows that `select` picks."""
        if f["selector"] is None:
            return self._service.browse(f["queue"], select, f["first"], f["last"], may, missing)
        return self._matching(f, select, parse(f["selector"]), may, missing)

    def _matching(
        self,
        f: dict[str, Any],
        select: Callable[[Block], Any],
        selector: Selector,
        may: Callable[[PackedBlock], object],
        missing: Missing | None,
    ) -> Iterator[BlockSlice]:
        """Block by block: what there is, which of it matches, and what of that is still as it was asked for."""
        for part in self._service.browse(f["queue"], select, f["first"], f["last"], may, missing):
            found = evaluated(
                self._service.journal, selector, part.locations, part.batches, partial(self._note, f["queue"], part)
            )
            rows = as_array(part.rows)[found]
            last = part.base + BLOCK_ROWS - 1
            yield from self._service.browse(f["queue"], partial(_of_these, select, rows), part.base, last, may, missing)


def _portions(slices: Iterator[BlockSlice]) -> Iterator[Iterator[BlockSlice]]:
    """The slices in portions of so many as are found within `ALIVE_S`."""
    for block_slice in slices:
        yield _portion(block_slice, slices, time.monotonic() + timeouts.ALIVE_S)


def _portion(first: BlockSlice, slices: Iterator[BlockSlice], until: float) -> Iterator[BlockSlice]:
    yield first
    while time.monotonic() < until:
        block_slice = next(slices, None)
        if block_slice is None:
            return
        yield block_slice


def _of_these(select: Callable[[Block], Any], rows: Any, block: Block) -> Any:
    return np.intersect1d(as_array(select(block)), rows, assume_unique=True)
