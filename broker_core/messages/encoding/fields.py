"""Columns of the section of properties (3.2.4): the field of each, and what a field may hold on the wire."""

from __future__ import annotations

from typing import NamedTuple

from ..columns import COLUMNS


class Field(NamedTuple):
    """Place in the list (from 0), name in `broker_core.amqp.Properties`, type on the wire."""

    place: int
    attribute: str
    wire: str


#: The list as AMQP orders it. The last field has no column.
_ORDER = (
    *("messageId", "userId", "to", "subject", "replyTo", "correlationId", "contentType", "contentEncoding"),
    *("absoluteExpiryTime", "creationTime", "groupId", "groupSequence", "replyToGroupId"),
)


def _wire(name: str) -> str:
    return (COLUMNS[name].wire or "") if name in COLUMNS else "string"


def _attribute(column: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in column)


ALL_FIELDS: dict[str, Field] = {name: Field(place, _attribute(name), _wire(name)) for place, name in enumerate(_ORDER)}
#: Those that have a column.
FIELDS: dict[str, Field] = {name: field for name, field in ALL_FIELDS.items() if name in COLUMNS}
