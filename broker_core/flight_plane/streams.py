"""Messages out: what a ticket names, as a schema and a stream of record batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from .. import errors
from ..client import timeouts
from ..client.discovery import this_host
from ..engine.columns.blocks import Block
from ..engine.columns.rowset import BLOCK_ROWS, as_array, row_count
from ..engine.commands import queues as c
from ..engine.model.groups import in_bucket
from ..messages import columns as message
from ..messages import delivery_key
from ..reading import mapped
from ..reading import stored as reading
from ..selectors import Selector, parse
from ..service.broker import BrokerService
from ..service.matching import evaluated
from . import namespaces
from .browsing import archived, selection
from .callers import Caller
from .malformed import by_reason, set_aside
from .permissions import Check, Permissions
from .requests import TICKETS, by_op, reader_of, strings


class Streams:
    """The tickets of docs/protocols/flight.md on one broker."""

    def __init__(self, service: BrokerService, permissions: Permissions) -> None:
        self._service = service
        self._permissions = permissions

    def open(self, caller: Caller, ticket: bytes) -> tuple[pa.Schema, Iterator[Any], Check]:
        """Schema, stream, and whether it is still permitted. Raises PenstockError, now or while the stream is read."""
        request = by_op(ticket, TICKETS)
        namespaces.resolve(self._service.state, caller, request["op"], request)
        check = self._permissions.check(caller, request["op"], request)
        columns = strings("columns", request["columns"])
        schema = message.arrow_schema(columns, stored=request.get("stored", False) or request.get("orMessages", False))
        if request["op"] == "browse":
            return schema, self._browse(request, columns), check
        if request["op"] == "batch":
            return schema, self._batch(request, columns, *self._read(request), stored=request["stored"]), check
        queue, found = self._read(request)
        cuts = [part for part in found if row_count(part.rows)]  # a bucket may have nothing in a block
        host = this_host()
        if host is None or request["host"] != host:
            refusal: str | None = "the reader is not on the broker's host, as far as it says"
        else:
            refusal = mapped.unmappable(cuts, columns)
        if refusal is None:
            return mapped.SCHEMA, self._noting(mapped.batch(self._service.journal, cut, queue) for cut in cuts), check
        if not request["orMessages"]:
            raise errors.NotMappable(f"{refusal}; ask for op=batch")
        return schema, self._batch(request, columns, queue, cuts, stored=True), check

    def _read(self, f: dict[str, Any]) -> tuple[str, Iterator[reading.Cut]]:
        """The first read of a batch is journaled and durable when this returns: before any byte leaves."""
        loss = f["failOnDataLoss"]
        command = c.ReadBatch(f["lease"], f["run"], f["epoch"], f["batch"], f["first"], f["last"], loss, reader_of(f))
        queue, rows = self._service.submit(command)
        if not 0 <= f["bucket"] < f["buckets"]:
            raise errors.InvalidRequest(f"field 'bucket' must be one of 0 to {f['buckets'] - 1}, not {f['bucket']}")
        select = None if f["buckets"] == 1 else partial(in_bucket, bucket=f["bucket"], buckets=f["buckets"])
        ends = not message.ENDS.isdisjoint(f["columns"])
        return queue, self._service.cuts(queue, rows, select, ends=ends, fail_on_data_loss=f["failOnDataLoss"])

    def _batch(
        self, f: dict[str, Any], columns: list[str], queue: str, cuts: Iterable[reading.Cut], *, stored: bool
    ) -> Iterator[Any]:
        token = delivery_key.prefix(f["lease"], f["batch"], f["epoch"])
        aside = partial(self._set_aside, f)
        return self._batches(cuts, columns, queue, token, stored, aside)

    def _note(self, queue: str, cut: reading.Cut, part: slice, error: errors.DamagedJournal) -> None:
        sequences = cut.sequences(part)
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
        cuts: Iterable[reading.Cut],
        columns: list[str],
        queue: str,
        token: bytes,
        stored: bool,
        aside: Callable[[Mapping[int, str]], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The cuts as record batches; one without rows now and then where there is nothing to be found for long, so that the
        reader can tell a broker that searches from a network that is silent."""
        schema = message.arrow_schema(columns, stored=stored)
        for number, portion in enumerate(_portions(iter(cuts))):
            if number:
                yield pa.RecordBatch.from_pylist([], schema)
            batches = reading.batches(self._service.journal, portion, columns, queue, token, stored=stored, set_aside=aside)
            yield from self._noting(batches)

    def _browse(self, f: dict[str, Any], columns: list[str]) -> Iterator[Any]:
        select = selection(f)
        if f["selector"] is None:
            cuts = self._service.browse(f["queue"], select, f["first"], f["last"], archived(f))
        else:
            cuts = self._matching(f, select, parse(f["selector"]))
        return self._batches(cuts, columns, f["queue"], b"", f["stored"])

    def _matching(self, f: dict[str, Any], select: Callable[[Block], Any], selector: Selector) -> Iterator[reading.Cut]:
        """Block by block: what there is, which of it matches, and what of that is still as it was asked for."""
        for part in self._service.browse(f["queue"], select, f["first"], f["last"], archived(f)):
            found = evaluated(self._service.journal, selector, part.pieces, part.batches, partial(self._note, f["queue"], part))
            rows = as_array(part.rows)[found]
            last = part.base + BLOCK_ROWS - 1
            yield from self._service.browse(f["queue"], partial(_of_these, select, rows), part.base, last)


def _portions(cuts: Iterator[reading.Cut]) -> Iterator[Iterator[reading.Cut]]:
    """The cuts in portions of so many as are found within `ALIVE_S`."""
    for cut in cuts:
        yield _portion(cut, cuts, time.monotonic() + timeouts.ALIVE_S)


def _portion(first: reading.Cut, cuts: Iterator[reading.Cut], until: float) -> Iterator[reading.Cut]:
    yield first
    while time.monotonic() < until:
        cut = next(cuts, None)
        if cut is None:
            return
        yield cut


def _of_these(select: Callable[[Block], Any], rows: Any, block: Block) -> Any:
    return np.intersect1d(as_array(select(block)), rows, assume_unique=True)
