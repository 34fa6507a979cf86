"""Lookalikes: application properties with the name of a field or column.

In JMS, `priority` is an application property, and the field is `JMSPriority`. A selector that confuses them matches nothing,
without an error, because a message with such a property may come later. A hint then names the field, unless the name is in double
quotes or after `properties.`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..similar import plain
from .names import CANONICAL, TYPES, Identifier, names_of

if TYPE_CHECKING:
    from .operands import Operand

#: Columns of `peek` and of Spark that a selector cannot compare.
NOT_COMPARED = (
    *("queue", "sequenceNumber", "enqueuedTime", "deliveryCount", "state", "outcome", "settledTime", "error", "holder"),
    *("failures", "lockedUntil"),
    *("body", "bodyType", "properties", "annotations", "deliveryTime"),
)
MAX_NAME = 40  # characters of a lookalike; the longest field has 25
MAX_HINTS = 3  # of one selector
_VENDOR = "jmsamqp"  # vendor properties of the JMS mapping, such as JMS_AMQP_TTL


_COLUMNS = {plain(name): field for field in TYPES for name in (field, *names_of(field))}
_COLUMNS |= {plain(column): column for column in NOT_COMPARED}


def column_of(name: str) -> str | None:
    """Return the column or field whose name resembles a property's name."""
    if len(name) > MAX_NAME:
        return None
    normal = plain(name)
    return _COLUMNS.get(normal) or _COLUMNS.get(normal.removeprefix(_VENDOR))


def lookalikes(identifiers: Iterable[Identifier]) -> tuple[str, ...]:
    return tuple(name.name for name in identifiers if name.field is None and not name.explicit and column_of(name.name))


def hint(name: str, *, compared: bool) -> str:
    """`compared`: no compared message has the property."""
    column = column_of(name)
    if column in CANONICAL:
        advice = f"for the message's {column} write {' or '.join(names_of(column))}"
    else:
        advice = f"a selector cannot compare the message's {column}"
    absent = ", which no compared message has" if compared else ""
    return f"in a selector {name!r} is an application property{absent}; {advice}"


class Presence:
    """Lookalikes that no compared message has."""

    def __init__(self, names: Iterable[str]) -> None:
        self.absent = set(names)
        self.compared = False

    def note(self, columns: Mapping[Identifier, Operand]) -> None:
        """`columns`: operands of at least one message."""
        import numpy as np

        self.compared = True
        if self.absent:
            for identifier, operand in columns.items():
                if identifier.field is None and identifier.name in self.absent and not np.all(operand.null):
                    self.absent.discard(identifier.name)

    def merge(self, presence: Presence) -> None:
        self.absent &= presence.absent
        self.compared |= presence.compared

    def hints(self) -> list[str]:
        return [hint(name, compared=self.compared) for name in sorted(self.absent)[:MAX_HINTS]]
