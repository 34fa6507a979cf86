"""Reads of the archive's table: the planner lists its files, and tasks read them without the broker.

If the planner cannot reach the table, or has no deltalake, the broker lists the files. If a task cannot reach a file, the broker
reads it. The broker's id and the version in the table's log distinguish the table from an older copy at its path. File names are
unique.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from typing import Any

import pyarrow as pa

from ...broker_core.archive.read import scan
from ...broker_core.archive.read.bounds import Bounds
from ...broker_core.archive.read.files import File, Table, Version, is_outdated, version
from ...broker_core.archive.table import layout as table
from ...broker_core.client.flight import Client
from ...broker_core.errors import ArchiveUnreachable, DataLoss
from ...broker_core.messages import assembly
from ...broker_core.stores.folders import is_local
from ..access import BrokerAccess
from .batching import converted
from .partition import RecordedPartition

log = logging.getLogger("penstock")

REMEMBERED = 64  # tables that this process cannot reach, until it forgets all of them
_unreachable: set[str] = set()


def bounds_of(options: Mapping[str, Any]) -> Bounds:
    """For any queue."""
    first, last, since, until, outcome = (
        options[name] for name in ("startingSequence", "endingSequence", "startingTimestamp", "endingTimestamp", "outcome")
    )
    return Bounds(0, (), first=first or 0, last=last, since=since, until=until, outcome=outcome)


def version_of(client: Client, queue: str, known: Table, bounds: Bounds, number: int | None = None) -> Version:
    try:
        if known.url not in _unreachable:
            listed = version(known, bounds, number)
            return listed if number is None else listed._replace(is_outdated=is_outdated(known, number))
    except ImportError as error:
        log.info("the broker lists the archive's files, since this Python has no deltalake: %s", error)
    except ArchiveUnreachable as error:
        if number is None:  # else only this version may be gone
            _remember(known.url, error)
    answer = client.call("archive.files", queue=queue, version=number, **bounds.to_fields())
    return Version(answer["version"], [File.of_list(row) for row in answer["files"]], answer["outdated"])


def read_recorded(part: RecordedPartition, access: BrokerAccess, *, fail_on_data_loss: bool = True) -> Iterator[pa.RecordBatch]:
    """Without `fail_on_data_loss`, lost messages are named on stderr."""
    with ExitStack() as stack:
        client = cache(lambda: stack.enter_context(access.at(part.known).client()))

        def read(share: scan.FileShare) -> Iterator[pa.RecordBatch]:
            try:
                yield from _read(part, share, client)
            except DataLoss as error:
                if fail_on_data_loss:
                    raise
                print(f"penstock: {error}", file=sys.stderr)

        yield from converted(part.columns, (batch for share in part.shares for batch in read(share)), part.queue)


def _read(part: RecordedPartition, share: scan.FileShare, client: Any) -> Iterator[pa.RecordBatch]:
    file, deletions = None, share.deletions
    if part.url not in _unreachable and (deletions is None or deletions.remaining is not None):
        try:
            file = scan.opened(part.url, share.path)
        except ArchiveUnreachable as error:
            is_gone = isinstance(error.__cause__, FileNotFoundError) and not is_local(part.url)
            if not scan.is_folder(part.url) and not is_gone:
                _remember(part.url, error)  # else only the file is gone, which the broker can report better
    if file is None:
        where = {"queue": part.queue, "path": share.path, "part": share.number, "parts": share.parts}
        columns = assembly.needed(part.columns)
        version = None if deletions is None else deletions.version
        ticket = {"op": "archive", **where, "version": version, **part.bounds.to_fields(), "selector": part.selector}
        try:
            yield from client().get(**ticket, columns=columns, stored=True)
        except DataLoss as error:
            first, last = max(share.first, part.bounds.first), share.last
            last = last if part.bounds.last is None else min(last, part.bounds.last)
            raise DataLoss(f"messages {first} to {last} of queue {part.queue!r} cannot be read: {error}") from error
        return
    for rows in scan.batches(file, share, part.columns, part.bounds, part.selector):
        if rows.num_rows:
            yield table.rows_of_read(part.columns, rows, part.queue)


def _remember(url: str, error: Exception) -> None:
    if len(_unreachable) >= REMEMBERED:
        _unreachable.clear()
    _unreachable.add(url)
    log.warning("this process cannot reach the archive's table, so its messages come from the broker from now on: %s", error)
