"""Contents of a copy: the objects with the bytes of each file. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..journal.segments import HEADER_BYTES, SUFFIX
from ..journal.snapshots import SUFFIX as SNAPSHOT_SUFFIX


class Piece(NamedTuple):
    """Bytes of an object that are bytes of a file."""

    object: str
    at: int  # in the object
    offset: int  # in the file
    length: int
    crc: int

    @property
    def end(self) -> int:
        return self.offset + self.length


class Contents:
    """Files by name, as pieces in order without a gap.

    `ends`: the number of valid bytes, for files whose pieces hold more. A start may find that a segment ends before the copied
    bytes, and continues in a new segment.
    """

    def __init__(self, files: dict[str, list[Piece]] | None = None, ends: dict[str, int] | None = None) -> None:
        self.files: dict[str, list[Piece]] = files or {}
        self.ends: dict[str, int] = ends or {}

    def copy(self) -> Contents:
        return Contents({name: list(pieces) for name, pieces in self.files.items()}, dict(self.ends))

    def size(self, name: str) -> int:
        pieces = self.files.get(name)
        return pieces[-1].end if pieces else 0

    def add(self, name: str, piece: Piece) -> None:
        """Add a piece at the end of a file, or at 0, where it replaces the file."""
        if piece.offset == 0:
            self.files[name] = []
        if self.size(name) != piece.offset:
            raise ValueError(f"{name} has {self.size(name)} bytes, so a piece cannot follow at {piece.offset}")
        self.files.setdefault(name, []).append(piece)

    def replace(self, name: str, piece: Piece) -> None:
        """Replace all pieces between the ends of `piece`, which must be ends of pieces."""
        pieces = self.files[name]
        before = [existing for existing in pieces if existing.end <= piece.offset]
        after = [existing for existing in pieces if existing.offset >= piece.end]
        if sum(existing.length for existing in before + after) + piece.length != self.size(name):
            raise ValueError(f"{name}: pieces do not end at {piece.offset} and {piece.end}")
        self.files[name] = [*before, piece, *after]

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self.files.pop(name, None)
            self.ends.pop(name, None)

    def objects(self) -> set[str]:
        return {piece.object for pieces in self.files.values() for piece in pieces}

    def segments(self) -> list[str]:
        """Return names in the order of the log."""
        return sorted(name for name in self.files if name.endswith(SUFFIX))

    def snapshots(self) -> list[str]:
        """Return names, oldest first."""
        return sorted(name for name in self.files if name.endswith(SNAPSHOT_SUFFIX))

    @property
    def bytes(self) -> int:
        return sum(self.size(name) for name in self.files)

    @property
    def snapshot_position(self) -> int:
        """LSN of the latest snapshot; 0 without one."""
        names = self.snapshots()
        return base_of(names[-1]) if names else 0

    def to_json(self) -> dict[str, Any]:
        return {"files": {name: [list(piece) for piece in pieces] for name, pieces in self.files.items()}, "ends": self.ends}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Contents:
        return cls({name: [Piece(*piece) for piece in pieces] for name, pieces in data["files"].items()}, dict(data["ends"]))


class PieceRun(NamedTuple):
    """Consecutive pieces of a file, to be merged."""

    file: str
    start: int  # offsets in the file
    stop: int
    pieces: int


def base_of(name: str) -> int:
    """Return the LSN of a segment or snapshot."""
    return int(name[:20])


def offset_of(segment: str, position: int) -> int:
    """Return the offset of an LSN in a segment's file."""
    return position - base_of(segment) + HEADER_BYTES


def small_runs(contents: Contents, last: Sequence[str], *, small: int, least: int) -> list[PieceRun]:
    """Return runs of pieces below `small` bytes: at least `least` pieces of the files `last`, which still grow, and two of
    others."""
    runs = []
    for name in contents.segments():
        run: list[Piece] = []
        for piece in [*contents.files[name], None]:
            if piece is not None and piece.length < small and sum(p.length for p in run) < 8 * small:
                run.append(piece)
                continue
            if len(run) >= (least if name in last else 2):
                runs.append(PieceRun(name, run[0].offset, run[-1].end, len(run)))
            run = [piece] if piece is not None and piece.length < small else []
    return runs
