"""Generated columnar batches, as Spark sends them, and the AMQP messages that they must become."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.broker_core.amqp.messages import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.amqp.types import Symbol, Timestamp
from penstock.broker_core.messages.columns import MESSAGE_COLUMNS

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_lengths = st.sampled_from([0, 1, 2, 127, 128, 254, 255, 256, 257, 1000])
_texts = st.one_of(
    st.text(max_size=9),
    st.builds(lambda n: "x" * n, _lengths),
    st.builds(lambda n: "ü" * (n // 2) + "x" * (n % 2), _lengths),  # the length is counted in octets
    st.sampled_from(["", "€", "\0", "𝄞", "a\nb"]),
)
_symbols = st.one_of(st.text(st.characters(max_codepoint=127), max_size=9), st.builds(lambda n: "s" * n, _lengths))
_times = st.one_of(
    st.integers(-(10**15), 4 * 10**15).map(lambda us: EPOCH + timedelta(microseconds=us)),
    st.sampled_from([EPOCH, EPOCH - timedelta(microseconds=1), EPOCH + timedelta(microseconds=999)]),
)


def _maps(keys: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[str, str | None]]]:
    many = st.integers(120, 135).map(lambda n: [(f"k{i}", None) for i in range(n)])  # about 256 elements, about 255 octets
    some = st.dictionaries(keys, st.one_of(st.none(), _texts), max_size=4).map(lambda mapping: list(mapping.items()))
    return st.one_of(some, some, some, many)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "body": st.one_of(st.binary(max_size=20), st.builds(lambda n: b"b" * n, _lengths)),
    **dict.fromkeys(("messageId", "correlationId", "subject", "to", "replyTo", "groupId", "userId"), _texts),
    **dict.fromkeys(("contentType", "contentEncoding"), _symbols),
    **dict.fromkeys(("creationTime", "absoluteExpiryTime", "deliveryTime"), _times),
    "groupSequence": st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 255, 256, 2**32 - 1])),
    "properties": _maps(_texts),
    "annotations": _maps(_symbols.filter(lambda key: key != "x-opt-delivery-time")),
    "priority": st.integers(0, 255),
    "durable": st.booleans(),
    "ttl": st.integers(0, 2**32 - 1),
}


@st.composite
def batches(draw: st.DrawFn, columns: tuple[str, ...] = tuple(VALUES)) -> pa.RecordBatch:
    """A slice, from anywhere in a batch, with some of the columns; each is null in some rows, in none or in all."""
    rows = draw(st.integers(0, 6))
    names = ["body", *draw(st.lists(st.sampled_from([c for c in columns if c != "body"]), unique=True))]
    data: dict[str, pa.Array] = {}
    for name in MESSAGE_COLUMNS:
        if name in names:
            cell = (
                VALUES[name]
                if name == "body"
                else draw(st.sampled_from([VALUES[name], st.one_of(st.none(), VALUES[name]), st.none()]))
            )
            data[name] = pa.array(draw(st.lists(cell, min_size=rows, max_size=rows)), MESSAGE_COLUMNS[name])
    batch = pa.record_batch(data)
    start = draw(st.integers(0, rows))
    return batch.slice(start, draw(st.integers(0, rows - start)))


def milliseconds(time: datetime | None) -> int | None:
    return None if time is None else Timestamp((time - EPOCH) // timedelta(milliseconds=1))


def bare_message(row: dict[str, Any]) -> Message:
    """The bare message of a row, field by field."""
    properties = Properties(
        message_id=row.get("messageId"),
        user_id=None if row.get("userId") is None else row["userId"].encode(),
        to=row.get("to"),
        subject=row.get("subject"),
        reply_to=row.get("replyTo"),
        correlation_id=row.get("correlationId"),
        content_type=None if row.get("contentType") is None else Symbol(row["contentType"]),
        content_encoding=None if row.get("contentEncoding") is None else Symbol(row["contentEncoding"]),
        absolute_expiry_time=milliseconds(row.get("absoluteExpiryTime")),
        creation_time=milliseconds(row.get("creationTime")),
        group_id=row.get("groupId"),
        group_sequence=row.get("groupSequence"),
    )
    message = Message(properties=None if properties == Properties() else properties, data=[row["body"]])
    if row.get("properties") is not None:
        message.application_properties = dict(row["properties"])
    return message
