"""Settled messages in the archive's table, for clients that read through the broker.

A client that reads the table on its own requests the other messages with the last recording of its plan as `recordedAfter`. Later
recordings are read from the journal while it has them, and then from the table.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from .. import errors
from ..archive.read import files, scan
from ..archive.read.bounds import Bounds
from ..archive.read.files import File, Table
from ..archive.table.layout import rows_of_read
from ..client import timeouts
from ..engine.columns.blocks import Block
from ..engine.columns.rowset import BLOCK_ROWS, as_array
from ..engine.columns.series import Rows
from ..engine.model.queue import PackedBlock
from ..engine.model.recordings import NOT_WANTED
from ..messages import assembly, delivery_key
from ..messages.columns import arrow_schema
from ..reading.batches import BatchRequest
from ..selectors import Presence
from ..service.broker import BrokerService
from ..service.missing_rows import MissingRows
from . import browse_plans
from .browse_plans import MaySelect, Select
from .requests import ArchiveFiles, ArchiveTicket, BrowseTicket, PlanBrowse

ALL_PASSES = 2**62
DECODED_TOGETHER = 2  # batches, for all readers, so that the queues continue

Batches = Iterator[pa.RecordBatch]


def beyond(select: Select, after: int) -> Select:
    """Leave out the rows that are recorded up to the recording `after`."""

    def selected(block: Block) -> Rows:
        rows = select(block)
        recorded = block.recorded.get(rows)
        if isinstance(recorded, int):
            return rows
        is_beyond = (recorded <= NOT_WANTED) | (recorded > after + 1)
        return rows if is_beyond.all() else as_array(rows)[is_beyond]

    return selected


def may_be_beyond(archived: MaySelect, after: int) -> Callable[[PackedBlock], int]:
    """Return an upper bound of a packed block's rows that are recorded after `after`; 0 if `archived` excludes the block."""

    def count(entry: PackedBlock) -> int:
        if not archived(entry):
            return 0
        if max(entry.recorded, entry.recorded_before) > max(after + 1, NOT_WANTED):
            return BLOCK_ROWS
        return entry.unrecorded.count + entry.not_wanted

    return count


def wanted_by(request: BrowseTicket | ArchiveTicket) -> BatchRequest:
    return BatchRequest(request.columns, request.queue, stored=request.stored)


