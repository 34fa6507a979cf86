"""Many messages in lock step: each step reads one constructor of every message that has one.

All messages of a block lie in one buffer, with a cursor for each. A step costs a few vector operations, independent of the number
of messages, and less if all have the same constructor.

Nothing here raises. Rare forms, and damage, are marked *odd* and left to the reference decoder. Cursors
only move forward: if a cursor is exactly at the announced end after the announced number of elements, no element has left the
section. Counts above `MOST_PAIRS` are odd before a step is made, which limits the number of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...amqp.decoder import KINDS
from ...amqp.messages import SECTION_KINDS
from .octets import Mask, Octets, Places, at, offsets_of, word

DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, FOOTER = 0x71, 0x72, 0x78
PROPERTIES, APPLICATION_PROPERTIES, DATA, SEQUENCE, VALUE = 0x73, 0x74, 0x75, 0x76, 0x77
NULL = 0x40
#: Constructors of each section's value; an amqp-value may have any.
CONSTRUCTORS = {
    section: tuple(code for code, kind in KINDS.items() if kind == wanted) for section, wanted in SECTION_KINDS.items()
}
MOST_PAIRS = 64  # entries of a map that are followed
MOST_FIELDS = 13  # of the properties

Rows: TypeAlias = "slice | npt.NDArray[np.int64]"
ALL = slice(None)

# By constructor: bytes of a fixed width, bytes of its size (0 for a fixed width), and whether it is known. A described value
# (0x00) is not: its inner value would have to be followed.
WIDTH = np.repeat(np.array([0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 0, 0, 0, 0, 0, 0]), 16)
SIZE = np.repeat(np.array([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 4, 1, 4, 1, 4]), 16)
_KNOWN = np.isin(np.arange(256), list(KINDS))


@dataclass
class Cells:
    """One value of each row."""

    code: Octets  # constructor; 0x40 (null) without a value
    start: Places
    end: Places

    @staticmethod
    def none(rows: Places) -> Cells:
        return Cells(np.full(len(rows), NULL, np.uint8), rows.copy(), rows.copy())

    def put(self, rows: Rows, cells: Cells) -> None:
        if isinstance(rows, slice):
            self.code, self.start, self.end = cells.code, cells.start, cells.end
        else:
            self.code[rows], self.start[rows], self.end[rows] = cells.code, cells.start, cells.end


@dataclass
class MapEntries:
    """The entries at one place of the maps that have so many."""

    rows: Rows
    key: Cells
    value: Cells


class SectionMaps(NamedTuple):
    """The maps in one section."""

    rows: Rows | None  # that have the section
    counts: Places  # of each map's entries
    entries: list[MapEntries]


class Walk:
    """Cursors over the messages `first[i]:last[i]` of `buffer`. `odd` messages are no longer followed."""

    def __init__(self, buffer: Octets, first: Places, last: Places) -> None:
        self.buffer = buffer
        self.first = first
        self.last = last
        self.cursor = first.copy()
        self.odd = np.zeros(len(first), np.bool_)
        self.code = self._descriptors()

    def _descriptors(self) -> Octets:
        """Return the section code at each cursor (0 at the end), and move the cursor to the value."""
        place = self.cursor
        code = at(self.buffer, place + 2)
        short = (at(self.buffer, place + 1) == 0x53) & (at(self.buffer, place) == 0)
        here = place < self.last
        if short.all() and here.all():
            self.cursor = place + 3
            return code
        # Other descriptors, a long ulong or a symbol, are odd.
        self.odd |= here & ~short
        here &= short
        self.cursor = np.where(here, place + 3, place)
        return np.where(here, code, np.uint8(0))

    def rows_of(self, code: int) -> Rows | None:
        """Return the rows whose cursor is at such a section's value; None without any."""
        mask = self.code == code
        if mask.all():
            return ALL
        rows = np.flatnonzero(mask)
        return rows if len(rows) else None

    def advance(self, rows: Rows, places: Places) -> None:
        self.cursor[rows] = places
        if isinstance(rows, slice):
            self.code = self._descriptors()
            return
        part = Walk(self.buffer, self.cursor[rows], self.last[rows])
        self.cursor[rows], self.code[rows] = part.cursor, part.code
        self.odd[rows] |= part.odd

    def body(self) -> list[tuple[int, Rows]]:
        """Return the kinds of body with their rows, before a body is followed: a second section of a body is odd, unless the
        caller looks for it.
        """
        return [(code, rows) for code in (DATA, SEQUENCE, VALUE) if (rows := self.rows_of(code)) is not None]

    def cleared(self, cells: Cells) -> Cells:
        """Return one cell for each message, null in odd ones."""
        if self.odd.any():
            cells.code[self.odd] = NULL
            cells.start[self.odd] = cells.end[self.odd] = self.first[self.odd]
        return cells

    def finish(self) -> None:
        self.odd |= (self.cursor != self.last) | (self.code != 0)

    def element(self, rows: Rows, place: Places) -> tuple[Octets, Places, Places]:
        """Return constructor, start and end of each value. A value without an extent makes its row odd."""
        code = at(self.buffer, place)
        only = int(code[0]) if len(code) else NULL
        if (code == only).all():
            if not _KNOWN[only]:
                self.odd[rows] = True
                return code, place, place
            size = int(SIZE[only])
            if size == 0:
                return code, place + 1, place + (1 + int(WIDTH[only]))
            start = place + (1 + size)
            length = at(self.buffer, place + 1) if size == 1 else word(self.buffer, place + 1)
            return code, start, start + length
        known = _KNOWN[code]
        if not known.all():
            self._mark(rows, ~known)
        size_of = SIZE[code]
        start = place + 1 + size_of
        end = start + WIDTH[code]
        for size, read in ((1, at), (4, word)):
            some = np.flatnonzero(size_of == size)
            if len(some):
                end[some] += read(self.buffer, place[some] + 1)
        return code, start, end

    def value(self, code: int, rows: Rows) -> Cells:
        """Return the section's values, and move the cursors on."""
        cells = Cells(*self.element(rows, self.cursor[rows]))
        if code in CONSTRUCTORS:
            self.require(rows, cells.code, CONSTRUCTORS[code])
        self.advance(rows, cells.end)
        return cells

    def skip(self, code: int) -> None:
        if (rows := self.rows_of(code)) is not None:
            self.value(code, rows)

    def require(self, rows: Rows, code: Octets, constructors: tuple[int, ...]) -> None:
        fits = code == constructors[0]
        for constructor in constructors[1:]:
            fits |= code == constructor
        if not fits.all():
            self._mark(rows, ~fits)

    def _mark(self, rows: Rows, mask: Mask) -> None:
        if isinstance(rows, slice):
            self.odd |= mask
        else:
            self.odd[rows[mask]] = True

    def _header(self, rows: Rows, short: int, long: int) -> tuple[Places, Places, Places]:
        code, start, end = self.element(rows, self.cursor[rows])
        empty = 0x45 if short == 0xC0 else short
        self.require(rows, code, (short, long, empty))
        if (code == short).all():
            # `size` includes the count, which must be present.
            count = at(self.buffer, start).astype(np.int64)
            self._mark(rows, end <= start)
            return count, start + 1, end
        count = np.zeros(len(start), np.int64)
        first = start.copy()
        for constructor, size, read in ((short, 1, at), (long, 4, word)):
            some = np.flatnonzero(code == constructor)
            if len(some):
                count[some] = read(self.buffer, start[some])
                first[some] += size
        self._mark(rows, first > end)
        return count, first, end

    def fields(self, code: int, *, wanted: bool = True) -> list[Cells | None]:
        """Follow a section's lists, of up to 13 fields. A field is None if it is null in all rows.

        Return [] if no row has the section, or if the fields are not `wanted`, which skips it.
        """
        if not wanted:
            self.skip(code)
        if not wanted or (rows := self.rows_of(code)) is None:
            return []
        count, place, end = self._header(rows, 0xC0, 0xD0)
        self._mark(rows, count > MOST_FIELDS)
        fields: list[Cells | None] = [None] * MOST_FIELDS

        def field(number: int, live: Rows, places: Places) -> Places:
            cells = Cells(*self.element(live, places))
            if isinstance(live, slice):
                fields[number] = cells
            elif (cells.code != NULL).any():
                all_rows = fields[number] = Cells.none(self.first)
                all_rows.put(live, cells)
            return cells.end

        self._each(rows, np.minimum(count, MOST_FIELDS), place, end, field)
        return fields

    def maps(self, code: int, *, wanted: bool = True) -> SectionMaps:
        """Follow a section's maps, or skip it unless the entries are `wanted`."""
        if not wanted:
            self.skip(code)
        if not wanted or (rows := self.rows_of(code)) is None:
            return SectionMaps(None, np.empty(0, np.int64), [])
        count, place, end = self._header(rows, 0xC1, 0xD1)
        self._mark(rows, (count % 2 != 0) | (count > 2 * MOST_PAIRS))
        count = np.minimum(count // 2, MOST_PAIRS)
        entries = []

        def entry(number: int, live: Rows, places: Places) -> Places:
            key = Cells(*self.element(live, places))
            value = Cells(*self.element(live, key.end))
            entries.append(MapEntries(live, key, value))
            return value.end

        self._each(rows, count, place, end, entry)
        return SectionMaps(rows, count, entries)

    def _each(self, rows: Rows, count: Places, place: Places, end: Places, read: Callable[[int, Rows, Places], Places]) -> None:
        """Read the first of each row's `count` elements, then the second of the rows that have one, and so on up to `end`.

        `read` gets the element's number, its rows and their places, and returns the ends.
        """
        least = int(count.min())
        for number in range(int(count.max())):
            if number < least:
                place = read(number, rows, place)
                continue
            inside = np.flatnonzero(count > number)
            after = read(number, _within(rows, inside), place[inside])
            place = place.copy()  # it may belong to a cell
            place[inside] = after
        self._mark(rows, place != end)
        self.advance(rows, end)


def _within(rows: Rows, inside: npt.NDArray[np.int64]) -> Rows:
    return inside if isinstance(rows, slice) else rows[inside]


def walk_of(column: pa.Array) -> tuple[Walk, pa.Buffer]:
    bounds = offsets_of(column).astype(np.int64)
    buffer = column.buffers()[2]
    if buffer is None or buffer.size == 0:
        buffer = pa.py_buffer(b"\0")  # there must be a byte to read
    first, last = bounds[:-1], bounds[1:]
    if column.null_count:
        last = np.where(np.asarray(column.is_valid()), last, first)
    return Walk(np.frombuffer(buffer, np.uint8), first, last), buffer
