"""Encoded messages of every form for the tests of `decoding`: sections built by hand, so that each encoding of a value occurs."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from penstock.broker_core.amqp.encoder import encode
from penstock.broker_core.amqp.types import Symbol, UInt, ULong
from penstock.broker_core.messages.columns import BARE_COLUMNS
from penstock.broker_core.messages.conversion import ENVELOPE
from penstock.broker_core.messages.encoding import decoding, reference
from penstock.broker_core.messages.encoding.decoding import TYPES

from .amqp_values import arrays, compounds, integers, scalar, scalars, symbols, values

ALL_COLUMNS = (*sorted(BARE_COLUMNS), "annotations", ENVELOPE)
LONG = st.one_of(st.text(max_size=8), st.text(max_size=8), st.text(min_size=250, max_size=300))

#: Values of an application property: everything except lists, maps, arrays and described values.
message_ids = st.one_of(scalars["ulong"], scalars["uuid"], scalars["binary"], scalars["string"])
properties = st.tuples(
    *(st.none() | kind for kind in (message_ids, scalars["binary"], LONG, LONG, LONG, message_ids, symbols, symbols)),
    *(st.none() | kind for kind in (scalars["timestamp"], scalars["timestamp"], LONG, scalars["uint"], LONG)),
)
anything = st.one_of(values, scalar, arrays(scalar), compounds(scalar))


def wide(octets: bytes) -> bytes:
    """The value of these canonical octets in the longest encoding that its constructor has."""
    code, data = octets[0], octets[1:]
    if code in (0xA0, 0xA1, 0xA3):
        return bytes([code + 0x10]) + struct.pack(">I", data[0]) + data[1:]
    if code in (0xC0, 0xC1):
        return bytes([code + 0x10]) + struct.pack(">II", data[0] + 3, data[1]) + data[2:]
    if code == 0x45:
        return b"\xd0\0\0\0\4\0\0\0\0"
    if code in (0x41, 0x42):
        return bytes([0x56, code == 0x41])
    if code in (0x43, 0x52):
        return b"\x70" + (data or b"\0").rjust(4, b"\0")
    if code in (0x44, 0x53):
        return b"\x80" + (data or b"\0").rjust(8, b"\0")
    if code in (0x54, 0x55):
        width, big = (4, 0x71) if code == 0x54 else (8, 0x81)
        return bytes([big]) + int.from_bytes(data, "big", signed=True).to_bytes(width, "big", signed=True)
    return octets


def compound(code: int, items: list[bytes]) -> bytes:
    """A list (0xc0) or map (0xc1) of encoded elements, in its short encoding where it fits."""
    body = b"".join(items)
    if len(body) + 1 < 256 and len(items) < 256:
        return bytes((code, len(body) + 1, len(items))) + body
    return bytes([code + 0x10]) + struct.pack(">II", len(body) + 4, len(items)) + body


@st.composite
def encoded(draw: st.DrawFn, items: st.SearchStrategy[Any]) -> bytes:
    octets = encode(draw(items))
    return wide(octets) if draw(st.integers(0, 4)) == 0 else octets


@st.composite
def section(draw: st.DrawFn, code: int, value: st.SearchStrategy[bytes]) -> bytes:
    descriptor = draw(st.sampled_from([b"\x53" + bytes([code])] * 9 + [b"\x80" + code.to_bytes(8, "big")]))
    octets = draw(value)
    return b"\0" + descriptor + (wide(octets) if draw(st.integers(0, 9)) == 0 else octets)


def _pairs(keys: st.SearchStrategy[Any], items: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[bytes]:
    pair_lists = st.lists(st.tuples(encoded(keys), encoded(items)), max_size=most, unique_by=lambda pair: pair[0])
    return pair_lists.map(lambda pairs: compound(0xC1, [octets for pair in pairs for octets in pair]))


@st.composite
def _list(draw: st.DrawFn) -> bytes:
    fields = [encode(field) for field in draw(properties)]
    return compound(0xC0, [wide(f) if draw(st.integers(0, 4)) == 0 else f for f in fields[: draw(st.integers(0, 13))]])


datas = section(0x75, encoded(scalars["binary"]))
sequences = section(0x76, encoded(st.lists(anything, max_size=3)))
bodies = st.one_of(
    st.just(b""),
    datas,
    section(0x77, encoded(anything)),
    section(0x77, encoded(st.one_of(LONG, scalars["binary"], st.none()))),
    st.lists(st.one_of(datas), min_size=2, max_size=3).map(b"".join),
    st.lists(sequences, min_size=1, max_size=2).map(b"".join),
)
few_keys = st.sampled_from(["a", "b", "colour", "é"])
applications = section(0x74, _pairs(st.one_of(few_keys, LONG), scalar, 5))
bare = st.tuples(st.one_of(st.just(b""), section(0x73, _list())), st.one_of(st.just(b""), applications), bodies).map(b"".join)
annotation_keys = st.one_of(symbols, st.sampled_from(["1", "x-opt-a"]).map(Symbol), integers(ULong))
annotations = section(0x72, _pairs(annotation_keys, anything, 4))

#: Messages of one producer: the same fields and keys, other values.
tidy = st.builds(
    lambda identity, created, amount, text, data: (
        b"\0\x53\x73"
        + compound(
            0xC0, [encode(v) for v in (identity, None, "orders", None, None, None, Symbol("text/plain"), None, None, created)]
        )
        + b"\0\x53\x74"
        + compound(0xC1, [encode(v) for v in ("amount", amount, "name", text, "n", None)])
        + b"\0\x53\x75"
        + encode(data)
    ),
    scalars["string"],
    scalars["timestamp"],
    st.one_of(scalars["int"], scalars["double"], scalars["boolean"], integers(UInt)),
    st.text(max_size=5),
    scalars["binary"],
)


def payload(messages: list[bytes], sections: list[bytes | None] | None = None) -> pa.RecordBatch:
    arrays = {"message": pa.array(messages, pa.binary())}
    if sections is not None:
        arrays["encodedAnnotations"] = pa.array(sections, pa.binary())
    return pa.record_batch(arrays)


class Refused(Exception):
    """Row `row` cannot be decoded, with the `reason`."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row}: {reason}")
        self.row = row
        self.reason = reason


