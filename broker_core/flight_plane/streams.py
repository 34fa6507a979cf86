"""A ticket as a stream of record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from .. import errors
from ..actions import requests as r
from ..actions.archive_reads import ArchiveReads
from ..actions.browses import Browses
from ..actions.callers import Caller
from ..actions.malformed_messages import set_aside
from ..actions.permissions import Check
from ..client.discovery import this_host
from ..engine import commands as c
from ..engine.columns.rowset import row_count
from ..engine.model.groups import in_bucket
from ..messages import delivery_key
from ..messages.columns import OUTCOME_COLUMNS, arrow_schema
from ..reading import mapping
from ..reading.batches import BatchRequest
from ..reading.slices import BlockSlice
from ..service.broker import BrokerService
from ..service.missing_rows import MissingRows


class Streams:
    """The tickets on one broker."""

    def __init__(self, service: BrokerService, archive: ArchiveReads) -> None:
        self._service, self._archive = service, archive
        self._browses = Browses(service, archive)

    def open(self, caller: Caller, ticket: bytes) -> tuple[pa.Schema, Iterator[Any], Check]:
        """Return schema, stream, and a check that it is still permitted. Raises PenstockError, also during the stream."""
        request, check = r.permitted_request(self._service.state, caller, ticket, r.TICKETS)
        columns = request.columns
        schema = arrow_schema(columns, stored=request.or_messages if isinstance(request, r.MapTicket) else request.stored)
        if isinstance(request, r.BrowseTicket):
            return schema, self._browses.browse(request), check
        if isinstance(request, r.ArchiveTicket):
            return schema, self._archive.share(request), check
        missing = MissingRows()
        queue, all_slices = self._read(request, missing)
        if isinstance(request, r.BatchTicket):
            return schema, self._batch(request, queue, all_slices, missing, stored=request.stored), check
        slices = [part for part in all_slices if row_count(part.rows)]  # a bucket may have no rows in a block
        host = this_host()
        if host is None or request.host != host:
            refusal: str | None = "the reader does not claim to be on the broker's host"
        elif missing:
            refusal = "some of the messages are in the archive"
        else:
            refusal = mapping.unmappable(slices, columns)
        if refusal is None:
            located = (mapping.batch(self._service.journal, block_slice, queue) for block_slice in slices)
            return mapping.SCHEMA, self._browses.noting(located), check
        if not request.or_messages:
            raise errors.NotMappable(f"{refusal}; ask for op=batch")
        return schema, self._batch(request, queue, slices, missing, stored=True), check

    def _read(self, request: r.BatchPart, missing: MissingRows) -> tuple[str, Iterator[BlockSlice]]:
        """The first read of a batch is durable before bytes leave."""
        loss = request.fail_on_data_loss
        names = request.lease, request.run, request.epoch
        reader = r.spark_batch(request)
        command = c.ReadBatch(*names, request.batch, request.first, request.last, loss, reader, request.query_name)
        queue, rows = self._service.submit(command)
        if not 0 <= request.bucket < request.buckets:
            raise errors.InvalidRequest(f"field 'bucket' must be one of 0 to {request.buckets - 1}, not {request.bucket}")
        select = None if request.buckets == 1 else partial(in_bucket, bucket=request.bucket, buckets=request.buckets)
        outcomes = not OUTCOME_COLUMNS.isdisjoint(request.columns)
        archived = None if self._service.table(queue) is None else missing
        slices = self._service.slices(queue, rows, select, outcomes=outcomes, fail_on_data_loss=loss, missing=archived)
        return queue, slices

    def _batch(
        self, request: r.BatchPart, queue: str, slices: Iterable[BlockSlice], missing: MissingRows, *, stored: bool
    ) -> Iterator[Any]:
        token = delivery_key.prefix(request.lease, request.batch, request.epoch)
        wanted = BatchRequest(request.columns, queue, token, stored, partial(self._set_aside, request))
        yield from self._browses.batches(slices, wanted)
        if missing:
            yield from self._archive.of_batch(missing, wanted, fail_on_data_loss=request.fail_on_data_loss)

    def _set_aside(self, request: r.BatchPart, malformed: Mapping[int, str]) -> None:
        reasons: dict[str, list[int]] = {}
        for sequence, reason in malformed.items():
            reasons.setdefault(reason, []).append(sequence)
        set_aside(self._service, request.lease, request.batch, request.epoch, request.run, reasons)
