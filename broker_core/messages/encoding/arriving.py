"""Arriving messages: from complete encoded messages to one batch in the stored form.

The common encodings (short descriptor, no described values) are followed through a table, one lookup for each section. The next
four bytes determine the next table and the width of the size. Other messages go through `messages.scan`, which alone refuses. A
property test compares both.

A message is refused if a reader could not decode it. Delivery annotations are checked and dropped: they are for one hop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...amqp.decoder import KINDS
from ...amqp.errors import RemoteProtocolError
from ...amqp.messages import (
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MAX_SECTIONS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SECTION_KINDS,
    SEQUENCE,
    VALUE,
    bare,
    decode_message,
    scan,
)
from ...errors import InvalidRequest, ResourceLimit
from .. import delivery_times
from ..columns import ENCODED_COLUMNS, MESSAGE_COLUMNS, mask_of, payload_schema
from ..payloads import Payload, as_batch, encoded_sizes
from . import annotation, headers
from .headers import NOTHING, HeaderFields
from .uniform_messages import UniformMessages, binary
from .validity import invalid
from .walk import SIZE, WIDTH

MAX_BATCH_BYTES = 2**31 - 1  # an Arrow binary column counts its bytes in 31 bits


class ArrivedMessages(NamedTuple):
    """Messages that arrived together."""

    payload: Payload  # well-formed messages in order
    mask: int  # of the columns that are not all null
    durable: bool  # any header is durable
    refused: list[tuple[int, Exception]]  # index and error (DecodeError, FieldError)
    sizes: int | npt.NDArray[np.int64]  # stored sizes of `payload`

    @property
    def batch(self) -> pa.RecordBatch:
        return as_batch(self.payload)

    @property
    def rows(self) -> int:
        return int(self.payload.num_rows)

    @property
    def numbers(self) -> list[int]:
        malformed = {number for number, _ in self.refused}
        return [number for number in range(self.rows + len(malformed)) if number not in malformed]


@dataclass(slots=True)
class _Parts:
    messages: list[bytes] = field(default_factory=list)
    headers: list[HeaderFields] = field(default_factory=list)
    annotations: dict[int, bytes] = field(default_factory=dict)
    footers: dict[int, bytes] = field(default_factory=dict)
    ttls: dict[int, bytes] = field(default_factory=dict)


def arrived(payloads: Sequence[bytes], now: int | None = None) -> ArrivedMessages:
    """Return complete encoded messages in the stored form.

    `now` is in milliseconds since 1970; None sets no limit to delivery times. Raises ResourceLimit beyond `MAX_BATCH_BYTES`.
    """
    if sum(map(len, payloads)) > MAX_BATCH_BYTES:
        raise ResourceLimit(f"{len(payloads)} messages of more than {MAX_BATCH_BYTES} bytes together: store fewer together")
    parts = _Parts()
    refused = _cut(payloads, parts)
    bad = {**invalid(parts.messages), **_untimely(parts.annotations, now)}
    if bad:
        refused, parts = _without(payloads, refused, bad)
    distinct = _distinct(parts.headers)
    payload, mask = _payload(parts, distinct)
    return ArrivedMessages(payload, mask, any(header.durable for header in distinct), refused, encoded_sizes(parts.messages))


def _untimely(sections: Mapping[int, bytes], now: int | None) -> dict[int, Exception]:
    bad: dict[int, Exception] = {}
    for row, section in sections.items():
        if delivery_times.PREFIX in section:
            try:
                delivery_times.check(delivery_times.read(section), now)
            except InvalidRequest as error:
                bad[row] = error
    return bad


def _without(
    payloads: Sequence[bytes], refused: list[tuple[int, Exception]], bad: Mapping[int, Exception]
) -> tuple[list[tuple[int, Exception]], _Parts]:
    before = {number for number, _ in refused}
    numbers = [number for number in range(len(payloads)) if number not in before]
    parts = _Parts()
    _cut([payloads[number] for row, number in enumerate(numbers) if row not in bad], parts)
    why = ((numbers[row], _whole(payloads[numbers[row]], error)) for row, error in bad.items())
    return sorted([*refused, *why], key=itemgetter(0)), parts


def _whole(payload: bytes, error: Exception) -> Exception:
    """Return the error with its offset in the whole message."""
    try:
        decode_message(payload)
    except RemoteProtocolError as whole_error:
        return whole_error
    return error


def _cut(payloads: Sequence[bytes], parts: _Parts) -> list[tuple[int, Exception]]:
    refused: list[tuple[int, Exception]] = []
    headers_known, start, footer = headers.known, _TABLES[MESSAGE_ANNOTATIONS], _TABLES[FOOTER]
    messages, ttls = parts.messages, parts.ttls
    keep_message, keep_header = messages.append, parts.headers.append
    before: bytes | None = None  # the ttl of the previous message
    # Of the last message that was one data section: its first bytes, the end of its size, and the start of the bare message.
    prefix, size_end, bare_at, its_header = b"", 0, 0, NOTHING
    for number, payload in enumerate(payloads):
        end = len(payload)
        if number == 1 and prefix and _keep_alike(payloads, parts, size_end, bare_at):  # the usual case
            break
        if prefix and payload.startswith(prefix) and int.from_bytes(payload[len(prefix) : size_end], "big") == end - size_end:
            keep_message(payload[bare_at:])
            keep_header(its_header)
            continue
        try:
            position, header, note, ttl = 0, NOTHING, None, None
            if payload[:4] == b"\x00\x53\x70\xc0":
                position = 5 + payload[4]
                cached = headers_known.get(payload[:position])
                if cached is None:
                    cached, ttl = headers.with_other_ttl(payload[:position], before)
                    before = ttl
                header = cached
            elif payload[:4] == b"\x00\x53\x70\xd0":
                position = 8 + int.from_bytes(payload[4:8], "big")
                header = headers_known[payload[:position]]
            if payload[position + 2] < PROPERTIES:
                position, note = _annotations(payload, position)
            table, begin = start, position
            if end > _SHORT:
                table, position = _counted(payload, position)
            while position < end:
                table, fixed, sized = table[payload[position : position + 4]]
                if sized == 1:
                    position += 5 + payload[position + 4]
                elif sized:
                    position += 8 + int.from_bytes(payload[position + 4 : position + 8], "big")
                else:
                    position += fixed
            if position == end and table is not footer:
                if note is not None:
                    parts.annotations[len(messages)] = note
                if ttl is not None:
                    ttls[len(messages)] = ttl
                elif note is None and (width := _DATA_WIDTHS.get(payload[begin : begin + 4])):
                    size_end = begin + 4 + width
                    is_single = int.from_bytes(payload[begin + 4 : size_end], "big") == end - size_end
                    prefix, bare_at, its_header = payload[: begin + 4] if is_single else b"", begin, header
                keep_message(payload[begin:])
                keep_header(header)
                continue
        except (KeyError, IndexError):
            pass
        try:
            _plain(payload, parts)
        except RemoteProtocolError as error:
            refused.append((number, error))
    return refused


def _counted(payload: bytes, position: int) -> tuple[_Table, int]:
    """KeyError for so many sections that `scan` has to count them."""
    table = _TABLES[MESSAGE_ANNOTATIONS]
    for _ in range(_MOST):
        if position >= len(payload):
            return table, position
        table, fixed, sized = table[payload[position : position + 4]]
        if sized == 1:
            position += 5 + payload[position + 4]
        else:
            position += 8 + int.from_bytes(payload[position + 4 : position + 8], "big") if sized else fixed
    raise KeyError


def _keep_alike(payloads: Sequence[bytes], parts: _Parts, octets: int, bare_at: int) -> bool:
    """Keep all messages if they have the length and first bytes of the first one."""
    if len({payload[:octets] for payload in payloads}) > 1 or len(set(map(len, payloads))) > 1:
        return False
    parts.messages += [payload[bare_at:] for payload in payloads[1:]]
    parts.headers *= len(payloads)
    return True


def _annotations(payload: bytes, position: int) -> tuple[int, bytes | None]:
    """Return the position of the bare message, and the message annotations. KeyError for sections to be checked."""
    note = None
    table = _TABLES[HEADER]
    while position < len(payload) and payload[position + 2] < PROPERTIES:
        begin = position
        table, _, sized = table[payload[position : position + 4]]
        position += 5 + payload[position + 4] if sized == 1 else 8 + int.from_bytes(payload[position + 4 : position + 8], "big")
        section = payload[begin:position]
        if section not in annotation.known:
            raise KeyError
        if table is _TABLES[MESSAGE_ANNOTATIONS]:
            note = section
    return position, note


def _plain(payload: bytes, parts: _Parts) -> None:
    header, note, foot = NOTHING, None, None
    budget = [annotation.AROUND]
    sections = scan(payload)
    for section in sections:
        octets = payload[section.start : section.end] if section.code in _AROUND else b""
        if section.code == HEADER:
            header = headers.read(octets)
        elif section.code == DELIVERY_ANNOTATIONS:
            annotation.check(octets, budget)
        elif section.code == MESSAGE_ANNOTATIONS:
            annotation.check(note := octets, budget)
        elif section.code == FOOTER:
            annotation.check(foot := octets, budget)
    row = len(parts.messages)
    if note is not None:
        parts.annotations[row] = note
    if foot is not None:
        parts.footers[row] = foot
    parts.messages.append(bare(payload, sections))
    parts.headers.append(header)


_AROUND = (HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, FOOTER)
_MOST = MAX_SECTIONS - 3  # sections that the table follows, after up to three; `scan` counts more
_SHORT = 4 * _MOST  # bytes of a message without more sections: each has at least four
_DATA_WIDTHS = {b"\x00\x53\x75\xa0": 1, b"\x00\x53\x75\xb0": 4}  # head of a data section → bytes of its size

# (0x00, 0x53, section, constructor) → the next section's table, fixed width, otherwise bytes of its size.
_Table = dict[bytes, tuple[Any, int, int]]


def _follows(code: int, last: int) -> bool:
    if code in (SEQUENCE, VALUE) and last in (DATA, SEQUENCE):
        return code == last == SEQUENCE
    return code > last or code == last == DATA


def _tables() -> dict[int, _Table]:
    tables: dict[int, _Table] = {code: {} for code in range(HEADER, FOOTER + 1)}
    for last, table in tables.items():
        for code in range(DELIVERY_ANNOTATIONS, FOOTER + 1):
            for constructor, kind in KINDS.items():
                if _follows(code, last) and SECTION_KINDS.get(code, kind) == kind:
                    sized = int(SIZE[constructor])
                    fixed = 0 if sized else 4 + int(WIDTH[constructor])
                    table[bytes((0x00, 0x53, code, constructor))] = tables[code], fixed, sized
    return tables


_TABLES = _tables()


def _distinct(fields: list[HeaderFields]) -> list[HeaderFields]:
    # Usually all are one object, which `count` compares by identity.
    if not fields or fields.count(fields[0]) == len(fields):
        return fields[:1]
    # Not a set: senders could choose colliding hashes.
    kinds = {(header.priority is None, header.durable, header.ttl is None): header for header in fields}
    return [fields[0], *kinds.values()]


def _payload(parts: _Parts, distinct: list[HeaderFields]) -> tuple[Payload, int]:
    rows = len(parts.messages)
    columns: dict[str, pa.Array] = {}
    if not (parts.ttls or parts.annotations or parts.footers) and len(distinct) == 1 and distinct[0].ttl is None:
        uniform = UniformMessages(parts.messages, distinct[0])
        return uniform, uniform.mask
    if parts.ttls:
        columns["ttl"] = _ttls(parts)
    for i, name in enumerate(("priority", "durable") if parts.ttls else ("priority", "durable", "ttl")):
        if any(header[i] is not None for header in distinct):
            is_uniform = len(distinct) == 1
            values = [distinct[0][i]] * rows if is_uniform else [header[i] for header in parts.headers]
            columns[name] = pa.array(values, MESSAGE_COLUMNS[name])
    columns["message"] = binary(parts.messages)
    for name, sections in (("encodedAnnotations", parts.annotations), ("footer", parts.footers)):
        if sections:
            columns[name] = pa.array([sections.get(row) for row in range(rows)], pa.binary())
    names = [name for name in ENCODED_COLUMNS if name in columns]
    mask = mask_of(names)
    return pa.RecordBatch.from_arrays([columns[name] for name in names], schema=payload_schema(mask)), mask


def _ttls(parts: _Parts) -> pa.Array:
    ttls = np.frombuffer(b"".join(parts.ttls.values()), ">u4").astype(np.int64)
    if len(ttls) == len(parts.headers):
        return pa.array(ttls)
    values = [header.ttl for header in parts.headers]
    for row, ttl in zip(parts.ttls, ttls.tolist(), strict=True):
        values[row] = ttl
    return pa.array(values, pa.int64())
