"""Identifiers: fields of the message, and application properties. docs/queues.md lists the names.

The `amqp.` names are those of Qpid's C++ broker. A name with JMS or `amqp.` that could never match is refused. So are values that
change while a message waits, because a selector is evaluated once.

An id's text is a ulong's digits, a uuid's 36 characters, or base64 of a binary. A selector may also have the texts of qpid-jms
(`'ID:AMQP_ULONG:7'`).
"""

from __future__ import annotations

import dataclasses
import re
from base64 import b64encode
from typing import Literal

from .lexer import Token, wrong

Type = Literal["string", "number", "boolean", "any"]

#: Types of fields; `deliveryMode` is computed from `durable`.
TYPES: dict[str, Type] = {
    **dict.fromkeys(("messageId", "correlationId", "subject", "to", "replyTo", "deliveryMode"), "string"),
    **dict.fromkeys(("groupId", "userId", "contentType", "contentEncoding"), "string"),
    **dict.fromkeys(("priority", "creationTime", "absoluteExpiryTime", "ttl", "groupSequence"), "number"),
    "durable": "boolean",
}


#: Field → its name in canonical selectors.
CANONICAL = {field: "amqp." + re.sub("([A-Z])", r"_\1", field).lower() for field in TYPES}
_FIELDS = {name: field for field, name in CANONICAL.items()} | {
    "amqp.jms_type": "subject",
    "JMSMessageID": "messageId",
    "JMSCorrelationID": "correlationId",
    "JMSType": "subject",
    "JMSDestination": "to",
    "JMSReplyTo": "replyTo",
    "JMSDeliveryMode": "deliveryMode",
    "JMSPriority": "priority",
    "JMSTimestamp": "creationTime",
    "JMSExpiration": "absoluteExpiryTime",
    "JMSXGroupID": "groupId",
    "JMSXGroupSeq": "groupSequence",
    "JMSXUserID": "userId",
}
_CHANGING = ("JMSRedelivered", "JMSXDeliveryCount", "amqp.redelivered", "amqp.delivery_count", "amqp.first_acquirer")
_PREFIX = "properties."


@dataclasses.dataclass(frozen=True)
class Identifier:
    """A `field` of `TYPES`, or without one the application property `name`.

    `explicit`: it was marked as a property, with double quotes or `properties.`, which does not change its meaning.
    """

    field: str | None
    name: str
    explicit: bool = dataclasses.field(default=False, compare=False)

    @property
    def type(self) -> Type:
        return "any" if self.field is None else TYPES[self.field]


def resolve(token: Token) -> Identifier:
    """Raises InvalidSelector for a reserved name without a meaning."""
    name = str(token.value)
    if token.kind == "quoted":
        return Identifier(None, name, explicit=True)
    if name in _FIELDS:
        field = _FIELDS[name]
        return Identifier(field, CANONICAL[field])
    if name in _CHANGING:
        allowed = "names of values that do not change while a message waits: a selector is evaluated once"
        wrong(token.position, f"{name!r}", f"{allowed}. Take every message and look at its delivery count, or set maxAttempts")
    if name.startswith(_PREFIX):
        return Identifier(None, name[len(_PREFIX) :], explicit=True)
    if is_reserved(name):
        allowed = f'{", ".join(sorted(_FIELDS))}; an application property of this name as "{name}"'
        wrong(token.position, f"{name!r}", allowed)
    return Identifier(None, name)


def is_reserved(name: str) -> bool:
    """Return True if an application property of this name needs quotes."""
    if name.startswith("JMSX"):
        return name in _FIELDS or name in _CHANGING
    return name.startswith(("amqp.", _PREFIX)) or (name.startswith("JMS") and not name.startswith("JMS_"))


def names_of(field: str) -> tuple[str, ...]:
    """Return the field's name in JMS, if it has one, and its canonical name."""
    jms = (name for name, column in _FIELDS.items() if column == field and name.startswith("JMS"))
    return (*jms, CANONICAL[field])


def id_text(text: str) -> str:
    """Return the column's text for qpid-jms' text of an id."""
    for prefix in ("ID:AMQP_NO_PREFIX:", "ID:AMQP_STRING:", "ID:AMQP_ULONG:", "ID:AMQP_UUID:"):
        if text.startswith(prefix):
            return text[len(prefix) :]
    if text.startswith("ID:AMQP_BINARY:"):
        try:
            return b64encode(bytes.fromhex(text[len("ID:AMQP_BINARY:") :])).decode("ascii")
        except ValueError:
            return text
    return text
