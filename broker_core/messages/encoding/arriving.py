"""Arriving messages: from complete encoded messages to one batch in the stored form.

A message is cut at its sections, and the bare message goes on octet for octet. The common encodings (short descriptor, no
described values) are followed through a table, one look-up a section: the next four octets name what may come next and how its
size is written. A message that the table does not cover, or that does not end where its sections end, goes through the plain
`messages.scan`, which alone decides what is refused. So the fast path can only accept, and only what its table covers; a property
test compares the two.

A message is refused if some reader could not decode it: sections out of order or beyond the message, a header field of a wrong
type, annotations or a footer that cannot be decoded, a bare message that is not valid inside (`validity`). Delivery annotations
are for one hop: checked, and dropped. A message without a body is let through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...amqp.decoder import KINDS
from ...amqp.errors import RemoteProtocolError
from ...amqp.messages import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MAX_SECTIONS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    bare,
    decode_message,
    scan,
)
from ...errors import InvalidRequest, ResourceLimit
from .. import delivery_times
from ..columns import ENCODED_COLUMNS, MESSAGE_COLUMNS, mask_of, payload_schema
from ..payloads import Payload, as_batch, stored_sizes
from . import annotation, headers
from .headers import NOTHING, HeaderFields
from .uniform_messages import UniformMessages, binary
from .validity import invalid

MAX_BATCH_BYTES = 2**31 - 1  # an Arrow binary column counts its octets in 31 bits


class ArrivedMessages(NamedTuple):
    """Result of a sequence of messages that arrived.

    `payload`: the well-formed messages in order, in the stored form; `mask` names its columns, without those that are null in
    all rows. `batch` is the same as a record batch, `rows` their number. `durable`: True if any of their headers says so.
    `refused`: index and error (DecodeError, FieldError) of each of the others. `sizes`: as `payloads.stored_sizes` returns them.
    """

    payload: Payload
    mask: int
    durable: bool
    refused: list[tuple[int, Exception]]
    sizes: int | npt.NDArray[np.int64]

    @property
    def batch(self) -> pa.RecordBatch:
        """The messages as a record batch."""
        return as_batch(self.payload)

    @property
    def rows(self) -> int:
        """Return the number of messages."""
        return int(self.payload.num_rows)

    @property
    def numbers(self) -> list[int]:
        """Return the indexes of the messages among all that arrived, the refused ones included."""
        malformed = {number for number, _ in self.refused}
        return [number for number in range(self.rows + len(malformed)) if number not in malformed]


class _Parts:
    """The columns of a batch in the making. Few messages have annotations, fewer a footer: those are kept by row. So are the
    octets of each ttl that `said` leaves out; it says None there."""

    __slots__ = ("annotations", "footers", "messages", "said", "ttls")

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.said: list[HeaderFields] = []
        self.annotations: dict[int, bytes] = {}
        self.footers: dict[int, bytes] = {}
        self.ttls: dict[int, bytes] = {}


def arrived(payloads: Sequence[bytes], now: int | None = None) -> ArrivedMessages:
    """Return complete encoded messages as a batch in the stored form.

    `now`: milliseconds since 1970; None sets no limit to the time at which a message is to be delivered. Raises ResourceLimit if
    together they exceed `MAX_BATCH_BYTES`.
    """
    if sum(map(len, payloads)) > MAX_BATCH_BYTES:
        raise ResourceLimit(f"{len(payloads)} messages of more than {MAX_BATCH_BYTES} bytes together: store fewer at once")
    parts = _Parts()
    refused = _cut(payloads, parts)
    bad = {**invalid(parts.messages), **_untimely(parts.annotations, now)}
    if bad:
        refused, parts = _without(payloads, refused, bad)
    said = _distinct(parts.said)
    payload, mask = _payload(parts, said)
    return ArrivedMessages(payload, mask, any(one.durable for one in said), refused, stored_sizes(payload))


def _untimely(sections: Mapping[int, bytes], now: int | None) -> dict[int, Exception]:
    """Return the errors, by row, of messages whose annotations do not say when to deliver them."""
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
    """The parts of what is left without the messages that are invalid inside (`bad`, by row); refused are those, too."""
    before = {number for number, _ in refused}
    numbers = [number for number in range(len(payloads)) if number not in before]
    parts = _Parts()
    _cut([payloads[number] for row, number in enumerate(numbers) if row not in bad], parts)
    why = ((numbers[row], _whole(payloads[numbers[row]], error)) for row, error in bad.items())
    return sorted([*refused, *why], key=itemgetter(0)), parts


def _whole(payload: bytes, error: Exception) -> Exception:
    """The error of a message that is invalid inside, with its offset in the whole message: as its sender knows it."""
    try:
        decode_message(payload)
    except RemoteProtocolError as found:
        return found
    return error


# --- Cutting ---------------------------------------------------------------------------------------------------------------


def _cut(payloads: Sequence[bytes], parts: _Parts) -> list[tuple[int, Exception]]:
    """The hot loop. It returns which payloads were refused, and why."""
    refused: list[tuple[int, Exception]] = []
    headers_known, but_ttl, start, footer = headers.known, headers.but_ttl, _TABLES[MESSAGE_ANNOTATIONS], _TABLES[FOOTER]
    messages, ttls = parts.messages, parts.ttls
    keep, say = messages.append, parts.said.append
    before = None  # the ttl that was read last
    alike, whole, bare_at, its = b"", 0, 0, NOTHING  # of the last message that was only a section of data
    for number, payload in enumerate(payloads):
        end = len(payload)
        if number == 1 and alike and _keep_alike(payloads, parts, whole, bare_at):  # nearly always, where a program sends many
            break
        if alike and payload.startswith(alike) and int.from_bytes(payload[len(alike) : whole], "big") == end - whole:
            keep(payload[bare_at:])
            say(its)
            continue
        try:
            position, said, note, ttl = 0, NOTHING, None, None
            if payload[:4] == b"\x00\x53\x70\xc0":
                position = 5 + payload[4]
                found = headers_known.get(payload[:position])
                if found is None:
                    at, around = but_ttl[position]
                    found = around[payload[:at] + payload[at + 4 : position]]
                    ttl = payload[at : at + 4]
                    if ttl == before:
                        headers.learn(payload[:position], found, ttl)
                    before = ttl
                said = found
            elif payload[:4] == b"\x00\x53\x70\xd0":
                position = 8 + int.from_bytes(payload[4:8], "big")
                said = headers_known[payload[:position]]
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
                    whole = begin + 4 + width
                    only = int.from_bytes(payload[begin + 4 : whole], "big") == end - whole
                    alike, bare_at, its = payload[: begin + 4] if only else b"", begin, said
                keep(payload[begin:])
                say(said)
                continue
        except (KeyError, IndexError):
            pass
        try:
            _plain(payload, parts)
        except RemoteProtocolError as error:
            refused.append((number, error))
    return refused


def _counted(payload: bytes, position: int) -> tuple[_Table, int]:
    """Follow the bare message of a long payload. KeyError where it has so many sections that the plain way has to count them."""
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
    """Keep all messages behind the first as it was kept, if they have its length and its first octets. False if they have not."""
    if len({each[:octets] for each in payloads}) > 1 or len(set(map(len, payloads))) > 1:
        return False
    parts.messages += [each[bare_at:] for each in payloads[1:]]
    parts.said *= len(payloads)
    return True


def _annotations(payload: bytes, position: int) -> tuple[int, bytes | None]:
    """Find where the bare message begins, and the message annotations. KeyError where the plain way has to look at any."""
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
    """One message, whatever it looks like. Raises DecodeError, FieldError."""
    said, note, foot = NOTHING, None, None
    budget = [annotation.AROUND]
    sections = scan(payload)
    for section in sections:
        octets = payload[section.start : section.end] if section.code in _AROUND else b""
        if section.code == HEADER:
            said = headers.read(octets)
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
    parts.said.append(said)


_AROUND = (HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, FOOTER)
_MOST = MAX_SECTIONS - 3  # that the table follows, behind the three that may stand before; `scan` counts what is more
_SHORT = 4 * _MOST  # octets of a message that has no more: a section has at least four
_DATA_WIDTHS = {b"\x00\x53\x75\xa0": 1, b"\x00\x53\x75\xb0": 4}  # the head of a section of data: octets of its size

# --- The table -------------------------------------------------------------------------------------------------------------

# (0x00, 0x53, section, constructor) → the table for what may follow, octets if the width is fixed, octets of the size if not.
_Table = dict[bytes, tuple[Any, int, int]]

_KINDS = {PROPERTIES: "list", DATA: "binary", SEQUENCE: "list"}
_KINDS |= dict.fromkeys((DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES, FOOTER), "map")
_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}


def _follows(code: int, last: int) -> bool:
    """May section `code` follow section `last` (3.2)?"""
    if code in (SEQUENCE, VALUE) and last in (DATA, SEQUENCE):
        return code == last == SEQUENCE
    return code > last or code == last == DATA


def _tables() -> dict[int, _Table]:
    tables: dict[int, _Table] = {code: {} for code in range(HEADER, FOOTER + 1)}
    for last, table in tables.items():
        for code in range(DELIVERY_ANNOTATIONS, FOOTER + 1):
            for constructor, kind in KINDS.items():
                if _follows(code, last) and _KINDS.get(code, kind) == kind:
                    width = constructor >> 4
                    sized = 0 if width < 0xA else 1 if width in (0xA, 0xC, 0xE) else 4
                    fixed = 0 if sized else 4 + _FIXED[width]
                    table[bytes((0x00, 0x53, code, constructor))] = tables[code], fixed, sized
    return tables


_TABLES = _tables()

# --- The batch -------------------------------------------------------------------------------------------------------------


def _distinct(said: list[HeaderFields]) -> list[HeaderFields]:
    """One of each kind; of what is all alike the only one."""
    # Nearly always all are one and the same object, which `count` sees without comparing.
    if not said or said.count(said[0]) == len(said):
        return said[:1]
    # Not a set of them: their numbers are the senders' choice, and so would the hashes be.
    kinds = {(one.priority is None, one.durable, one.ttl is None): one for one in said}
    return [said[0], *kinds.values()]


def _payload(parts: _Parts, distinct: list[HeaderFields]) -> tuple[Payload, int]:
    """With the mask of its columns."""
    rows = len(parts.messages)
    columns: dict[str, pa.Array] = {}
    if not (parts.ttls or parts.annotations or parts.footers) and len(distinct) == 1 and distinct[0].ttl is None:
        uniform = UniformMessages(parts.messages, distinct[0])
        return uniform, uniform.mask
    if parts.ttls:
        columns["ttl"] = _ttls(parts)
    for i, name in enumerate(("priority", "durable") if parts.ttls else ("priority", "durable", "ttl")):
        if any(said[i] is not None for said in distinct):
            one = len(distinct) == 1
            values = [distinct[0][i]] * rows if one else [said[i] for said in parts.said]
            columns[name] = pa.array(values, MESSAGE_COLUMNS[name])
    columns["message"] = binary(parts.messages)
    for name, found in (("encodedAnnotations", parts.annotations), ("footer", parts.footers)):
        if found:
            columns[name] = pa.array([found.get(row) for row in range(rows)], pa.binary())
    names = [name for name in ENCODED_COLUMNS if name in columns]
    mask = mask_of(names)
    return pa.RecordBatch.from_arrays([columns[name] for name in names], schema=payload_schema(mask)), mask


def _ttls(parts: _Parts) -> pa.Array:
    """Build the column of ttls, where at least one is not among what is `said`."""
    found = np.frombuffer(b"".join(parts.ttls.values()), ">u4").astype(np.int64)
    if len(found) == len(parts.said):
        return pa.array(found)
    values = [said.ttl for said in parts.said]
    for row, ttl in zip(parts.ttls, found.tolist(), strict=True):
        values[row] = ttl
    return pa.array(values, pa.int64())
