"""The search for a pattern of LIKE in many texts. Its time is at most the octets of the texts by the characters of the pattern.

A regular expression would do for most patterns. For a few its automaton outgrows any memory, and then each octet costs 40 µs. So
we cut the pattern at its `%`. The piece before the first stands where a text begins, the piece behind the last where it ends;
each piece between them is taken where it first fits behind the one before it, which leaves the most to those that follow.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from ..messages.encoding.arrays import Bools, Ints, valid
from ..messages.encoding.octets import offsets_of
from .patterns import ANY, ONE

MAX_TEXT_OCTETS = 1 << 16  # of a text that LIKE looks into: the longest pattern takes some 20 ms for it
_AT_ONCE = 1 << 20  # octets of texts that are searched together: what is known of each takes 8 octets
_CHUNK = 1 << 15  # characters compared in one step, in the processor's cache
_FEW = 32  # fewer places than one in so many are looked at one by one

Piece = list[tuple[int, int]]  # characters, or octets, by their place in the piece; `_` has none


def fitting(values: pa.Array, parts: list[Any]) -> Bools:
    """Say which texts of an Arrow array fit a pattern's parts. Null may be either."""
    bounds = offsets_of(values).astype(np.int64)
    found: Bools = np.zeros(len(values), np.bool_)
    first = 0
    while first < len(values):
        stop = max(first + 1, int(np.searchsorted(bounds, bounds[first] + _AT_ONCE, "right")) - 1)
        found[first:stop] = _fitting(values.buffers()[2], bounds[first : stop + 1], parts)
        first = stop
    found &= valid(values)
    return found


def _fitting(buffer: pa.Buffer | None, bounds: Ints, parts: list[Any]) -> Bools:
    octets = np.frombuffer(buffer, np.uint8)[bounds[0] : bounds[-1]] if buffer is not None else np.zeros(0, np.uint8)
    codes, bounds = octets, bounds - bounds[0]
    if by_characters := ONE in parts and bool((octets >= 0x80).any()):
        codes, bounds = _characters(octets, bounds)
    starts, ends = bounds[:-1], bounds[1:]
    pieces = [_piece(list(group), by_characters) for is_any, group in groupby(parts, lambda part: part is ANY) if not is_any]
    begins, stops = bool(parts) and parts[0] is not ANY, bool(parts) and parts[-1] is not ANY
    if not parts:
        return np.equal(starts, ends)
    if begins and stops and len(pieces) == 1:
        return _at(codes, starts, ends - starts == pieces[0][1], pieces[0][0])
    fits = ends - starts >= sum(length for _, length in pieces)
    at, ends = starts.copy(), ends.copy()
    if begins:
        piece, length = pieces.pop(0)
        fits = _at(codes, at, fits, piece)
        at += length
    if stops:
        piece, length = pieces.pop()
        ends -= length
        fits = _at(codes, ends, fits, piece)
    for piece, length in pieces:
        if not fits.any():
            break
        places = _places(codes, piece, length)
        index = np.searchsorted(places, at)
        at = np.append(places, len(codes))[index] + length
        fits &= at <= ends
    return fits


def _piece(parts: list[Any], by_characters: bool) -> tuple[Piece, int]:
    """Return a piece's characters, or octets, and how many it has with each `_`."""
    known: Piece = []
    length = 0
    for part in parts:
        if part is ONE:
            length += 1
            continue
        codes = [int.from_bytes(one.encode(), "little") for one in part] if by_characters else list(part.encode())
        known += zip(range(length, length + len(codes)), codes, strict=True)
        length += len(codes)
    return known, length


def _characters(octets: Any, bounds: Ints) -> tuple[Any, Ints]:
    """Return one number for each character, its octets in UTF-8, and the bounds of texts counted in characters."""
    follows = np.zeros(len(octets) + 4, np.bool_)
    follows[: len(octets)] = octets & 0xC0 == 0x80
    padded = np.zeros(len(octets) + 4, np.uint32)
    padded[: len(octets)] = octets
    heads = np.flatnonzero(~follows[: len(octets)])
    codes, more = padded[heads], np.ones(len(heads), np.bool_)
    for index in (1, 2, 3):
        more &= follows[heads + index]
        codes |= np.where(more, padded[heads + index], 0) << np.uint32(8 * index)
    return codes, np.searchsorted(heads, bounds)


def _at(codes: Any, places: Ints, among: Bools, piece: Piece) -> Bools:
    """Say which of these places, `among` which the texts are long enough, have the piece."""
    rows = np.flatnonzero(among)
    for offset, character in piece:
        if not len(rows):
            break
        rows = rows[codes[places[rows] + offset] == character]
    found = np.zeros(len(among), np.bool_)
    found[rows] = True
    return found


def _places(codes: Any, piece: Piece, length: int) -> Ints:
    """Return all places of a piece, ascending, also such as reach from one text into the next."""
    last = len(codes) - length + 1
    found = [_places_within(codes, piece, first, min(first + _CHUNK, last)) for first in range(0, last, _CHUNK)]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _places_within(codes: Any, piece: Piece, first: int, stop: int) -> Ints:
    mask = np.ones(stop - first, np.bool_)
    for index, (offset, character) in enumerate(piece):
        if index & 7 == 2 and np.count_nonzero(mask) * _FEW < len(mask):
            places = np.flatnonzero(mask) + first
            for later, other in piece[index:]:
                if not len(places):
                    break
                places = places[codes[places + later] == other]
            return places
        mask &= codes[first + offset : stop + offset] == character
    return np.flatnonzero(mask) + first
