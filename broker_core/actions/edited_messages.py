"""Messages that people write: new ones, and edited copies."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote

import pyarrow as pa

from .. import errors
from ..amqp import EncodeError
from ..amqp.messages import MAX_SECTIONS_READ, Message, decode_message
from ..amqp.performatives import Properties
from ..amqp.types import Long
from ..messages import batch_checks, delivery_times, payloads
from ..messages.annotations import CHANGED_PROPERTY, DELIVERY_DELAY, DELIVERY_TIME
from ..messages.columns import INTERNAL_COLUMNS, MESSAGE_COLUMNS
from ..messages.encoding import reference, validity
from ..quantities import MAX_MILLISECONDS
from ..service.broker import BrokerService
from .browses import Browses
from .fields import About, Request

#: Columns that a copy keeps.
_KEPT = ["priority", "durable", "ttl", "deliveryTime", "annotations", "encodedAnnotations", "footer"]
_TEXTS = ("message_id", "correlation_id", "subject", "reply_to", "content_type", "group_id")

# Content of messages may be confidential.
OptionalText = Annotated[str | None, About("null: none, or unchanged in a copy", is_confidential=True)]


@dataclass(frozen=True, kw_only=True)
class Content(Request):
    """In an edited copy, null means unchanged."""

    body: Annotated[str | None, About("body as text", is_confidential=True)] = None
    body_base64: Annotated[str | None, About("body as bytes in base64, instead of `body`", is_confidential=True)] = None
    message_id: OptionalText = None
    correlation_id: OptionalText = None
    subject: OptionalText = None
    reply_to: OptionalText = None
    content_type: OptionalText = None
    group_id: OptionalText = None
    properties: Annotated[
        dict[str, Any] | None, About("application properties: texts, numbers and booleans", is_confidential=True)
    ] = None
    priority: Annotated[int | None, About("0 to 9", least=0)] = None
    ttl: Annotated[int | None, About("time to live in milliseconds", least=1)] = None
    delay: Annotated[int | None, About("milliseconds before the first delivery", least=0)] = None


def new_message(name: str, content: Content, now: int) -> pa.RecordBatch:
    """`name`: of the action, for errors. `now`: milliseconds since 1970."""
    return _edited(name, Message(data=[b""]), {"durable": True}, content, now)


def edited_copy(name: str, browses: Browses, queue: str, sequence: int, content: Content, now: int) -> pa.RecordBatch:
    """Other fields than those of `content` keep their value and type. A time to live begins again.

    Raises MessageNotFound if the queue no longer has the message.
    """
    bare = _row(browses, queue, sequence, ["message"], stored=False)
    others = _row(browses, queue, sequence, _KEPT, stored=True)
    message = decode_message(bare["message"] or b"", most=MAX_SECTIONS_READ)
    return _edited(name, message, {key: value for key, value in others.items() if value is not None}, content, now)


def _row(browses: Browses, queue: str, sequence: int, columns: list[str], *, stored: bool) -> dict[str, Any]:
    for batch in browses.unsettled(queue, sequence, columns, stored=stored):
        for row in batch.to_pylist():
            return dict(row)
    raise errors.MessageNotFound(f"message {sequence} of queue {queue!r} has ended already: nothing was changed. Look again")


def _edited(name: str, message: Message, columns: dict[str, Any], content: Content, now: int) -> pa.RecordBatch:
    body = _body(name, content)
    if body is not None:
        is_text = isinstance(message.value, str) and content.body is not None
        message.value, message.has_value = (content.body, True) if is_text else (None, False)
        message.data, message.sequences = ([] if is_text else [body]), []
    texts = {key: value for key in _TEXTS if (value := getattr(content, key)) is not None}
    if texts:
        message.properties = message.properties or Properties()
        for key, value in texts.items():
            setattr(message.properties, key, value)
    if content.properties is not None:
        before = dict(message.application_properties or {})
        message.application_properties = after = _properties(name, content.properties, message)
        edited = {CHANGED_PROPERTY + quote(key) for key in {*before, *after} if (key, before.get(key)) not in after.items()}
        _remove_annotations(columns, edited)  # a consumer's changes would hide the new values
    if content.priority is not None:
        columns["priority"] = content.priority
    if content.ttl is not None:
        columns["ttl"] = content.ttl
    if content.delay is not None:
        if content.delay >= MAX_MILLISECONDS:
            raise errors.InvalidRequest(f"{name}: field 'delay' must be below {MAX_MILLISECONDS:,} ms (ten years)")
        columns["deliveryTime"] = (now + content.delay) * 1000
        _remove_annotations(columns, {DELIVERY_TIME, DELIVERY_DELAY})
    try:
        columns["message"] = message.encode()
        arrays = {key: pa.array([value], MESSAGE_COLUMNS[key]) for key, value in columns.items()}
    except (EncodeError, pa.ArrowException, UnicodeEncodeError, OverflowError) as error:
        raise errors.InvalidRequest(f"{name}: the message cannot be encoded: {error}") from error
    sent = pa.RecordBatch.from_pydict({key: array for key, array in arrays.items() if key not in INTERNAL_COLUMNS})
    checked = batch_checks.validate(sent, now=now)
    validity.check_column(checked.column("message"))
    for key in arrays.keys() & INTERNAL_COLUMNS:
        checked = checked.append_column(key, arrays[key])
    return checked


def _remove_annotations(columns: dict[str, Any], names: Collection[str]) -> None:
    if "annotations" in columns:
        columns["annotations"] = [(key, value) for key, value in columns["annotations"] if key not in names]
    section = columns.get("encodedAnnotations", b"")
    if not any(key.encode() in section for key in names):
        return
    others = {key: value for key, value in delivery_times.read(columns.pop("encodedAnnotations")).items() if key not in names}
    if others:
        columns["encodedAnnotations"] = Message(message_annotations=others).encode()


def _body(name: str, content: Content) -> bytes | None:
    if content.body is not None and content.body_base64 is not None:
        raise errors.InvalidRequest(f"{name}: fields 'body' and 'bodyBase64' exclude each other")
    if content.body_base64 is None:
        return None if content.body is None else _utf8(name, content.body)
    try:
        return base64.b64decode(content.body_base64, validate=True)
    except (binascii.Error, ValueError) as error:
        raise errors.InvalidRequest(f"{name}: field 'bodyBase64' is not base64: {error}") from error


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise errors.InvalidRequest(f"{name}: field 'body' is not a text: {error}. Send 'bodyBase64' instead") from error


def _properties(name: str, wanted: dict[str, Any], message: Message) -> dict[str, Any]:
    """A value whose text did not change keeps its type, which JSON may not have."""
    before = dict(message.application_properties or {})
    bare = Message(application_properties=before, data=[b""]).encode()
    texts = dict(reference.row(bare, None, ["properties"])["properties"] or ()) if before else {}
    return {
        key: before[key] if key in texts and texts[key] == value else _typed(name, key, value) for key, value in wanted.items()
    }


def _typed(name: str, key: str, value: Any) -> Any:
    if isinstance(value, (dict, list)):
        raise errors.InvalidRequest(f"{name}: property {key!r:.80} must be a text, a number, a boolean or null")
    if type(value) is not int:
        return value
    if not -(2**63) <= value < 2**63:
        raise errors.InvalidRequest(f"{name}: property {key!r:.80} has more than 64 bits: send it as a text")
    return Long(value)


def stored(service: BrokerService, batch: pa.RecordBatch) -> tuple[payloads.Stored, int]:
    """Return the payload of one message and its size. Raises ResourceLimit."""
    size = payloads.stored_sizes(batch)
    assert isinstance(size, int)
    if size > service.settings.max_message_bytes:
        raise errors.ResourceLimit(f"a message has at most {service.settings.max_message_bytes} bytes, this one has {size}")
    payload = payloads.store(batch)
    service.reserve_space(payload.nbytes)
    return payload, size
