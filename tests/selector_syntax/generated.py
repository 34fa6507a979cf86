"""Generated selectors, and messages in both forms with the value of each identifier."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.amqp.types import (
    Byte,
    Char,
    Decimal32,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from penstock.broker_core.messages.columns import MESSAGE_COLUMNS
from penstock.broker_core.messages.encoding.texts import text
from penstock.broker_core.selectors.names import Identifier

from .reference import Loose

PROPERTIES = ("a", "b", "größe", "order-id")
FIELDS = ("amqp.message_id", "JMSCorrelationID", "JMSType", "amqp.durable", "JMSDeliveryMode", "JMSPriority", "JMSTimestamp")
FIELDS += ("amqp.absolute_expiry_time", "JMSXGroupID", "JMSXGroupSeq", "JMSXUserID", "amqp.content_type", "amqp.ttl")

WORDS = ["", "red", "re", "a%b", "x_y", "ü", "true", "FALSE", "5", "-5", "5.0", "1e1", ".5", "5.", "007", "12345678901234567890"]
WORDS += [
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "١",
    "+5",
    " 5",
    "--5",
    "e",
    "a\nb",
    "7\0",
    "Fal\u017fe",
]
words = st.one_of(st.sampled_from(WORDS), st.text("red%_5.-e", max_size=5))
ints = st.sampled_from([0, 1, 4, 5, -5, 10, 7, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)])
doubles = st.one_of(st.sampled_from([0.0, -0.0, 0.5, 5.0, 1e300, float("inf"), float("nan"), 2.0**53]), st.floats())

_narrow = st.sampled_from([0, 1, 4, 5, 10, 127])
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    words,
    ints.map(Long),
    doubles,
    words,
    *(_narrow.map(kind) for kind in (Int, Short, Byte, UByte, UShort, UInt, ULong, Timestamp)),
    st.sampled_from([ULong(2**63), ULong(2**64 - 1)]),
    st.sampled_from([0.0, 5.0, 1.1]).map(Float),
    st.sampled_from(["red", "5"]).map(Symbol),
    st.just(uuid.UUID(int=5)),
    st.just(b"red"),
    st.just(Decimal32(b"\0\0\0\5")),
    st.just(Char("x")),
)
_ids = st.one_of(st.none(), words, st.just(ULong(5)), st.just(uuid.UUID(int=5)), st.just(b"red"))
_times = st.one_of(st.none(), st.sampled_from([0, 4, 5, 10]).map(Timestamp))
_optional_words = st.none() | words
ASCII = st.none() | st.sampled_from(["red", "5", "text/plain"]).map(Symbol)


def worth(value: Any) -> Any:
    """A value of an application property as the reference has it."""
    if value is None or isinstance(value, (bool, bytes)):
        return value
    if isinstance(value, int):
        return int(value) if value < 2**63 else float(value)
    if isinstance(value, float):
        return float(value)
    return str(value)


def identifiers() -> dict[str, Identifier]:
    """Identifiers as the tests write them, and as the parser returns them."""
    from penstock.broker_core.selectors import parse

    written = {f'"{name}"' if "-" in name else name for name in PROPERTIES} | set(FIELDS)
    return {name: parse(f"{name} IS NULL").identifiers[0] for name in sorted(written)}


NAMES = identifiers()


def _known(header: dict[str, Any], fields: dict[str, Any], properties: dict[str, Any]) -> dict[Identifier, Any]:
    durable = bool(header["durable"])
    values = {
        "priority": 4 if header["priority"] is None else header["priority"],
        "durable": durable,
        "deliveryMode": "PERSISTENT" if durable else "NON_PERSISTENT",
        "ttl": header["ttl"],
        **fields,
    }
    return {name: properties.get(name.name) if name.field is None else values[name.field] for name in NAMES.values()}


HEADERS = st.fixed_dictionaries(
    {
        "priority": st.none() | st.sampled_from([0, 4, 5, 9]),
        "durable": st.none() | st.booleans(),
        "ttl": st.none() | st.sampled_from([0, 5]),
    }
)
_ENCODED = st.fixed_dictionaries(
    {
        "messageId": _ids,
        "correlationId": _ids,
        "subject": _optional_words,
        "groupId": _optional_words,
        "userId": st.none() | st.sampled_from([b"red", b"\xff", "ü".encode()]),
        "contentType": ASCII,
        "creationTime": _times,
        "absoluteExpiryTime": _times,
        "groupSequence": st.none() | st.sampled_from([0, 5, 300]).map(UInt),
    }
)
_ATTRIBUTES = {
    "messageId": "message_id",
    "correlationId": "correlation_id",
    "groupId": "group_id",
    "userId": "user_id",
    "contentType": "content_type",
    "creationTime": "creation_time",
    "absoluteExpiryTime": "absolute_expiry_time",
    "groupSequence": "group_sequence",
}


@st.composite
def encoded_messages(draw: st.DrawFn) -> tuple[bytes, dict[str, Any], dict[Identifier, Any]]:
    """The bytes of a bare message, its header, and the value of each identifier."""
    fields = draw(_ENCODED)
    properties = draw(st.none() | st.dictionaries(st.sampled_from(PROPERTIES), VALUES))
    header = draw(HEADERS)
    sent = Message(
        properties=None
        if all(v is None for v in fields.values())
        else Properties(**{_ATTRIBUTES.get(k, k): v for k, v in fields.items()}),
        application_properties=properties,
        data=[b"body"],
    )
    shown: dict[str, Any] = {}
    for name, value in fields.items():
        if name in ("creationTime", "absoluteExpiryTime", "groupSequence"):
            shown[name] = None if value is None else int(value)
        elif name == "userId" and value != b"\xff":
            shown[name] = None if value is None else value.decode()
        else:
            shown[name] = text(value)
    return sent.encode(), header, _known(header, shown, {k: worth(v) for k, v in (properties or {}).items()})


def encoded_payload(rows: list[tuple[bytes, dict[str, Any], Any]]) -> pa.RecordBatch:
    arrays = {"message": pa.array([row[0] for row in rows], pa.binary())}
    for name in ("priority", "durable", "ttl"):
        values = [row[1][name] for row in rows]
        if any(value is not None for value in values):
            arrays[name] = pa.array(values, MESSAGE_COLUMNS[name])
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


_COLUMNAR = st.fixed_dictionaries(
    {
        **dict.fromkeys(("messageId", "correlationId", "subject", "groupId", "userId", "contentType"), _optional_words),
        **dict.fromkeys(("creationTime", "absoluteExpiryTime"), st.none() | st.sampled_from([0, 4, 5, 10])),
        "groupSequence": st.none() | st.sampled_from([0, 5]),
    }
)


@st.composite
def columnar_payloads(draw: st.DrawFn) -> tuple[pa.RecordBatch, list[dict[Identifier, Any]]]:
    """A slice from anywhere in a batch, and the value of each identifier in its rows."""
    same = draw(st.booleans())  # one DataFrame's maps: all with the same keys
    maps = st.fixed_dictionaries(dict.fromkeys(PROPERTIES, _optional_words)) if same else _maps
    rows = draw(st.lists(st.tuples(_COLUMNAR, HEADERS, maps), min_size=1, max_size=6))
    columns = {**{name: [] for name in ("body", *_COLUMNAR_NAMES)}, "properties": []}
    known = []
    for fields, header, properties in rows:
        for name, cell in {**fields, **header, "body": b"", "properties": properties}.items():
            if name in ("creationTime", "absoluteExpiryTime") and cell is not None:
                cell = cell * 1000 + 7  # microseconds
            columns[name].append(list(cell.items()) if isinstance(cell, dict) else cell)
        loose = {k: None if v is None else Loose(v) for k, v in (properties or {}).items()}
        known.append(_known(header, fields, loose))
    names = [name for name, values in columns.items() if any(value is not None for value in values)]
    batch = pa.RecordBatch.from_arrays([pa.array(columns[n], MESSAGE_COLUMNS[n]) for n in names], names)
    first = draw(st.integers(0, len(rows) - 1))
    return batch.slice(first), known[first:]


_maps = st.none() | st.dictionaries(st.sampled_from(PROPERTIES), _optional_words)
_COLUMNAR_NAMES = (
    "messageId",
    "correlationId",
    "subject",
    "groupId",
    "userId",
    "contentType",
    "creationTime",
    "absoluteExpiryTime",
)
_COLUMNAR_NAMES += ("groupSequence", "priority", "durable", "ttl")

# --- Selectors -------------------------------------------------------------------------------------------------------------

_any = st.sampled_from([name for name, identifier in NAMES.items() if identifier.field is None])
_strings = _any | st.sampled_from([name for name, identifier in NAMES.items() if identifier.type == "string"])
_numeric = _any | st.sampled_from([name for name, identifier in NAMES.items() if identifier.type == "number"])
_number_literals = st.sampled_from(
    ["0", "1", "4", "5", "-5", "10", "0x0A", "5L", "5.0", "1.1f", "1e1", ".5", "9223372036854775807"]
)
_number_literals |= st.sampled_from(["-9223372036854775808", "9007199254740993", "9007199254740992.0", "4611686018427387904"])


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_string_literals = words.map(quoted)
_sum = st.sampled_from("+-*/")
NUMBERS = st.recursive(
    _numeric | _number_literals,
    lambda inside: st.tuples(inside, _sum, inside).map(lambda x: f"({x[0]} {x[1]} {x[2]})") | inside.map(lambda x: f"(- {x})"),
    max_leaves=4,
)
_not = st.sampled_from(["", "NOT "])
_equal = st.sampled_from(["=", "<>"])
_everything = st.sampled_from(list(NAMES))
_lists = st.lists(_string_literals, min_size=1, max_size=3).map(", ".join)
_escapes = st.sampled_from(["", *(f" ESCAPE '{character}'" for character in "%_!e")])
_COMPARISONS = st.one_of(
    st.tuples(NUMBERS, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), NUMBERS).map(" ".join),
    st.tuples(_strings, _equal, _string_literals | _strings).map(" ".join),
    st.tuples(_everything, _equal, st.sampled_from(["TRUE", "false", "'5'", "5", "a"])).map(" ".join),
    st.tuples(NUMBERS, _not, NUMBERS, NUMBERS).map(lambda x: f"{x[0]} {x[1]}BETWEEN {x[2]} AND {x[3]}"),
    st.tuples(_strings, _not, _lists).map(lambda x: f"{x[0]} {x[1]}IN ({x[2]})"),
    st.tuples(_strings, _not, _string_literals, _escapes).map(lambda x: f"{x[0]} {x[1]}LIKE {x[2]}{x[3]}"),
    st.tuples(_everything, _not).map(lambda x: f"{x[0]} is {x[1]}null"),
    st.sampled_from(["a", "b", "amqp.durable", "TRUE", "FALSE"]),
)
SELECTORS = st.recursive(
    _COMPARISONS,
    lambda inside: st.one_of(
        inside.map(lambda x: f"NOT ({x})"),
        st.tuples(inside, st.sampled_from(["AND", "or"]), inside).map(lambda x: f"({x[0]}) {x[1]} ({x[2]})"),
        st.tuples(inside, _equal, inside).map(lambda x: f"({x[0]}) {x[1]} ({x[2]})"),
    ),
    max_leaves=4,
)
