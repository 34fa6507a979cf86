"""The last failed deliveries of a block's rows, also of ended ones. A redrive in the same queue counts as one."""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .rowset import as_array
from .series import Ints, RowColumn, Rows

KEPT = 3  # of a row
REDRIVEN = 255  # a cause
_FIELDS = ("cause", "time", "taker", "error")
_FEW_ERRORS = 64  # texts from which unused ones are looked for


class FailedDelivery(NamedTuple):
    """0: no value."""

    cause: int  # `Cause`, plus one; REDRIVEN
    time: int  # milliseconds after the block's first arrival, plus one
    taker: int  # consumer, or user of the redrive: code in the queue's takers
    error: int  # number of the consumer's error, from 1 on


class FailedRows(NamedTuple):
    """Copies of the failed deliveries of some rows."""

    indexes: npt.NDArray[np.int64]  # of the rows that have some, ascending
    deliveries: list[list[Ints]]  # the last ones first; each: fields of `FailedDelivery`, parallel to `indexes`
    errors: tuple[str, ...]


class Failures:
    """The failed deliveries of one block."""

    __slots__ = ("_columns", "_errors", "_many_errors")

    def __init__(self) -> None:
        self._columns: list[list[RowColumn]] = []  # the last delivery first; empty: no row has one
        self._errors: dict[str, int] = {}  # text → number: rows share the texts
        self._many_errors = _FEW_ERRORS

    def note(self, rows: Rows, cause: int, time: int, taker: int, error: str | None, capacity: int) -> None:
        self._columns = self._columns or [[RowColumn() for _ in _FIELDS] for _ in range(KEPT)]
        values = FailedDelivery(cause, time, taker, self._number_of(error) if error else 0)
        for later, earlier in zip(self._columns[-2::-1], self._columns[:0:-1], strict=True):
            if later[0].values is not None:
                for source, target in zip(later, earlier, strict=True):
                    target.put(rows, np.asarray(source.get(rows)), capacity)
        for column, value in zip(self._columns[0], values, strict=True):
            column.set(rows, value, capacity)

    def clear(self, rows: Rows, capacity: int) -> None:
        for column in chain.from_iterable(self._columns):
            column.set(rows, 0, capacity)

    def grow(self, capacity: int) -> None:
        for column in chain.from_iterable(self._columns):
            column.grow(capacity)

    def of(self, rows: Rows) -> FailedRows | None:
        """Return copies; None: the rows have no failed deliveries. Called under the broker's lock."""
        causes = self._columns[0][0].get(rows) if self._columns else 0
        if isinstance(causes, int) or not causes.any():
            return None
        indexes = np.flatnonzero(causes)
        failed = as_array(rows)[indexes]
        deliveries = [[column.array(failed) for column in columns] for columns in self._columns if columns[0].values is not None]
        return FailedRows(indexes, deliveries, tuple(self._errors))

    def _number_of(self, error: str) -> int:
        if error not in self._errors and len(self._errors) >= self._many_errors:
            self._forget_errors()
        return self._errors.setdefault(error, len(self._errors) + 1)

    def _forget_errors(self) -> None:
        """Forget unused texts, and number the others again."""
        columns = [values for *_, column in self._columns if (values := column.values) is not None]
        used = np.unique(np.concatenate([np.zeros(1, np.int64), *columns]))  # 0 keeps its number
        texts = ["", *self._errors]
        self._errors = {texts[number]: place for place, number in enumerate(used.tolist()) if number}
        self._many_errors = 2 * len(self._errors) + _FEW_ERRORS
        for values in columns:
            values[:] = np.searchsorted(used, values)

    # Persisted as a part of the block
    def persisted(self, filled: int) -> dict[str, Any]:
        columns: dict[str, Any] = {
            _name(field, place): column.values[:filled].copy()
            for place, columns in enumerate(self._columns)
            for field, column in zip(_FIELDS, columns, strict=True)
            if column.values is not None
        }
        return {**columns, "failure_errors": list(self._errors)} if self._errors else columns

    @classmethod
    def restored(cls, columns: dict[str, Any]) -> Failures:
        failures = cls()
        if _name(_FIELDS[0], 0) not in columns:
            return failures
        names = [[_name(field, place) for field in _FIELDS] for place in range(KEPT)]
        failures._columns = [[RowColumn(columns[name].copy() if name in columns else None) for name in some] for some in names]
        failures._errors = {text: number for number, text in enumerate(columns.get("failure_errors", ()), 1)}
        failures._many_errors = 2 * len(failures._errors) + _FEW_ERRORS
        return failures


def _name(field: str, place: int) -> str:
    return f"failure_{field}_{place}"
