"""The lineage of a data directory: its id; another one where it was restored, from a copy or backup that may be older than its
original.

What a state numbers, and somebody elsewhere knows by that number, belongs to a lineage: a restored state gives the same numbers
once more, to something else. What was numbered when the copy was taken is the former lineages': both name the same by it. What
had begun then and not ended may have become different things in both; who finds that disowns the number, and gives it anew. In
the file `lineage`:

    {"version": 1, "name": lineage, "parent": the former one | null, "history": {what: [[former lineage, its last number] …]}}

`parent` is there from the restore until the first start, which knows how far the numbers had come and adds them to `history`.
To change the format: raise `VERSION`, and keep reading the former ones.
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

#: Who gave the numbers of something: lineages and their last numbers, ascending. Each begins after the one before it.
History = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Lineage:
    """Content of the file; of a directory without one, its id alone."""

    name: str
    parent: str | None = None
    history: Mapping[str, History] = field(default_factory=dict)

    def of(self, what: str, number: int) -> str:
        """Return the lineage in which `what` got that number."""
        return next((name for name, last in self.history.get(what, ()) if number <= last), self.name)

    def until(self, what: str, number: int) -> History:
        """Return who gave the numbers of `what` up to `number`."""
        return (*((name, min(last, number)) for name, last in self.history.get(what, ())), (self.name, number))

    def restored(self, name: str) -> Lineage:
        """Return the lineage of a directory that is restored from a copy of this one."""
        return Lineage(name, self.parent or self.name, self.history)

    def adopted(self, numbers: Mapping[str, int]) -> Lineage:
        """Return the lineage with what was numbered before it, and the last number of each: all of these are the former's."""
        before = Lineage(self.parent or self.name, None, self.history)
        return Lineage(self.name, None, {what: before.until(what, number) for what, number in numbers.items()})

    def disowned(self, what: str, number: int) -> Lineage:
        """Return the lineage in which the last number of `what` that was given before it is its own."""
        before = tuple((name, min(last, number - 1)) for name, last in self.history.get(what, ()))
        return Lineage(self.name, self.parent, {**self.history, what: before})


def read(disk: Disk, broker_id: str) -> Lineage:
    """Return the lineage of a directory. DamagedJournal when the file cannot be read."""
    if NAME not in disk.names():
        return Lineage(broker_id)
    try:
        fields = json.loads(disk.open(NAME).read(0, BYTES_MAX))
        check_version(disk.path(NAME), fields["version"], VERSION)
        return Lineage(fields["name"], fields["parent"], {what: _history(each) for what, each in fields["history"].items()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedJournal(
            f"{disk.path(NAME)}, offset 0: the lineage cannot be read ({error}); restore it from a backup"
        ) from None


def _history(pairs: Sequence[Sequence[str | int]]) -> History:
    return tuple((str(name), int(last)) for name, last in pairs)


def write(disk: Disk, lineage: Lineage) -> None:
    """Replace the file."""
    fields = {"version": VERSION, "name": lineage.name, "parent": lineage.parent, "history": lineage.history}
    write_file(disk, NAME, [json.dumps(fields).encode() + b"\n"])
