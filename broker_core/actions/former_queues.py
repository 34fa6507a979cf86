"""The names of deleted queues that have a table in the archive, by the folders of the archive."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from .. import errors
from ..archive.read import files
from ..archive.read.bounds import Bounds
from ..archive.table.layout import folder_name, queue_in
from ..engine.model.recordings import NO_TABLE


def former_queues(archive: str, broker: str, declared: Collection[str]) -> set[str]:
    """Return the names. Some of them may come from folders of other programs. `broker`: its id. Raises ArchiveUnreachable."""
    from deltalake.exceptions import DeltaError

    from ..archive.write.table_files import names_in  # imports deltalake

    try:
        folders = set(names_in(archive)).difference(map(folder_name, declared))
    except (DeltaError, OSError, ValueError, pa.ArrowException) as error:
        raise errors.ArchiveUnreachable(f"the tables of the archive {archive} cannot be listed: {error}") from error
    names = (queue_in(folder) or _queue_of_table(f"{archive.rstrip('/')}/{folder}", broker) for folder in folders)
    return {name for name in names if name is not None}


def _queue_of_table(url: str, broker: str) -> str | None:
    """Read the name from the table, since it is too long for a folder."""
    try:
        return files.version(files.Table(url, broker, 0, (), NO_TABLE), Bounds(0, ())).queue
    except (errors.ArchiveUnreachable, errors.ArchiveUnsupported):
        return None
