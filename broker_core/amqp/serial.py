"""RFC 1982 serial numbers of 32 bits: delivery ids, transfer ids, delivery counts (2.8.10).

Two numbers exactly 2**31 apart cannot be compared (RFC 1982, 3.2). `difference` then returns -2**31, so neither counts as newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MASK = 0xFFFFFFFF
_HALF = 0x80000000


def add(number: int, count: int) -> int:
    return (number + count) & MASK


def difference(left: int, right: int) -> int:
    """Return the steps from `right` to `left`: -2**31 … 2**31-1."""
    return ((left - right + _HALF) & MASK) - _HALF


def ranges(ids: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Return neighbouring ids as (first, last), in the given order; ids wrap."""
    if ids and ids[-1] - ids[0] == len(ids) - 1 and ids == list(range(ids[0], ids[-1] + 1)):  # usually
        return [(ids[0], ids[-1])]
    return _neighbours(ids) if ids else ()


def _neighbours(ids: Sequence[int]) -> Iterable[tuple[int, int]]:
    first = last = ids[0]
    for number in ids[1:]:
        if number != add(last, 1):
            yield first, last
            first = number
        last = number
    yield first, last
