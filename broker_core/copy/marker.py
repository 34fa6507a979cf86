"""The marker `copy.json` of a data directory: the writers of its copies.

    version    1
    writers    names of the brokers' lives on this directory that have written to copies, the latest last
    restored   until the first start with a copy after a restore: the copy's last writer, and the number of its last chunk then

A start draws a name, and writes it here before the copy receives it. If the last writer of a copy is not in the list, another
directory has taken the copy over, or this one was put back from an older state.

To change the format: raise `VERSION`, and keep reading the former ones.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from ..errors import DamagedJournal
from ..journal.disk import Disk, write_file
from ..journal.versions import check_version

NAME = "copy.json"
VERSION = 1
WRITERS_MAX = 1000  # older ones are not the last writer of a copy in use
BYTES_MAX = 1 << 20


class Restored(NamedTuple):
    """End of the chain that a directory was restored from."""

    writer: str
    number: int


class Marker(NamedTuple):
    """Content of the file."""

    writers: tuple[str, ...] = ()
    restored: Restored | None = None

    def with_writer(self, writer: str) -> Marker:
        return self._replace(writers=(*self.writers, writer)[-WRITERS_MAX:])


def read(disk: Disk) -> Marker:
    """Return an empty marker if there is no file. Raises DamagedJournal."""
    if NAME not in disk.names():
        return Marker()
    try:
        fields = json.loads(disk.open(NAME).read(0, BYTES_MAX))
        check_version(disk.path(NAME), fields["version"], VERSION)
        restored = fields.get("restored")
        return Marker(tuple(fields["writers"]), None if restored is None else Restored(*restored))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedJournal(
            f"{disk.path(NAME)}, offset 0: the file lists the copies that this directory has written, and is damaged ({error}). "
            "Restore it from a backup; or remove it and set copy_url to a place without a copy"
        ) from None


def write(disk: Disk, marker: Marker) -> None:
    fields = {
        "version": VERSION,
        "writers": list(marker.writers),
        "restored": None if marker.restored is None else list(marker.restored),
    }
    write_file(disk, NAME, [json.dumps(fields).encode() + b"\n"])
