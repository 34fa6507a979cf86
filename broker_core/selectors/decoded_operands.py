"""Operands of a selector from odd encoded messages, by the reference decoder, one message at a time.

A malformed message matches nothing. Only the needed values are kept, because a message may have a hundred thousand others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from ..amqp.errors import RemoteProtocolError
from ..amqp.messages import APPLICATION_PROPERTIES, PROPERTIES, Message
from ..messages.encoding.arrays import Ints
from ..messages.encoding.fields import FIELDS
from ..messages.encoding.reference import decoded, user_text
from ..messages.encoding.texts import text
from .column_operands import HEADER, header
from .encoded_operands import Operands
from .names import TYPES, Identifier
from .operands import of_values


def decode_each(payload: pa.RecordBatch, names: Sequence[Identifier]) -> tuple[Operands, Ints]:
    """Return the operands in well-formed messages, and their rows."""
    codes = {APPLICATION_PROPERTIES if name.field is None else PROPERTIES for name in names if name.field not in HEADER}
    inside = [name for name in names if name.field not in HEADER]
    accepted: list[int] = []
    values: dict[Identifier, list[Any]] = {name: [] for name in inside}
    for row, octets in enumerate(payload.column("message")):
        try:
            message = decoded(octets.as_py(), codes)
        except RemoteProtocolError:
            continue
        accepted.append(row)
        for name in inside:
            values[name].append(_value(message, name))
    rows = np.array(accepted, np.int64)
    operands = {name: of_values(column) for name, column in values.items()}
    if len(inside) < len(names):
        well_formed = payload.take(pa.array(rows))
        operands |= {name: header(well_formed, name.field) for name in names if name.field is not None and name.field in HEADER}
    return operands, rows


def _value(message: Message, name: Identifier) -> Any:
    if name.field is None:
        return _scalar((message.application_properties or {}).get(name.name))
    value = getattr(message.properties, FIELDS[name.field].attribute, None)
    if value is None:
        return None
    if name.field == "userId":
        return user_text(value)
    return str(text(value)) if TYPES[name.field] == "string" else int(value)


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value < 2**63 else float(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, (str, UUID)):
        return str.__str__(value) if isinstance(value, str) else str(value)
    return ...  # JMS has no type for this value
