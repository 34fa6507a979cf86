"""Reading in a task: the record batches of one partition.

On the broker's host the task asks for the locations of the messages (`op=map`, which also checks the epoch and journals the
read). It maps the broker's files and assembles the columns itself. If this is impossible or too slow, the broker sends the
messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice

import pyarrow as pa

from ...broker_core.client import discovery
from ...broker_core.client.flight import Client
from ...broker_core.errors import LeaseNotFound, PeerError
from ...broker_core.messages import assembly
from ...broker_core.messages.columns import NOT_MAPPED
from ..access import BrokerAccess
from ..backoff import RECONNECT_S, Patience
from .batching import coalesce, converted
from .connections import CONNECTIONS
from .mapping import assembled, has_locations, locations_of, map_files, may_be_mapped
from .partition import BrowsePartition, LeasePartition

MOST_SET_ASIDE = 2000  # messages, with reasons, in one request, which may have one MiB


def read_leased(
    part: LeasePartition, access: BrokerAccess, columns: Sequence[str], fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    with CONNECTIONS.lent(access.at(part.known)) as client:
        try:
            yield from coalesce(_patiently(lambda: _messages(client, part, columns, fail_on_data_loss)))
        except LeaseNotFound as error:
            raise LeaseNotFound(
                f"batch {part.batch} of queue {part.queue!r} is gone: {error}. The queue was deleted, and perhaps declared again,"
                " or an operator deleted the lease. Start the query with a new checkpoint"
            ) from error


def set_aside(client: Client, part: LeasePartition, malformed: Mapping[int, str]) -> None:
    """Report messages that cannot be decoded, with the reasons. They become dead letters when the batch is settled."""
    for first in range(0, len(malformed), MOST_SET_ASIDE):
        reasons: dict[str, list[int]] = {}
        for sequence, reason in islice(malformed.items(), first, first + MOST_SET_ASIDE):
            reasons.setdefault(reason, []).append(sequence)
        client.call("lease.setAside", lease=part.lease, run=part.run, epoch=part.epoch, batch=part.batch, reasons=reasons)


def _patiently(stream: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Open the stream again if the broker is away before the first batch; later, Spark repeats the task."""
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


def _messages(client: Client, part: LeasePartition, columns: Sequence[str], fail_on_data_loss: bool) -> Iterator[pa.RecordBatch]:
    ticket = part.ticket("batch", assembly.needed(columns), fail_on_data_loss)
    reached = part.first
    # Only the broker can write the key of a settlement.
    if NOT_MAPPED.isdisjoint(columns) and may_be_mapped(part.broker) and (host := discovery.this_host()) is not None:
        answer = client.get(**{**ticket, "op": "map", "orMessages": True, "host": host})
        first = next(answer, None)
        if first is None:
            return
        answer = chain((first,), answer)
        if not has_locations(first):
            yield from _delivered(client, part, answer, columns)
            return
        files: dict[str, pa.Buffer] | None = {}
        # The broker checks the payloads of the next locations while Spark takes the rows of these.
        for locations in map(locations_of, answer):
            files = map_files(locations, files, part.broker)
            if files is None:
                break
            yield from assembled(locations, files, columns, part.queue, partial(set_aside, client, part))
            reached = locations[-1].end
        else:
            return
    yield from _delivered(client, part, client.get(**{**ticket, "first": reached, "stored": True}), columns)


def read_browsed(look: BrowsePartition, access: BrokerAccess) -> Iterator[pa.RecordBatch]:
    with access.at(look.known).client() as client:
        columns = look.ticket["columns"]
        ticket = {**look.ticket, "columns": assembly.needed(columns), "stored": True}
        yield from converted(columns, client.get(**ticket), look.ticket["queue"])


def _delivered(
    client: Client, part: LeasePartition, batches: Iterable[pa.RecordBatch], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    for batch in coalesce(batches):
        malformed: dict[int, str] = {}
        messages = assembly.converted(columns, batch, part.queue, malformed)
        if malformed:
            set_aside(client, part, malformed)
            messages = assembly.readable(messages, batch.column("sequenceNumber"), malformed)
        yield messages
