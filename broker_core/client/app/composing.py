"""A message from what an application gives: a body or JSON, and the fields that it names."""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping
from typing import Any, Final, TypedDict

from ... import errors
from ...amqp import Message
from ...amqp.performatives import Header, Properties
from ...amqp.types import Long, Symbol
from ...messages.annotations import DELIVERY_DELAY
from ...quantities import MAX_MILLISECONDS

JSON: Final = "application/json"
#: Tells `json=None`, which is JSON's null, from no `json`.
NOTHING: Final = object()


class Fields(TypedDict, total=False):
    """Arguments of `composed` beside the body, for type checkers."""

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
    """Return the message. Raises InvalidRequest for what contradicts itself or is no JSON.

    Args:
        body: Octets, text, or a whole `Message`, with which no other argument is taken.
        json: A value instead of a body: sent as UTF-8 JSON, with the content type `application/json`.
        subject: What the message is about; the routing key, where an exchange is addressed.
        properties: Application properties: strings, numbers, booleans, octets.
        delay: Seconds until the message is delivered.
        priority: 0 to 9; 4 without one.
        ttl: Seconds after which the message expires.
        durable: Whether the broker keeps the message over a restart.
        message_id: A queue that detects duplicates takes one message of an id.
        correlation_id: The id of the message that this one answers.
        reply_to: Where answers go.
        group_id: The message group: its messages go to one consumer at a time, in order.
        content_type: The MIME type of the body.
    """
    if isinstance(body, Message):
        named = (subject, properties, delay, priority, ttl, message_id, correlation_id, reply_to, group_id, content_type)
        if json is not NOTHING or any(value is not None for value in named):
            raise errors.InvalidRequest("a whole Message is sent as it is: set its fields in the Message")
        return body
    _check_body(body)
    if json is not NOTHING:
        if body is not None:
            raise errors.InvalidRequest("a message has a body or json, not both")
        body, content_type = _encoded(json), content_type or JSON
    found = _with_body(body)
    found.header = _header(durable, priority, _milliseconds("ttl", ttl, 1 << 32))
    delay_ms = _milliseconds("delay", delay, MAX_MILLISECONDS)
    found.message_annotations = None if delay_ms is None else {DELIVERY_DELAY: Long(delay_ms)}
    kind = None if content_type is None else Symbol(content_type)
    found.properties = Properties(
        message_id=message_id,
        subject=subject,
        reply_to=reply_to,
        correlation_id=correlation_id,
        content_type=kind,
        group_id=group_id,
    )
    found.application_properties = None if properties is None else dict(properties)
    return found


def _with_body(body: bytes | str | None) -> Message:
    return Message(data=[body]) if isinstance(body, bytes) else Message(value=body, has_value=True)


def _header(durable: bool, priority: int | None, ttl: int | None) -> Header:
    if priority is None:
        return Header(durable=durable, ttl=ttl)
    if not 0 <= priority <= 9:
        raise errors.InvalidRequest(f"priority is 0 to 9, not {priority}")
    return Header(durable=durable, priority=priority, ttl=ttl)


def _check_body(body: object) -> None:
    """Refuse a dict and the like, which AMQP could encode, and which no reader of JSON would understand."""
    if not isinstance(body, (bytes, str, type(None))):
        kind = type(body).__name__
        raise errors.InvalidRequest(f"a body of type {kind} cannot be sent: give octets or a text, or json=… instead")


def _encoded(value: Any) -> bytes:
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