def columns(batch: pa.RecordBatch, names: Sequence[str]) -> dict[str, pa.Array]:
    """The decoded columns; raises Refused for the first row that cannot be decoded."""
    decoded, refused = decoding.readable(batch, names)
    for row in sorted(refused):
        raise Refused(row, refused[row])
    return decoded


def shape(name: str, value: Any) -> Any:
    """A Python value of `reference.row` as `to_pylist` of its column gives it."""
    array = pa.array([value], TYPES[name])
    return array.view(pa.int64())[0].as_py() if pa.types.is_timestamp(array.type) else array[0].as_py()


def listed(name: str, array: pa.Array) -> list[Any]:
    assert array.type == TYPES[name]
    array.validate(full=True)
    values: list[Any] = array.view(pa.int64()).to_pylist() if pa.types.is_timestamp(array.type) else array.to_pylist()
    return values


def expected(batch: pa.RecordBatch, row: int, names: tuple[str, ...]) -> dict[str, Any] | None:
    """Row as the plain decoder has it; None where it refuses."""
    sections = batch.column("encodedAnnotations") if "encodedAnnotations" in batch.schema.names else None
    try:
        decoded = reference.row(batch.column("message")[row].as_py(), None if sections is None else sections[row].as_py(), names)
    except reference.REFUSALS:
        return None
    return {name: shape(name, value) for name, value in decoded.items()}


def check(batch: pa.RecordBatch, names: tuple[str, ...] = ALL_COLUMNS) -> tuple[int, int]:
    """Vectors and plain decoder agree on every row; how many rows are odd, how many of those refused.

    A row that is not odd must be accepted by the plain decoder with the same values. With the odd rows, which are the plain
    decoder's, `columns` gives all of them, or names the first that is refused.
    """
    arrays, odd = decoding.vectors(batch, names)
    lists = {name: listed(name, array) for name, array in arrays.items()}
    refused = []
    wanted = []
    for row in range(batch.num_rows):
        want = expected(batch, row, names)
        wanted.append(want)
        if want is None:
            refused.append(row)
        if not odd[row]:
            assert want == {name: lists[name][row] for name in names}, (row, batch.slice(row, 1).to_pylist())
    assert odd[refused].all()
    if refused:
        with pytest.raises(Refused) as caught:
            columns(batch, names)
        assert caught.value.row == refused[0]
    else:
        merged = columns(batch, names)
        assert {name: listed(name, array) for name, array in merged.items()} == {n: [w[n] for w in wanted if w] for n in names}
    return int(odd.sum()), len(refused)
