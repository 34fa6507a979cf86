"""The operands of a selector from encoded messages, one at a time by the library's decoder: those that `encoded` calls odd.

A section that is asked for is decoded as a whole here, and refused as a whole: such a message is malformed, and matches nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from broker_core.amqp.errors import RemoteProtocolError
from broker_core.amqp.messages import APPLICATION_PROPERTIES, PROPERTIES
from broker_core.encoding.arrays import Ints
from broker_core.encoding.fields import FIELDS
from broker_core.encoding.plain import decoded, user_text
from broker_core.encoding.texts import text
from broker_core.selectors.columnar import HEADER, header
from broker_core.selectors.encoded import Found
from broker_core.selectors.names import TYPES
from broker_core.selectors.operands import of_values
from broker_core.selectors.syntax import Identifier


def one_by_one(payload: pa.RecordBatch, names: Sequence[Identifier]) -> tuple[Found, Ints]:
    """The operand of each identifier in the messages that are well-formed, and which rows those are."""
    codes = {APPLICATION_PROPERTIES if name.field is None else PROPERTIES for name in names if name.field not in HEADER}
    accepted, messages = [], []
    for row, octets in enumerate(payload.column("message").to_pylist()):
        try:
            messages.append(decoded(octets, codes))
        except RemoteProtocolError:
            continue
        accepted.append(row)
    rows = np.array(accepted, np.int64)
    kept = payload.take(pa.array(rows))
    found: Found = {}
    for name in names:
        if name.field in HEADER:
            found[name] = header(kept, name.field)
        elif name.field is None:
            found[name] = of_values([_scalar((message.application_properties or {}).get(name.name)) for message in messages])
        else:
            found[name] = of_values([_of_field(message.properties, name.field) for message in messages])
    return found, rows


def _of_field(properties: Any, field: str) -> Any:
    value = None if properties is None else getattr(properties, FIELDS[field].attribute)
    if value is None:
        return None
    if field == "userId":
        return user_text(value)
    return str(text(value)) if TYPES[field] == "string" else int(value)


def _scalar(value: Any) -> Any:
    """A value of an application property as one of `of_values`' types."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value < 2**63 else float(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, (str, UUID)):
        return str.__str__(value) if isinstance(value, str) else str(value)
    return value
