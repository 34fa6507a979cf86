"""The lineage of a data directory: its id, or a new id if it was restored from a copy, which may be older than its original.

Numbers that a state gives, and that are known elsewhere, belong to a lineage: a restored state gives the same numbers again, to
other things. A recording that had begun and not ended may differ between the two. A broker that finds a difference disowns the
number, and gives it again. The file `lineage`:

    {"version": 1, "name": lineage, "parent": the former one | null, "history": {subject: [[former lineage, its last number] …]}}

`parent` exists from the restore until the first start, which adds the last numbers to `history`. To change the format: raise
`VERSION`, and keep reading the former ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import DamagedJournal
from .disk import Disk, write_file
from .versions import check_version

NAME = "lineage"
VERSION = 1
BYTES_MAX = 16 << 20

#: Owners of the numbers of a subject: lineages and their last numbers, ascending.
History = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Lineage:
    """Content of the file. Without one, the name is the directory's id."""

    name: str
    parent: str | None = None
    history: Mapping[str, History] = field(default_factory=dict)

    def of(self, subject: str, number: int) -> str:
        return next((name for name, last in self.history.get(subject, ()) if number <= last), self.name)

    def until(self, subject: str, number: int) -> History:
        """Return the owners of the numbers up to `number`."""
        return (*((name, min(last, number)) for name, last in self.history.get(subject, ())), (self.name, number))

    def restored(self, name: str) -> Lineage:
        """Return the lineage of a directory that is restored from this one's copy."""
        return Lineage(name, self.parent or self.name, self.history)

    def adopted(self, numbers: Mapping[str, int]) -> Lineage:
        """Return the lineage after the first start. Numbers up to these belong to former lineages."""
        before = Lineage(self.parent or self.name, None, self.history)
        return Lineage(self.name, None, {subject: before.until(subject, number) for subject, number in numbers.items()})

    def disowned(self, subject: str, number: int) -> Lineage:
        """Return the lineage that owns `number`, the last one of `subject` from before it."""
        before = tuple((name, min(last, number - 1)) for name, last in self.history.get(subject, ()))
        return Lineage(self.name, self.parent, {**self.history, subject: before})


def read(disk: Disk, broker_id: str) -> Lineage:
    if NAME not in disk.names():
        return Lineage(broker_id)
    try:
        fields = json.loads(disk.open(NAME).read(0, BYTES_MAX))
        check_version(disk.path(NAME), fields["version"], VERSION)
        return Lineage(
            fields["name"], fields["parent"], {subject: _history(pairs) for subject, pairs in fields["history"].items()}
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedJournal(
            f"{disk.path(NAME)}, offset 0: the lineage cannot be read ({error}); restore it from a backup"
        ) from None


def _history(pairs: Sequence[Sequence[str | int]]) -> History:
    return tuple((str(name), int(last)) for name, last in pairs)


def write(disk: Disk, lineage: Lineage) -> None:
    fields = {"version": VERSION, "name": lineage.name, "parent": lineage.parent, "history": lineage.history}
    write_file(disk, NAME, [json.dumps(fields).encode() + b"\n"])
