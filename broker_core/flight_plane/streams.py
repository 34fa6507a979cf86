"""Messages out: what a ticket names, as a schema and a stream of record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from .. import errors
from ..actions import namespaces
from ..actions.browses import Browses
from ..actions.callers import Caller
from ..actions.malformed import by_reason, set_aside
from ..actions.permissions import Check, Permissions
from ..actions.recorded import RecordedMessages
from ..actions.requests import TICKETS, by_op, reader_of, strings
from ..client.discovery import this_host
from ..engine import commands as c
from ..engine.columns.rowset import row_count
from ..engine.model.groups import in_bucket
from ..messages import delivery_key
from ..messages.columns import OUTCOME_COLUMNS, arrow_schema
from ..reading import mapped
from ..reading.slices import BlockSlice
from ..service.broker import BrokerService
from ..service.missing_rows import MissingRows


class Streams:
    """The tickets of docs/protocols/flight.md on one broker."""

    def __init__(self, service: BrokerService, permissions: Permissions, recorded: RecordedMessages) -> None:
        self._recorded = recorded
        self._browses = Browses(service, recorded)
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
            return schema, self._browses.browse(request, columns), check
        if request["op"] == "archive":
            return schema, self._recorded.share(request, columns), check
        missing = MissingRows()
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
            return mapped.SCHEMA, self._browses.noting(located), check
        if not request["orMessages"]:
            raise errors.NotMappable(f"{refusal}; ask for op=batch")
        return schema, self._batch(request, columns, queue, slices, missing, stored=True), check

    def _read(self, f: dict[str, Any], missing: MissingRows) -> tuple[str, Iterator[BlockSlice]]:
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
        self,
        f: dict[str, Any],
        columns: list[str],
        queue: str,
        slices: Iterable[BlockSlice],
        missing: MissingRows,
        *,
        stored: bool,
    ) -> Iterator[Any]:
        token = delivery_key.prefix(f["lease"], f["batch"], f["epoch"])
        aside = partial(self._set_aside, f)
        yield from self._browses.batches(slices, columns, queue, token, stored, aside)
        if missing:
            yield from self._recorded.of_batch(queue, missing, columns, token, stored, aside, f["failOnDataLoss"])

    def _set_aside(self, f: dict[str, Any], malformed: Mapping[int, str]) -> None:
        set_aside(self._service, f["lease"], f["batch"], f["epoch"], f["run"], by_reason(malformed))