class ArchiveReads:
    """The archive's tables."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service
        self._turns = threading.Semaphore(DECODED_TOGETHER)

    # Actions
    def plan(self, request: PlanBrowse) -> dict[str, Any]:
        """A message that is recorded between the two steps is in the table, and is not read twice."""
        packed = may_be_beyond(browse_plans.archived(request), ALL_PASSES)
        parts = browse_plans.plan(self._service, request, beyond(browse_plans.selection(request), ALL_PASSES), packed)
        table = self._service.table(request.queue)
        return {"parts": parts, "table": None if table is None else table.to_fields()}

    def files(self, request: ArchiveFiles) -> dict[str, Any]:
        table = self._service.table(request.queue)
        if table is None:
            return {"version": None, "files": [], "outdated": False}
        version = files.version(table, Bounds.of_fields(table.queue_id, request.to_json()), request.version)
        outdated = request.version is not None and files.is_outdated(table, request.version)
        return {"version": version.number, "files": [file.to_list() for file in version.files], "outdated": outdated}

    # Tickets
    def share(self, request: ArchiveTicket) -> Batches:
        table, queue = self._service.table(request.queue), request.queue
        if table is None:
            raise errors.NotFound(f"queue {queue!r} has no table in the archive yet: none of its messages is recorded")
        if not scan.is_below(request.path) or not 0 <= request.part < request.parts:
            raise errors.InvalidRequest("archive: the fields 'path', 'part' and 'parts' do not name a part of a table's file")
        share = scan.FileShare(request.path, request.part, request.parts, deletions=self._deletions(table, request))
        bounds = Bounds.of_fields(table.queue_id, request.to_json())
        try:
            file = scan.opened(table.url, share.path)
        except errors.ArchiveUnreachable as error:
            raise self._gone(table, queue, share, error) from error
        batches = scan.batches(file, share, request.columns, bounds, request.selector)
        return self._converted(batches, wanted_by(request))

    def _deletions(self, table: Table, request: ArchiveTicket) -> scan.Deletions | None:
        if request.version is None:
            return None
        listed = files.version(table, Bounds.of_fields(table.queue_id, request.to_json()), request.version).files
        file = next((known for known in listed if known.path == request.path), None)
        if file is None:
            raise errors.InvalidRequest(
                f"archive: version {request.version} of the table has no file {request.path!r} with such rows"
            )
        return file.deletions

    def _gone(self, table: Table, queue: str, share: scan.FileShare, error: errors.ArchiveUnreachable) -> errors.PenstockError:
        """Return DataLoss if the table exists without the file, otherwise `error`."""
        try:
            files.version(table, table.bounds)
        except errors.ArchiveUnreachable:
            return error
        return errors.DataLoss(
            f"the file {share.path} of the archive of {queue!r} is gone: retention (archive_retention_age_s) or a vacuum removed"
            " it after the read was planned. Read again; with failOnDataLoss=false a query continues without it"
        )

    def rows(
        self,
        table: Table,
        request: BrowseTicket,
        after: int = 0,
        missing: MissingRows | None = None,
        presence: Presence | None = None,
    ) -> Batches:
        """Return the rows that were recorded after `after`, or of these the `missing` ones."""
        bounds = Bounds(table.queue_id, table.lineages, after, request.first, request.last, request.since, request.until)
        bounds = bounds._replace(outcome=request.outcome)
        batches = self._scan(table, bounds, request.columns, request.selector, missing, presence)
        return self._converted(batches, wanted_by(request))

    def of_batch(self, missing: MissingRows, request: BatchRequest, *, fail_on_data_loss: bool) -> Batches:
        """Yield messages of a settled batch that the journal no longer has, by their last settlement. Raises DataLoss if one is
        not in the table either; without `fail_on_data_loss` the others are yielded."""
        table = self._service.table(request.queue)
        wanted = missing.sequences()
        passes = np.zeros(len(wanted), np.int64)  # last recording; 0: not in the table
        if table is not None:
            bounds = table.bounds._replace(first=missing.first, last=missing.last)
            for batch in self._scan(table, bounds, ["sequenceNumber", "pass"], None, missing):
                numbers, recorded = (batch.column(name).to_numpy() for name in ("sequenceNumber", "pass"))
                np.maximum.at(passes, np.searchsorted(wanted, numbers), recorded)
        gone = wanted[passes == 0]
        if len(gone) and fail_on_data_loss:
            raise errors.DataLoss(
                f"messages of {request.queue!r} around sequence number {gone[0]} are gone: they are neither in the journal nor in"
                " the archive; with failOnDataLoss=false a query continues without them"
            )
        if table is None:
            return
        for number in np.unique(passes[passes > 0]).tolist():  # almost always one
            some = MissingRows()
            some.add(0, wanted[passes == number])
            bounds = table.of_recording(number)._replace(first=some.first, last=some.last)
            for batch in self._scan(table, bounds, request.columns, None, some):
                yield from self._converted(iter([batch]), request)

    def of_file(
        self,
        table: Table,
        listed: File,
        columns: Sequence[str],
        bounds: Bounds,
        selector: str | None,
        presence: Presence | None = None,
    ) -> Batches:
        """Return matching rows of one file, with the table's columns."""
        file = scan.opened(table.url, listed.path)
        return self._in_turn(scan.batches(file, listed.share(), columns, bounds, selector, presence))

    # Rows of the table
    def _scan(
        self,
        table: Table,
        bounds: Bounds,
        columns: Sequence[str],
        selector: str | None,
        missing: MissingRows | None,
        presence: Presence | None = None,
    ) -> Batches:
        for listed in files.version(table, bounds).files:
            for batch in self.of_file(table, listed, columns, bounds, selector, presence):
                if missing is not None and batch.num_rows:
                    batch = batch.filter(pa.array(missing.mask(batch.column("sequenceNumber").to_numpy())))
                yield batch

    def _in_turn(self, batches: Batches) -> Batches:
        while True:
            with self._turns:
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def _converted(self, batches: Batches, request: BatchRequest) -> Batches:
        """While no rows match, regularly yield an empty batch."""
        columns, queue, token, stored, set_aside = request
        schema = arrow_schema(columns, stored=stored)
        last_yield = time.monotonic()
        for batch in batches:
            if not batch.num_rows:
                if time.monotonic() - last_yield > timeouts.ALIVE_S:
                    last_yield = time.monotonic()
                    yield pa.RecordBatch.from_pylist([], schema)
                continue
            rows = rows_of_read(columns, batch, queue)
            numbers = rows.column("sequenceNumber")
            if token and "delivery" in rows.schema.names:
                index = rows.schema.get_field_index("delivery")
                rows = rows.set_column(index, rows.schema.field(index), delivery_key.column(token, numbers.to_numpy()))
            if stored:
                rows = rows.select(columns)
            else:
                malformed: dict[int, str] = {}
                rows = assembly.converted(columns, rows, queue, malformed)
                if malformed and set_aside is not None:
                    set_aside(malformed)
                    rows = assembly.readable(rows, numbers, malformed)
            last_yield = time.monotonic()
            yield rows
