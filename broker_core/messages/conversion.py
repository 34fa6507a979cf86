"""Conversion of messages from one stored form to the other.

The modules that convert need numpy and the AMQP library, whose import takes as long as all others together. They are imported for
the first message that needs them. So an executor needs numpy only to read messages of AMQP clients, or to encode for them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from .. import executor_modules
from ..errors import InvalidRequest

#: Name for `decoded` of the bytes before the body; null if the message does not end with its body.
ENVELOPE = "envelope"
#: Reasons why messages cannot be read, by sequence number.
Malformed = dict[int, str]


def decoded(payload: pa.RecordBatch, names: list[str], sequence: Any, malformed: Malformed) -> dict[str, pa.Array]:
    """`sequence` is the first row's number, or one for each row. A message that cannot be decoded is null in all columns and
    added to `malformed`.
    """
    columns: dict[str, pa.Array]
    columns, refused = _encoding("decoding").readable(payload, names)
    malformed |= {_number(sequence, row): reason for row, reason in sorted(refused.items())}
    return columns


def encoded(payload: pa.RecordBatch, sequence: Any, malformed: Malformed) -> pa.Array:
    """A row that AMQP cannot hold is null and added to `malformed`."""
    return _encoded(_encoding("bare_encoder"), payload, 0, sequence, malformed)


def _encoded(bare: Any, payload: pa.RecordBatch, first: int, sequence: Any, malformed: Malformed) -> pa.Array:
    try:
        with executor_modules.own_errors():
            messages: pa.Array = bare.bare_messages(payload)
            return messages
    except InvalidRequest as error:
        if payload.num_rows == 1:
            malformed[_number(sequence, first)] = str(error)
            return pa.nulls(1, pa.binary())
    half = payload.num_rows // 2  # few rows are invalid: a search by halves finds them
    parts = ((payload.slice(0, half), first), (payload.slice(half), first + half))
    return pa.concat_arrays([_encoded(bare, part, at, sequence, malformed) for part, at in parts])


def foreign_messages() -> Any:
    return _encoding("foreign_messages")


def _number(sequence: Any, row: int) -> int:
    if isinstance(sequence, int):
        return sequence + row
    value = sequence[row]
    return int(value.as_py() if isinstance(value, pa.Scalar) else value)


def _encoding(name: str) -> Any:
    try:
        return executor_modules.module(f"messages.encoding.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "numpy":
            raise
    raise InvalidRequest(
        "these messages are encoded as AMQP clients send them (or their encoding is asked for). That needs numpy, which this"
        " Python does not have: install numpy where Spark's executors run"
    )
