"""Identifiers of a selector: fields of the message, and its application properties.

| identifier | or | is | type |
|---|---|---|---|
| `JMSMessageID` | `amqp.message_id` | the message id, as text (1) | string |
| `JMSCorrelationID` | `amqp.correlation_id` | the correlation id, as text (1) | string |
| `JMSType` | `amqp.subject`, `amqp.jms_type` | the subject | string |
| `JMSDestination` | `amqp.to` | the address it was sent to | string |
| `JMSReplyTo` | `amqp.reply_to` | the address for replies | string |
| `JMSDeliveryMode` | `amqp.delivery_mode` | `'PERSISTENT'` if durable, else `'NON_PERSISTENT'` | string |
| | `amqp.durable` | the header's durable, FALSE by default | boolean |
| `JMSPriority` | `amqp.priority` | the priority, 4 by default | number |
| `JMSTimestamp` | `amqp.creation_time` | milliseconds since 1970 | number |
| `JMSExpiration` | `amqp.absolute_expiry_time` | milliseconds since 1970; NULL where only a time to live was sent | number |
| | `amqp.ttl` | the header's time to live as sent, milliseconds | number |
| `JMSXGroupID` | `amqp.group_id` | the group id | string |
| `JMSXGroupSeq` | `amqp.group_sequence` | the group sequence | number |
| `JMSXUserID` | `amqp.user_id` | the user id: its UTF-8, else base64 | string |
| | `amqp.content_type`, `amqp.content_encoding` | as they were sent | string |
| `name`, `some.name`, `JMS_name`, `JMSXname` | `properties.name`, `"name"` | the application property of that name | its own |

The `amqp.` names are those of Qpid's C++ broker. A name in double quotes is always an application property (`"order-id"`,
`"JMSType"`). Names are case-sensitive. Other names that begin with `JMSX` or `JMS_` are application properties. Any other name
that begins with JMS or `amqp.` is refused, since it would never match anything. Names of values that change while a message
waits are also refused, since a selector is evaluated once.

(1) A ulong's digits, a uuid's 36 characters, base64 of a binary. `JMSMessageID` and `JMSCorrelationID` may also be compared with
the texts that qpid-jms shows for such ids (`'ID:AMQP_ULONG:7'`, `'ID:AMQP_UUID:…'`, `'ID:AMQP_NO_PREFIX:…'`).
"""

from __future__ import annotations

from base64 import b64encode
from typing import Literal, NamedTuple

from .lexer import Token, wrong

Type = Literal["string", "number", "boolean", "any"]


class FieldOrProperty(NamedTuple):
    """A field of the message (`field`, one of `TYPES`), or the application property `name` (with `field` None).

    `explicit`: the selector's author marked it as a property, with double quotes or `properties.`.
    """

    field: str | None
    name: str
    explicit: bool = False


#: Type of each field, by its column; `deliveryMode` is computed from `durable`.
TYPES: dict[str, Type] = {
    **dict.fromkeys(("messageId", "correlationId", "subject", "to", "replyTo", "deliveryMode"), "string"),
    **dict.fromkeys(("groupId", "userId", "contentType", "contentEncoding"), "string"),
    **dict.fromkeys(("priority", "creationTime", "absoluteExpiryTime", "ttl", "groupSequence"), "number"),
    "durable": "boolean",
}


def _snake(column: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in column)


#: Field → its name in canonical selectors.
CANONICAL = {field: f"amqp.{_snake(field)}" for field in TYPES}
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


def resolve(token: Token) -> FieldOrProperty:
    """Return the field or property that an identifier names. Raises InvalidSelector for a reserved name without a meaning."""
    name = str(token.value)
    if token.kind == "quoted":
        return FieldOrProperty(None, name, explicit=True)
    if name in _FIELDS:
        field = _FIELDS[name]
        return FieldOrProperty(field, CANONICAL[field])
    if name in _CHANGING:
        allowed = "names of values that do not change while a message waits: a selector is evaluated once"
        wrong(token.position, f"{name!r}", f"{allowed}. Take every message and look at its delivery count, or set maxAttempts")
    if name.startswith(_PREFIX):
        return FieldOrProperty(None, name[len(_PREFIX) :], explicit=True)
    if is_reserved(name):
        allowed = f'{", ".join(sorted(_FIELDS))}; an application property of this name as "{name}"'
        wrong(token.position, f"{name!r}", allowed)
    return FieldOrProperty(None, name)


def is_reserved(name: str) -> bool:
    """Return True if this name, without quotes, does not mean the application property of that name."""
    if name.startswith("JMSX"):
        return name in _FIELDS or name in _CHANGING
    return name.startswith(("amqp.", _PREFIX)) or (name.startswith("JMS") and not name.startswith("JMS_"))


def names_of(field: str) -> tuple[str, ...]:
    """Return the names of a field: that of JMS, if it has one, and the canonical one."""
    jms = (name for name, column in _FIELDS.items() if column == field and name.startswith("JMS"))
    return (*jms, CANONICAL[field])


def id_text(text: str) -> str:
    """Return the column's text of an id that qpid-jms shows as `text`."""
    for prefix in ("ID:AMQP_NO_PREFIX:", "ID:AMQP_STRING:", "ID:AMQP_ULONG:", "ID:AMQP_UUID:"):
        if text.startswith(prefix):
            return text[len(prefix) :]
    if text.startswith("ID:AMQP_BINARY:"):
        try:
            return b64encode(bytes.fromhex(text[len("ID:AMQP_BINARY:") :])).decode("ascii")
        except ValueError:
            return text
    return text
