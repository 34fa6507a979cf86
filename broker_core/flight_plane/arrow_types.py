"""The types of Arrow's format by number, and the types that a message column may have.

pyarrow fails to read types for which it has no class, so the numbers are checked first. A new version of the format appends to
`NAMES`; until then its types are refused by number.
"""

from __future__ import annotations

from ..errors import InvalidColumn, PenstockError
from ..messages.columns import MESSAGE_COLUMNS

#: The union `Type` of the format's Schema.fbs.
NAMES = (
    *("none", "null", "int", "floating point", "binary", "utf8", "bool", "decimal", "date", "time", "timestamp", "interval"),
    *("list", "struct", "union", "fixed size binary", "fixed size list", "map", "duration", "large binary", "large utf8"),
    *("large list", "run-end encoded", "binary view", "utf8 view", "list view", "large list view"),
)
TIMESTAMP = NAMES.index("timestamp")
#: Of message columns, or inside of them: a map contains a struct. Dictionaries have the type of their values.
_ACCEPTED = (
    *("null", "int", "binary", "utf8", "bool", "timestamp", "struct", "map"),
    *("large binary", "large utf8", "binary view", "utf8 view"),
)
ACCEPTED = frozenset(map(NAMES.index, _ACCEPTED))


def refusal(column: str, number: int) -> PenstockError | None:
    """Return the error for a column with this type at any depth, if it is not accepted.

    A known type of an unknown column is left to the error about its name.
    """
    wanted = MESSAGE_COLUMNS.get(column)
    if number in ACCEPTED or (wanted is None and 0 < number < len(NAMES)):
        return None
    must = "" if wanted is None else f"; it must be {wanted}"
    known = NAMES[number] if number < len(NAMES) else f"with the number {number}, which this broker does not know"
    return InvalidColumn(f"column {column!r:.200} has the Arrow type {known}{must}: cast or drop the column")
