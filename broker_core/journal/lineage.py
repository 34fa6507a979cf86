"""The lineage of a data directory: its id; another one where it was restored, from a copy or backup that may be older than its
original.

What a state numbers, and somebody elsewhere knows by that number, belongs to a lineage: a restored state gives the same numbers
once more, to something else. What had begun when the copy was taken, and had not ended, is the former lineage's: both name the
same by it. In the file `lineage`:

    {"version": 1, "name": lineage, "parent": the former one, "begun": {what: [number, lineage]} | null}

`begun` is null until the first start after the restore knows what that was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import DamagedJournal, StorageError
from .disk import Disk, write_file

NAME = "lineage"
VERSION = 1
BYTES_MAX = 16 << 20


@dataclass(frozen=True)
class Lineage:
    """Content of the file; of a directory without one, its id alone."""

    name: str
    parent: str | None = None
    begun: Mapping[str, tuple[int, str]] | None = None

    def of(self, what: str, number: int) -> str:
        """Return the lineage in which `what` got that number."""
        begun = (self.begun or {}).get(what)
        return begun[1] if begun is not None and begun[0] == number else self.name

    def restored(self, name: str) -> Lineage:
        """Return the lineage of a directory that is restored from a copy of this one."""
        return Lineage(name, self.name, None if self.begun is None else dict(self.begun))

    def adopted(self, begun: Mapping[str, int]) -> Lineage:
        """Return the lineage with what has begun by now and not ended, by number: all of it is the former's."""
        before = Lineage(self.parent or self.name, None, self.begun)
        return Lineage(self.name, None, {what: (number, before.of(what, number)) for what, number in begun.items()})


def read(disk: Disk, broker_id: str) -> Lineage:
    """Return the lineage of a directory. DamagedJournal when the file cannot be read."""
    if NAME not in disk.names():
        return Lineage(broker_id)
    try:
        fields = json.loads(disk.open(NAME).read(0, BYTES_MAX))
        if fields["version"] != VERSION:
            raise StorageError(f"{disk.path(NAME)}: written in format version {fields['version']}, this program reads {VERSION}")
        begun = fields["begun"]
        found = None if begun is None else {what: (int(number), str(name)) for what, (number, name) in begun.items()}
        return Lineage(fields["name"], fields["parent"], found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedJournal(
            f"{disk.path(NAME)}, offset 0: the lineage cannot be read ({error}); restore it from a backup"
        ) from None


def write(disk: Disk, lineage: Lineage) -> None:
    """Replace the file."""
    begun = None if lineage.begun is None else {what: list(value) for what, value in lineage.begun.items()}
    fields = {"version": VERSION, "name": lineage.name, "parent": lineage.parent, "begun": begun}
    write_file(disk, NAME, [json.dumps(fields).encode() + b"\n"])
