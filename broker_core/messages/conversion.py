"""Conversion of messages from one stored form to the other, for columns that `assembly.assemble` does not find stored.

The modules that convert need numpy and the AMQP library, and take as long to import as everything else. They are imported for
the first message that needs them: never for a queue that only Spark writes to. So an executor needs numpy only to read messages
of AMQP clients, or to encode messages for them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from .. import shipped
from ..errors import InvalidRequest, MalformedMessage

#: Why messages cannot be read, by their sequence numbers.
Malformed = dict[int, str]


def decoded(
    payload: pa.RecordBatch, names: list[str], queue: str, sequence: Any, malformed: Malformed | None = None
) -> dict[str, pa.Array]:
    """Decode columns out of encoded messages. `sequence` is the first row's number, or one per row.

    A message that cannot be decoded is null in all columns and noted in `malformed`; without `malformed`, MalformedMessage is
    raised for the first.
    """
    found: dict[str, pa.Array]
    found, refused = _encoding("decoding").readable(payload, names)
    for row, reason in sorted(refused.items()):
        if malformed is None:
            raise MalformedMessage.of(queue, _number(sequence, row), reason)
        malformed[_number(sequence, row)] = reason
    return found


def encoded(payload: pa.RecordBatch, sequence: Any, malformed: Malformed | None = None) -> pa.Array:
    """Encode columnar rows as bare messages. A row that AMQP cannot hold is null and noted in `malformed`.

    Without `malformed`, the errors of `broker_core.messages.encoding.bare_encoder` are raised.
    """
    return _encoded(_encoding("bare_encoder"), payload, 0, sequence, malformed)


def _encoded(bare: Any, payload: pa.RecordBatch, first: int, sequence: Any, malformed: Malformed | None) -> pa.Array:
    try:
        with shipped.own_errors():
            found: pa.Array = bare.bare_messages(payload)
            return found
    except InvalidRequest as error:
        if malformed is None:
            raise
        if payload.num_rows == 1:
            malformed[_number(sequence, first)] = str(error)
            return pa.nulls(1, pa.binary())
    half = payload.num_rows // 2  # few are wrong, if any: they are found by halves
    parts = ((payload.slice(0, half), first), (payload.slice(half), first + half))
    return pa.concat_arrays([_encoded(bare, part, at, sequence, malformed) for part, at in parts])


def cut(column: pa.Array) -> Any:
    """Cut complete encoded messages into the stored form: see `encoding.foreign_messages.cut`."""
    return _encoding("foreign_messages").cut(column)


def keys(column: pa.Array) -> Any:
    """Compute what complete encoded messages are recognised by: see `encoding.foreign_messages.keys`."""
    return _encoding("foreign_messages").keys(column)


def _number(sequence: Any, row: int) -> int:
    if isinstance(sequence, int):
        return sequence + row
    value = sequence[row]
    return int(value.as_py() if isinstance(value, pa.Scalar) else value)


def _encoding(name: str) -> Any:
    try:
        return shipped.module(f"messages.encoding.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "numpy":
            raise
    raise InvalidRequest(
        "these messages are encoded as AMQP clients send them (or their encoding is asked for), and that needs numpy, which this"
        " Python does not have: install numpy where Spark's executors run"
    )
