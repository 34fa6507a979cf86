"""Columns of the section of properties (3.2.4): the field of each, and what a field may hold on the wire."""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """Place in the list (from 0), name in `broker_core.amqp.Properties`, type on the wire."""

    place: int
    attribute: str
    wire: str


_LIST = (
    ("message-id", "messageId"),
    ("binary", "userId"),
    ("string", "to"),
    ("string", "subject"),
    ("string", "replyTo"),
    ("message-id", "correlationId"),
    ("symbol", "contentType"),
    ("symbol", "contentEncoding"),
    ("timestamp", "absoluteExpiryTime"),
    ("timestamp", "creationTime"),
    ("string", "groupId"),
    ("uint", "groupSequence"),
    ("string", "replyToGroupId"),
)


def _attribute(column: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in column)


#: In the order of the list. The last one has no column.
ALL_FIELDS: dict[str, Field] = {column: Field(place, _attribute(column), wire) for place, (wire, column) in enumerate(_LIST)}
FIELDS: dict[str, Field] = {column: field for column, field in ALL_FIELDS.items() if column != "replyToGroupId"}
