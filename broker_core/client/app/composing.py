"""A message from the arguments of an application: a body or JSON, and named fields."""

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
from ...quantities import MAX_MILLISECONDS

JSON: Final = "application/json"
#: Default of `json`: None is JSON's null.
NOTHING: Final = object()

Sendable = Message | bytes | str


class Fields(TypedDict, total=False):
    """Arguments of `composed` after the body, for type checkers."""

    json: Any
    subject: str | None
    properties: Mapping[str, Any] | None
    delay: float | None
    priority: int | None
    ttl: float | None
    durable: bool
    message_id: str | None
    correlation_id: str | None
    reply_to: str | None
    group_id: str | None
    content_type: str | None


def composed(
    body: bytes | str | Message | None = None,
    *,
    json: Any = NOTHING,
    subject: str | None = None,
    properties: Mapping[str, Any] | None = None,
    delay: float | None = None,
    priority: int | None = None,
    ttl: float | None = None,
    durable: bool = True,
    message_id: str | None = None,
    correlation_id: str | None = None,
    reply_to: str | None = None,
    group_id: str | None = None,
    content_type: str | None = None,
) -> Message:
    """Return the message. Raises InvalidRequest for arguments that contradict each other, and for invalid JSON.

    Args:
        body: Octets, text, or a whole `Message`. With a `Message` no other argument is allowed.
        json: A value instead of a body: sent as UTF-8 JSON, with the content type `application/json`.
        subject: Subject of the message. An exchange uses it as the routing key.
        properties: Application properties: strings, numbers, booleans, octets.
        delay: Seconds until the message is delivered.
        priority: 0 to 9; 4 without one.
        ttl: Seconds after which the message expires.
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
            raise errors.InvalidRequest("a whole Message is sent as it is: set its fields in the Message")
        return body
    _check_body(body)
    if json is not NOTHING:
        if body is not None:
            raise errors.InvalidRequest("a message has a body or json, not both")
        body, content_type = _json_octets(json), content_type or JSON
    message = _with_body(body)
    if priority is not None and not 0 <= priority <= 9:
        raise errors.InvalidRequest(f"priority is 0 to 9, not {priority}")
    ttl_ms = _milliseconds("ttl", ttl, 1 << 32)
    message.header = Header(durable=durable, priority=4 if priority is None else priority, ttl=ttl_ms)
    delay_ms = _milliseconds("delay", delay, MAX_MILLISECONDS)
    message.message_annotations = None if delay_ms is None else {DELIVERY_DELAY: Long(delay_ms)}
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


def encoded(
    body: Sendable, persistent: bool | None, priority: int | None, ttl_ms: int | None, message_id: str
) -> tuple[bytes, bool]:
    """Return the encoded message, and whether it is persistent. Raises InvalidRequest if it cannot be encoded.

    The message's own header fields stay unless an argument overrides them. A message without an id gets `message_id`, so that a
    broker can recognise a repetition.
    """
    if isinstance(body, Message):
        message = body
    elif isinstance(body, (bytes, str)):
        message = _with_body(body)
    else:
        raise errors.InvalidRequest(f"a {type(body).__name__} cannot be sent: give a Message, bytes or str")
    header = message.header or Header(durable=True)
    if persistent is not None:
        header = replace(header, durable=persistent)
    if priority is not None:
        header = replace(header, priority=priority)
    if ttl_ms is not None:
        header = replace(header, ttl=ttl_ms)
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
    if not isinstance(body, (bytes, str, type(None))):  # AMQP could encode a dict, but a reader of JSON could not read it
        kind = type(body).__name__
        raise errors.InvalidRequest(f"a body of type {kind} cannot be sent: give octets or a text, or json=… instead")


def _json_octets(value: Any) -> bytes:
    try:
        return json_text.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise errors.InvalidRequest(f"json={value!r:.80} cannot be written as JSON: {error}") from error


def _milliseconds(name: str, seconds: float | None, end: int) -> int | None:
    if seconds is None:
        return None
    if not 0 <= seconds < end / 1000:
        raise errors.InvalidRequest(f"{name} is seconds from 0 to {(end - 1) // 1000:,}, not {seconds}")
    return int(seconds * 1000)
