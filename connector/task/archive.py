"""Recorded messages: settled ones that are in the archive's table. The planner lists the table's files, and tasks read them.

Neither asks the broker for a message. Where the planner does not reach the table, or has no deltalake, the broker lists the
files; where a task does not reach a file, the broker reads it. That the table is the broker's, and no older copy of it at the
same path, is told by the broker's id and the version in the table's log; a file's name is unique.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack
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
from .batching import coalesce
from .partition import RecordedPartition

log = logging.getLogger("penstock")

REMEMBERED = 64  # tables that this process does not reach; after that they are forgotten, and tried again
_unreachable: set[str] = set()


def version_of(client: Client, queue: str, known: Table, bounds: Bounds, number: int | None = None) -> Version:
    """The files of a version of the table, by default the newest. Raises PenstockError."""
    try:
        if known.url not in _unreachable:
            found = version(known, bounds, number)
            return found if number is None else found._replace(is_outdated=is_outdated(known, number))
    except ImportError as error:
        log.info("the broker lists the archive's files, since this Python has no deltalake: %s", error)
    except ArchiveUnreachable as error:
        if number is None:  # else this version alone may be gone
            _remember(known.url, error)
    answer = client.call("archive.files", queue=queue, version=number, **bounds.to_fields())
    return Version(answer["version"], [File.of_list(each) for each in answer["files"]], answer["outdated"])


def read_recorded(part: RecordedPartition, access: BrokerAccess, *, fail_on_data_loss: bool = True) -> Iterator[pa.RecordBatch]:
    """Read one partition of a table. A message that is not valid AMQP is named on stderr; so are those that are gone, if that is
    no failure. Raises DataLoss, ArchiveUnreachable."""
    with ExitStack() as stack:
        clients: list[Client] = []

        def client() -> Client:
            if not clients:
                clients.append(stack.enter_context(access.at(part.known).client()))
            return clients[0]

        def read(share: scan.FileShare) -> Iterator[pa.RecordBatch]:
            try:
                yield from _read(part, share, client)
            except DataLoss as error:
                if fail_on_data_loss:
                    raise
                print(f"penstock: {error}", file=sys.stderr)

        shares = (batch for share in part.shares for batch in read(share))
        for batch in coalesce(shares):
            malformed: dict[int, str] = {}
            yield assembly.converted(part.columns, batch, part.queue, malformed)
            for sequence, reason in malformed.items():
                print(f"penstock: message {sequence} of {part.queue!r} is no valid AMQP message ({reason})", file=sys.stderr)


def _read(part: RecordedPartition, share: scan.FileShare, client: Any) -> Iterator[pa.RecordBatch]:
    """The rows of a share as they are stored, from the file or from the broker."""
    file, deletions = None, share.deletions
    if part.url not in _unreachable and (deletions is None or deletions.remaining is not None):
        try:
            file = scan.opened(part.url, share.path)
        except ArchiveUnreachable as error:
            is_gone = isinstance(error.__cause__, FileNotFoundError) and not is_local(part.url)
            if not scan.is_folder(part.url) and not is_gone:
                _remember(part.url, error)  # else the file alone is gone, which the broker can say better
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
    for found in scan.batches(file, share, part.columns, part.bounds, part.selector):
        if found.num_rows:
            yield table.rows_of_read(part.columns, found, part.queue)


def _remember(url: str, error: Exception) -> None:
    if len(_unreachable) >= REMEMBERED:
        _unreachable.clear()
    _unreachable.add(url)
    log.warning("the archive's table is not reached by this process, so its messages come from the broker from now on: %s", error)
