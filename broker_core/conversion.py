"""From one stored form of messages to the other, where a column asks for it: what `assembly.assemble` does not find stored.

The modules that do it need numpy and the AMQP library, and take as long to import as everything else: they are imported when the
first message needs them, which in a queue that only Spark writes to is never. An executor therefore needs numpy only for messages
that AMQP clients sent, or for their encoding.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from broker_core import shipped
from broker_core.errors import InvalidRequest, MalformedMessage


def decoded(payload: pa.RecordBatch, names: list[str], queue: str, sequence: Any) -> dict[str, pa.Array]:
    """Columns out of encoded messages. `sequence` is the first row's number, or all of them.

    Raises MalformedMessage, naming the message, for the first that cannot be decoded.
    """
    decode = _encoding("decode")
    try:
        found: dict[str, pa.Array] = decode.columns(payload, names)
    except decode.Refused as error:
        raise MalformedMessage.of(queue, _number(sequence, error.row), error.reason) from None
    return found


def encoded(payload: pa.RecordBatch) -> pa.Array:
    """The bare messages of columnar rows. Raises what `broker_core.encoding.bare` raises."""
    bare = _encoding("bare")
    with shipped.own_errors():
        found: pa.Array = bare.bare_messages(payload)
        return found


def _number(sequence: Any, row: int) -> int:
    if isinstance(sequence, int):
        return sequence + row
    value = sequence[row]
    return int(value.as_py() if isinstance(value, pa.Scalar) else value)


def _encoding(name: str) -> Any:
    try:
        return shipped.module(f"encoding.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "numpy":
            raise
    raise InvalidRequest(
        "these messages are encoded as AMQP clients send them (or their encoding is asked for), and that needs numpy, which this"
        " Python does not have: install numpy where Spark's executors run"
    )
