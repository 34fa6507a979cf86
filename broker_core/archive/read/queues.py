"""The queues that have a table in the archive, also deleted ones, by the folders of the archive. Needs deltalake."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa

from ...errors import ArchiveUnreachable, ArchiveUnsupported
from ...stores.credentials import delta_file_system
from ...stores.folders import is_local, local_path
from ..table.layout import LOG, folder_name, queue_in
from . import files
from .bounds import Bounds


def former_queues(archive: str, broker: str, declared: Collection[str]) -> set[str]:
    """Return the names of deleted queues. Some of them may come from folders of other programs. `broker`: its id.

    Raises ArchiveUnreachable.
    """
    from deltalake.exceptions import DeltaError

    try:
        folders = set(table_folders(archive)).difference(map(folder_name, declared))
    except (DeltaError, OSError, ValueError, pa.ArrowException) as error:
        raise ArchiveUnreachable(f"the tables of the archive {archive} cannot be listed: {error}") from error
    names = (queue_in(folder) or _queue_of_table(f"{archive.rstrip('/')}/{folder}", broker) for folder in folders)
    return {name for name in names if name is not None}


def table_folders(archive: str) -> list[str]:
    """Return the names of the folders. In an object store, some may have no table."""
    if not is_local(archive):
        from pyarrow.fs import FileSelector, FileType

        entries = delta_file_system(archive).get_file_info(FileSelector("", allow_not_found=True))
        return sorted(entry.base_name for entry in entries if entry.type == FileType.Directory)
    folder = Path(local_path(archive))
    return sorted(path.name for path in folder.iterdir() if (path / LOG).is_dir()) if folder.is_dir() else []


def _queue_of_table(url: str, broker: str) -> str | None:
    """Read the name from the table, since it is too long for a folder."""
    try:
        return files.version(files.Table(url, broker, queue_id=0, lineages=(), version=0), Bounds(0, ())).queue
    except (ArchiveUnreachable, ArchiveUnsupported):
        return None
