"""A message from a body or JSON, and named fields."""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypedDict

from ... import errors
from ...amqp import EncodeError, Message
from ...amqp.performatives import Header, Properties
from ...amqp.types import Long, Symbol
from ...messages.annotations import DELIVERY_DELAY
from ...similar import nearest
from ..durations import Duration, milliseconds

JSON: Final = "application/json"
#: Default of `json`, where None is JSON's null.
NOTHING: Final = object()

Sendable = Message | bytes | str


class Fields(TypedDict, total=False):
    """Arguments of `composed` after the body, for type checkers."""

    json: Any
    subject: str | None
    properties: Mapping[str, Any] | None
    delay: Duration | None
    priority: int | None
    ttl: Duration | None
    durable: bool
    message_id: str | None
    correlation_id: str | None
    reply_to: str | None
    group_id: str | None
    content_type: str | None


_NAMES: Final = tuple(Fields.__annotations__)
_HAS_FIELDS: Final = "a whole Message is sent as it is: set its fields in the Message"


def composed(
    body: bytes | str | Message | None = None,
    *,
    json: Any = NOTHING,
    subject: str | None = None,
    properties: Mapping[str, Any] | None = None,
    delay: Duration | None = None,
    priority: int | None = None,
    ttl: Duration | None = None,
    durable: bool = True,
    message_id: str | None = None,
    correlation_id: str | None = None,
    reply_to: str | None = None,
    group_id: str | None = None,
    content_type: str | None = None,
) -> Message:
    """Return the message. Raises InvalidRequest for arguments that contradict each other, and for invalid JSON.

    Args:
        body: Octets, text, or a whole `Message`, which excludes other arguments.
        json: A value instead of a body: sent as UTF-8 JSON, with the content type `application/json`.
        subject: Subject, which an exchange uses as the routing key.
        properties: Application properties: strings, numbers, booleans, octets.
        delay: Seconds, or a `timedelta`, until the message is delivered.
        priority: 0 to 9; 4 without one.
        ttl: Seconds, or a `timedelta`, after which the message expires.
        durable: Whether it survives a restart of the broker.
        message_id: A queue that detects duplicates takes one message of an id.
        correlation_id: Id of the message that this one answers.
        reply_to: Address for answers.
        group_id: Message group: its messages go to one consumer at a time, in order.
        content_type: MIME type of the body.
    """
    if isinstance(body, Message):
        fields = (subject, properties, delay, priority, ttl, message_id, correlation_id, reply_to, group_id, content_type)
        if json is not NOTHING or any(value is not None for value in fields):
            raise errors.InvalidRequest(_HAS_FIELDS)
        return body
    _check_body(body)
    if json is not NOTHING:
        if body is not None:
            raise errors.InvalidRequest("a message has a body or json, not both")
        body, content_type = _json_octets(json), content_type or JSON
    message = _with_body(body)
    if priority is not None and not 0 <= priority <= 9:
        raise errors.InvalidRequest(f"priority is 0 to 9, not {priority}")
    ttl_ms = None if ttl is None else milliseconds("ttl", ttl, 1 << 32)
    message.header = Header(durable=durable, priority=4 if priority is None else priority, ttl=ttl_ms)
    message.message_annotations = None if delay is None else {DELIVERY_DELAY: Long(milliseconds("delay", delay))}
    message.properties = Properties(
        message_id=message_id,
        subject=subject,
        reply_to=reply_to,
        correlation_id=correlation_id,
        content_type=None if content_type is None else Symbol(content_type),
        group_id=group_id,
    )
    message.application_properties = None if properties is None else dict(properties)
    return message


def message_of(body: Sendable | None, fields: Mapping[str, Any], *others: str) -> Message:
    """Return the message of a call's arguments, as `composed`. `others`: the call's further arguments."""
    unknown = next((name for name in fields if name not in _NAMES), None)
    if unknown is not None:
        guess = nearest(unknown, ["body", *_NAMES, *others])
        meant = f"give one of {', '.join(sorted(_NAMES))}" if guess is None else f"did you mean {guess!r}?"
        raise errors.InvalidRequest(f"a message has no argument {unknown!r}: {meant}")
    return composed(body, **fields)


class SimilarMessages:
    """Messages of `send_many`: the fields are the same, id and body differ. Encoding one takes a few microseconds.

    Attributes:
        items: Bodies, or values of JSON, as the caller passed them.
    """

    def __init__(self, bodies: Any, fields: Mapping[str, Any]) -> None:
        same = dict(fields)
        values = same.pop("json", NOTHING)
        if (bodies is None) == (values is NOTHING):
            raise errors.InvalidRequest("send_many takes bodies, or json=… with values: exactly one of the two")
        self._is_json = bodies is None
        self.items = values if self._is_json else bodies
        if isinstance(self.items, (bytes, str, Message, Mapping)) or not hasattr(self.items, "__iter__"):
            kind = type(self.items).__name__
            if not hasattr(self.items, "__aiter__"):
                raise errors.InvalidRequest(f"send_many takes an iterable of bodies or values, not one {kind}: use send for it")
        if same.get("message_id") is not None:
            raise errors.InvalidRequest("message_id would be the id of every message: leave it out, or send whole Messages")
        self._has_fields = bool(same)
        if self._is_json:
            same["content_type"] = same.get("content_type") or JSON
        self._head = message_of(None, same)
        self._head.has_value = False
        self._count = 0
        self._id_octets = -1
        self._around_id = b"", b""

    def payload(self, item: Any, message_id: str) -> bytes:
        """Return the next message, encoded. Raises InvalidRequest with its number."""
        number, self._count = self._count, self._count + 1
        try:
            return self._payload(item, message_id)
        except errors.InvalidRequest as error:
            raise errors.InvalidRequest(f"message {number:,} of send_many: {error}") from error

    def _payload(self, item: Any, message_id: str) -> bytes:
        if self._is_json:
            item = _json_octets(item)
        elif isinstance(item, Message):
            if self._has_fields:
                raise errors.InvalidRequest(_HAS_FIELDS)
            return encoded(item, message_id)[0]
        _check_body(item)
        octets = message_id.encode()
        if len(octets) != self._id_octets:
            self._id_octets = len(octets)
            before, _, after = encoded(self._head, message_id)[0].partition(octets)
            self._around_id = before, after
        before, after = self._around_id
        return b"".join((before, octets, after, _with_body(item).encode()))


def encoded(message: Message, message_id: str) -> tuple[bytes, bool]:
    """Return the encoded message, and whether it is durable. Raises InvalidRequest if it cannot be encoded.

    A message without an id gets `message_id`, so that a broker can recognise a repetition.
    """
    header = message.header or Header(durable=True)
    properties = message.properties or Properties()
    if properties.message_id is None:
        properties = replace(properties, message_id=message_id)
    try:
        return replace(message, header=header, properties=properties).encode(), header.durable
    except EncodeError as error:
        raise errors.InvalidRequest(f"the message cannot be encoded in AMQP: {error}") from error


def _with_body(body: bytes | str | None) -> Message:
    return Message(data=[body]) if isinstance(body, bytes) else Message(value=body, has_value=True)


def _check_body(body: object) -> None:
    if not isinstance(body, (bytes, str, type(None))):  # AMQP could encode a dict, but JSON's readers could not read it
        kind = type(body).__name__
        raise errors.InvalidRequest(f"a body of type {kind} cannot be sent: give octets or a text, or json=… instead")


def _json_octets(value: Any) -> bytes:
    try:
        return json_text.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise errors.InvalidRequest(f"json={value!r:.80} cannot be written as JSON: {error}") from error
