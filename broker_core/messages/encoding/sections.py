"""Bare messages that somebody else has encoded, in a column: are they valid?

Sections and what is inside are looked at in lock step (`validity.unsure`). What the vectors leave has the plain scan and the
decoder, which alone refuse: so what comes in over Flight and what comes in over AMQP (`arriving`) follow the same rule.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...amqp.errors import DecodeError, RemoteProtocolError
from ...amqp.messages import DELIVERY_ANNOTATIONS, FOOTER, HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, VALUE, scan
from ...errors import InvalidRequest
from . import validity


def check(messages: pa.Array) -> None:
    """Raise InvalidRequest for the first of a binary column (without nulls) that is no bare AMQP message, naming its row.

    An empty one, which has no section at all, is one.
    """
    for row in np.flatnonzero(validity.unsure(messages)).tolist():
        why = _refused(messages[row].as_py())
        if why:
            raise InvalidRequest(f"column 'message' in row {row}: {why}")


def _refused(message: bytes) -> str | None:
    try:
        sections = scan(message)
    except DecodeError as error:
        return f"not a bare AMQP message: {error.description}"
    for section in sections:
        if not PROPERTIES <= section.code <= VALUE:
            return _WAYS_OUT[section.code]
    try:
        validity.check(message)
    except RemoteProtocolError as error:
        return f"not a valid AMQP message: {error.description}"
    return None


_WHOLE = "is no part of a bare message: leave it out, or let an AMQP client send the whole message"
_WAYS_OUT = {
    HEADER: "a header is no part of a bare message: leave it out, and send what it says in the columns durable, priority and ttl",
    DELIVERY_ANNOTATIONS: f"a section of delivery annotations {_WHOLE}",
    MESSAGE_ANNOTATIONS: f"a section of message annotations {_WHOLE}; their texts can go beside it, in the column annotations",
    FOOTER: f"a footer {_WHOLE}",
}
