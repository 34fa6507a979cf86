"""Compact columns of integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[Any]
Rows = slice | Ints  # of one block: a slice, or sorted row numbers

_SIGNED = (np.int8, np.int16, np.int32, np.int64)
_UNSIGNED = (np.uint8, np.uint16, np.uint32, np.uint64)


def _signed_type(low: int, high: int) -> np.dtype[Any]:
    return np.min_scalar_type(min(low, -high - 1))  # of a negative number, so it is signed


_UNSIGNED_MAX = {np.dtype(dtype): int(np.iinfo(dtype).max) for dtype in _UNSIGNED}
_SIGNED_RANGE = {np.dtype(dtype): (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)) for dtype in _SIGNED}


def narrowed(values: Ints) -> Ints:
    return values.astype(np.min_scalar_type(int(values.max(initial=0))), copy=False)


class Series:
    """An append-only list of integers. While they ascend evenly, only the step is stored; then the differences from the first,
    in the narrowest type."""

    __slots__ = ("_base", "_length", "_step", "_values")

    def __init__(self, base: int = 0, values: Ints | None = None) -> None:
        self._base = base
        self._values: Ints = np.zeros(0, np.int8) if values is None else values
        self._length = len(self._values)
        self._step: int | None = None if self._length else 0
        if self._length:
            step = int(self._values[-1]) // max(1, self._length - 1)
            if np.array_equal(self._values, np.arange(self._length) * step):
                self._step, self._values = step, self._values[:0].copy()

    @classmethod
    def of(cls, values: npt.NDArray[np.int64]) -> Series:
        if not len(values):
            return cls()
        deltas = values - values[0]
        return cls(int(values[0]), deltas.astype(_signed_type(int(deltas.min()), int(deltas.max()))))

    def __len__(self) -> int:
        return self._length

    def append(self, value: int) -> None:
        if self._length == 0:
            self._base = value
        delta = value - self._base
        if self._step is not None:
            if self._length == 1:
                self._step = delta
            if delta == self._step * self._length:
                self._length += 1
                return
            self._values = self._deltas()
            self._step = None
        values = self._values
        low, high = _SIGNED_RANGE[values.dtype]
        if not low <= delta <= high:
            values = values.astype(_signed_type(delta, delta))
        if self._length == len(values):
            values = np.concatenate([values, np.zeros(max(4, len(values) // 2), values.dtype)])
        values[self._length] = delta
        self._values = values
        self._length += 1

    def _deltas(self) -> Ints:
        if self._step is None:
            return self._values[: self._length]
        last = self._step * max(0, self._length - 1)
        return (np.arange(self._length) * self._step).astype(_signed_type(last, last))

    def array(self) -> npt.NDArray[np.int64]:
        if self._step is not None:
            return np.arange(self._length) * self._step + self._base
        return self._deltas().astype(np.int64) + self._base

    def take(self, indices: Ints) -> npt.NDArray[np.int64]:
        if self._step is not None:
            return indices.astype(np.int64) * self._step + self._base
        return self._values[indices].astype(np.int64) + self._base

    def runs_of(self, numbers: Ints | int) -> Any:
        """Return by number the index of the last entry that is not above it, in an ascending series."""
        if self._step is not None:
            if not self._step:
                return np.zeros_like(numbers)
            return np.minimum((numbers - self._base) // self._step, self._length - 1)
        values = self._values[: self._length]
        # Numbers get the type of the values, or numpy would copy all values. Larger ones become its maximum.
        wanted = np.minimum(numbers - self._base, _SIGNED_RANGE[values.dtype][1]).astype(values.dtype)
        return np.searchsorted(values, wanted, side="right") - 1

    def run_of(self, number: int) -> int:
        """Fast for the last run, which is the usual one."""
        if self._length and number >= self[-1]:
            return self._length - 1
        return int(self.runs_of(number))

    def __getitem__(self, index: int) -> int:
        if self._step is not None:
            return range(self._length)[index] * self._step + self._base
        return int(self._values[: self._length][index]) + self._base

    def trim(self) -> None:
        if self._step is None:
            self._values = self._deltas().copy()

    def persisted(self) -> tuple[int, Ints]:
        return self._base, self._deltas().copy()


class RowColumn:
    """Unsigned integers by row, 0 where never set. Memory is allocated for the first other value, and the type widens."""

    __slots__ = ("values",)

    def __init__(self, values: Ints | None = None) -> None:
        self.values = values

    def set(self, rows: Rows, value: int, capacity: int) -> None:
        if self.values is None and value == 0:
            return
        self._room(value, capacity)[rows] = value

    def put(self, rows: Rows, values: Ints, capacity: int) -> None:
        top = int(values.max(initial=0))
        if self.values is not None or top:
            self._room(top, capacity)[rows] = values

    def increment(self, rows: Rows, capacity: int) -> None:
        values = self._room(1, capacity)
        top = int(values[rows].max(initial=0))
        self._room(top + 1, capacity)[rows] += 1

    def grow(self, capacity: int) -> None:
        if self.values is not None:
            self._room(0, capacity)

    def get(self, rows: Rows) -> Ints | int:
        """The number 0: no row ever had another value."""
        return 0 if self.values is None else self.values[rows]

    def array(self, rows: Ints) -> Ints:
        """Return a copy of the values."""
        return np.zeros(len(rows), np.uint8) if self.values is None else self.values[rows]

    def value(self, row: int) -> int:
        return 0 if self.values is None else int(self.values[row])

    def _room(self, value: int, capacity: int) -> Ints:
        values = self.values
        if values is None:
            values = np.zeros(capacity, np.uint8)
        if len(values) < capacity:
            values = np.concatenate([values, np.zeros(capacity - len(values), values.dtype)])
        if value > _UNSIGNED_MAX[values.dtype]:
            values = values.astype(np.min_scalar_type(value))
        self.values = values
        return values


class Sizes:
    """Stored bytes by row. Equal sizes are stored as one number."""

    __slots__ = ("_column", "uniform")

    def __init__(self, uniform: int | None = None, values: Ints | None = None) -> None:
        self.uniform = uniform  # None: two rows differ
        self._column = RowColumn(values)

    def fill(self, start: int, sizes: int | Ints, stop: int, capacity: int) -> None:
        if isinstance(sizes, int) and (start == 0 or sizes == self.uniform):
            self.uniform = sizes
            return
        if start > 0 and self.uniform is not None:
            self._column.set(slice(0, start), self.uniform, capacity)
        self.uniform = None
        self._column.set(slice(start, stop), int(np.max(sizes)), capacity)  # makes room for the widest
        if self._column.values is not None:
            self._column.values[start:stop] = sizes

    def get(self, rows: Rows) -> Ints | int:
        """One number: the size of each row."""
        return self.uniform if self.uniform is not None else self._column.get(rows)

    def array(self, rows: Ints) -> Ints:
        return self._column.array(rows) if self.uniform is None else np.full(len(rows), self.uniform)

    def total(self, rows: Rows, count: int) -> int:
        sizes = self.get(rows)
        return sizes * count if isinstance(sizes, int) else int(sizes.sum(dtype=np.int64))

    def persisted(self, filled: int) -> Ints | int:
        sizes = self.get(slice(0, filled))
        return sizes if isinstance(sizes, int) else sizes.copy()
