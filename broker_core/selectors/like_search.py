"""Search for a pattern of LIKE in many texts. It takes at most the bytes of the texts times the characters of the pattern.

For a few patterns, the automaton of a regular expression outgrows any memory, and each byte costs 40 µs. Therefore the pattern is
cut at its `%`. The first piece is expected at the beginning of a text, the last one at its end. Pieces between them are taken at
their first match, which leaves the most text to later pieces.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from ..messages.encoding.arrays import Bools, Ints, valid
from ..messages.encoding.octets import offsets_of
from .like_patterns import ANY, ONE

MAX_TEXT_OCTETS = 1 << 16  # bytes of a text that LIKE searches, in 20 ms for the longest pattern
_AT_ONCE = 1 << 20  # bytes that are searched together; the state takes 8 bytes for each
_CHUNK = 1 << 15  # characters of one step, in the processor's cache
_FEW = 32  # below one match in this many places, matches are compared one by one

Piece = list[tuple[int, int]]  # offset, and character or byte; `_` has no entry


def fitting(values: pa.Array, parts: list[Any]) -> Bools:
    """Return the mask of texts that match a pattern's parts."""
    bounds = offsets_of(values).astype(np.int64)
    fits: Bools = np.zeros(len(values), np.bool_)
    first = 0
    while first < len(values):
        stop = max(first + 1, int(np.searchsorted(bounds, bounds[first] + _AT_ONCE, "right")) - 1)
        fits[first:stop] = _fitting(values.buffers()[2], bounds[first : stop + 1], parts)
        first = stop
    fits &= valid(values)
    return fits


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
    """Return a piece, and its length with each `_`."""
    known: Piece = []
    length = 0
    for part in parts:
        if part is ONE:
            length += 1
            continue
        codes = [int.from_bytes(letter.encode(), "little") for letter in part] if by_characters else list(part.encode())
        known += zip(range(length, length + len(codes)), codes, strict=True)
        length += len(codes)
    return known, length


def _characters(octets: Any, bounds: Ints) -> tuple[Any, Ints]:
    """Return a number for each character (its bytes in UTF-8), and the bounds of texts in characters."""
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


def _at(codes: Any, places: Ints, candidates: Bools, piece: Piece) -> Bools:
    """Return the mask of places with the piece. `candidates`: places whose texts are long enough."""
    rows = np.flatnonzero(candidates)
    for offset, character in piece:
        if not len(rows):
            break
        rows = rows[codes[places[rows] + offset] == character]
    matches = np.zeros(len(candidates), np.bool_)
    matches[rows] = True
    return matches


def _places(codes: Any, piece: Piece, length: int) -> Ints:
    """Return all places of a piece, ascending, also from one text into the next."""
    last = len(codes) - length + 1
    parts = [_places_within(codes, piece, first, min(first + _CHUNK, last)) for first in range(0, last, _CHUNK)]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _places_within(codes: Any, piece: Piece, first: int, stop: int) -> Ints:
    mask = np.ones(stop - first, np.bool_)
    for index, (offset, character) in enumerate(piece):
        if index & 7 == 2 and np.count_nonzero(mask) * _FEW < len(mask):
            places = np.flatnonzero(mask) + first
            for later, later_character in piece[index:]:
                if not len(places):
                    break
                places = places[codes[places + later] == later_character]
            return places
        mask &= codes[first + offset : stop + offset] == character
    return np.flatnonzero(mask) + first
