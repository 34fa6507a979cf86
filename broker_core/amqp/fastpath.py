"""Scanning of a whole buffer: transfers, dispositions and flows by templates learnt from the plain decoder.

From one transfer to the next only the frame's size, the delivery id, the tag and the payload change. So the first one becomes a
template, a compiled struct that cuts a frame into fixed pieces and holes. A later frame with the same pieces differs only in
holes of fixed width, which cannot make it invalid. It costs one unpack and a comparison of tuples.

A property test compares both ways. A template holds a decoded performative, so only short ones without a large state or
properties are learnt.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from .composites import Composite, Invalid
from .errors import RemoteProtocolError
from .frames import HEADER_SIZE, Frame, frame_size, parse_frame
from .messages import skip
from .performatives import Disposition, Flow, Transfer, in_short

MAX_TEMPLATES = 256
MAX_LEARNT = 256  # octets of a performative; repeated ones have a few dozen

# Fields that may be holes: only uints of fixed width and a binary of up to 255 octets.
_HOLES: dict[type, frozenset[int]] = {
    Transfer: frozenset({1, 2}),  # delivery-id, delivery-tag
    Disposition: frozenset({1, 2}),  # first, last
    Flow: frozenset({0, 1, 2, 3, 5, 6, 7}),  # windows and ids, delivery-count, link-credit, available
}


class TransferRun(NamedTuple):
    """Consecutive transfers that differ only in id, tag and payload."""

    channel: int
    transfer: Transfer
    ids: list[int]
    tags: list[bytes]
    payloads: list[bytes]

    def frames(self) -> list[Frame]:
        return [
            Frame(self.channel, _with(self.transfer, {"delivery_id": i, "delivery_tag": t}), p)
            for i, t, p in zip(self.ids, self.tags, self.payloads, strict=True)
        ]


class Dispositions(NamedTuple):
    """Consecutive dispositions that differ only in their ranges."""

    channel: int
    disposition: Disposition
    ranges: list[tuple[int, int]]  # last included

    def frames(self) -> list[Frame]:
        alone = self.disposition.last is None
        return [
            Frame(self.channel, _with(self.disposition, {"first": first} if alone else {"first": first, "last": last}), b"")
            for first, last in self.ranges
        ]


class _FrameTemplate:
    """Octets of a frame, from 4 to the end of the performative, cut into pieces. The `fixed` ones must be equal."""

    __slots__ = ("attributes", "base", "channel", "fixed", "framed", "ranged", "run", "size", "unpack")

    def __init__(self, frame: Frame, octets: bytes, holes: list[tuple[int, int, str]]) -> None:
        assert isinstance(frame.performative, Composite)
        layout, fixed, attributes, cursor = ">", [], [], 0
        for start, width, attribute in holes:
            layout += f"{start - cursor}s" + ("B" if width == 1 else "I" if width == 4 else f"{-width}s")
            fixed.append(octets[cursor:start])
            attributes.append(attribute)
            cursor = start + abs(width)
        layout += f"{len(octets) - cursor}s"
        fixed.append(octets[cursor:])
        self.base = frame.performative
        self.channel = frame.channel
        self.unpack: Callable[[bytes, int], tuple[Any, ...]] = struct.Struct(layout).unpack_from
        self.fixed = tuple(fixed)
        self.attributes = tuple(attributes)
        self.size = len(octets)
        # A run has an id and a tag, and a whole message in one frame.
        t = self.base
        self.run = (
            isinstance(t, Transfer)
            and self.attributes == ("delivery_id", "delivery_tag")
            and not (t.more or t.aborted or t.resume or t.rcv_settle_mode is not None)
        )
        # Clients that settle each delivery alone send nothing else.
        alone = isinstance(t, Disposition) and t.last is None and self.attributes == ("first",)
        self.ranged = alone or (isinstance(t, Disposition) and self.attributes == ("first", "last"))
        self.framed: Callable[[bytes, int], tuple[Any, ...]] = struct.Struct(f">I{layout[1:]}").unpack_from

    def follow(
        self, buffer: bytes, position: int, end: int, most: int, ids: list[int], tags: list[bytes], payloads: list[bytes]
    ) -> int:
        """Add the complete transfers of this shape, of up to `most` octets. Return their end."""
        unpack, whole, before, between, after = self.framed, self.size + 4, *self.fixed
        while end - position >= whole:
            size, first, number, second, tag, third = unpack(buffer, position)
            stop = position + size
            if first != before or second != between or third != after or not whole <= size <= most or stop > end:
                break
            ids.append(number)
            tags.append(tag)
            payloads.append(buffer[position + whole : stop])
            position = stop
        return position

    def follow_ranges(self, buffer: bytes, position: int, end: int, most: int, ranges: list[tuple[int, int]]) -> int:
        unpack, whole, fixed = self.framed, self.size + 4, self.fixed
        while whole <= most and end - position >= whole:
            pieces = unpack(buffer, position)
            if pieces[0] != whole or pieces[1::2] != fixed:
                break
            ranges.append((pieces[2], pieces[-2]))
            position += whole
        return position


_SIZE: Callable[[bytes, int], tuple[int]] = struct.Struct(">I").unpack_from


class _Items:
    """Items of one scan. The `last` one may grow if it has a template, `run`."""

    __slots__ = ("items", "last", "run")

    def __init__(self) -> None:
        self.items: list[Frame | TransferRun | Dispositions] = []
        self.run: _FrameTemplate | None = None
        self.last: Any = None

    def follow(self, buffer: bytes, position: int, end: int, most: int) -> int:
        run, last = self.run, self.last
        assert run is not None
        if run.run:
            return run.follow(buffer, position, end, most, last.ids, last.tags, last.payloads)
        return run.follow_ranges(buffer, position, end, most, last.ranges)

    def add(self, template: _FrameTemplate, pieces: tuple[Any, ...], payload: bytes) -> None:
        base: Any = template.base
        if template.run:
            if template is not self.run:
                self._begin(template, TransferRun(template.channel, base, [], [], []))
            last = self.last
            last.ids.append(pieces[1])
            last.tags.append(pieces[3])
            last.payloads.append(payload)
        elif template.ranged and not payload:
            if template is not self.run:
                self._begin(template, Dispositions(template.channel, base, []))
            self.last.ranges.append((pieces[1], pieces[-2]))
        else:
            self.run = None
            body = _with(base, dict(zip(template.attributes, pieces[1::2], strict=True)))
            self.items.append(Frame(template.channel, body, payload))

    def _begin(self, template: _FrameTemplate, item: TransferRun | Dispositions) -> None:
        self.run, self.last = template, item
        self.items.append(item)


class Scanner:
    """The templates of one connection."""

    def __init__(self) -> None:
        self._templates: dict[bytes, _FrameTemplate] = {}

    def scan(
        self, buffer: bytes, position: int, max_frame_size: int, single: bool = False
    ) -> tuple[list[Frame | TransferRun | Dispositions], int, RemoteProtocolError | None]:
        """Return all complete frames, the start of the rest, and an error there, if any. With `single`, stop after one item: a
        connection's first frames change the rules for the following ones.
        """
        scanned = _Items()
        end, find = len(buffer), self._templates.get
        while end - position >= 4:
            if scanned.run is not None and not single:  # usually the next frame has the same shape
                position = scanned.follow(buffer, position, end, max_frame_size)
                if end - position < 4:
                    break
            (size,) = _SIZE(buffer, position)
            template = None
            if HEADER_SIZE <= size <= max_frame_size:
                if end - position < size:
                    break
                template = find(buffer[position + 4 : position + 16])
                if template is None and buffer[position + 11 : position + 12] == b"\xd0":
                    template = find(buffer[position + 4 : position + 22])
            if (
                template is not None
                and template.size + 4 <= size
                and (pieces := template.unpack(buffer, position + 4))[::2] == template.fixed
            ):
                scanned.add(template, pieces, buffer[position + 4 + template.size : position + size])
            else:
                try:
                    frame = self._parse(buffer, position, max_frame_size)
                except RemoteProtocolError as error:
                    return scanned.items, position, error
                if frame is None:
                    break
                scanned.run = None
                scanned.items.append(frame)
            position += size
            if single:
                break
        return scanned.items, position, None

    def _parse(self, buffer: bytes, position: int, max_frame_size: int) -> Frame | None:
        size = frame_size(buffer, position, max_frame_size)
        if len(buffer) - position < size:
            return None
        frame = parse_frame(buffer, position, size)
        if type(frame.performative) in _HOLES and size >= 16:
            self._learn(frame, buffer, position, size)
        return frame

    def _learn(self, frame: Frame, buffer: bytes, position: int, size: int) -> None:
        # Only without an extended header, with a descriptor as smallulong, and list8 or list32.
        smallulong = buffer[position + 8 : position + 10] == b"\x00\x53"
        if buffer[position + 4] != 2 or not smallulong or buffer[position + 11] not in _LISTS:
            return
        octets = buffer[position + 4 : position + size - len(frame.payload)]
        key, fields = _LISTS[octets[7]]
        if not key <= len(octets) <= MAX_LEARNT or not _is_small(frame.performative):
            return
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
        self._templates[octets[:key]] = _FrameTemplate(frame, octets, _holes(frame.performative, octets, fields))


def _is_small(performative: Any) -> bool:
    """Return whether a short performative is also small when decoded: ten octets may announce thousands of nulls."""
    if type(performative) is not Flow:
        return in_short(performative.state) is performative.state
    return all(type(value) is bytes for value in (performative.properties or {}).values())


# Constructor of a list → length of a template's key, offset of the fields. Both count from the data offset: 4 octets of header, 3
# of descriptor, constructor, size and count. A key ends with the handle, so all frames of one link share it.
_LISTS = {0xC0: (12, 10), 0xD0: (18, 16)}


def _holes(performative: Composite | Invalid | None, octets: bytes, fields: int) -> list[tuple[int, int, str]]:
    """Return (offset, width, attribute) of each hole. A negative width is a binary's length."""
    assert isinstance(performative, Composite)
    holes, cursor = [], fields
    allowed = _HOLES[type(performative)]
    for index in range(octets[9] if fields == 10 else int.from_bytes(octets[12:16], "big")):
        code = octets[cursor]
        after = skip(octets, cursor, len(octets))
        if index in allowed:
            attribute = performative.FIELDS[index].attribute
            if code == 0x52:
                holes.append((cursor + 1, 1, attribute))
            elif code == 0x70:
                holes.append((cursor + 1, 4, attribute))
            elif code == 0xA0:
                holes.append((cursor + 2, -octets[cursor + 1], attribute))
        cursor = after
    return holes


def _with(performative: Any, changes: dict[str, Any]) -> Any:
    """Copy without the cost of the constructor."""
    cls: Any = type(performative)
    copy = cls.__new__(cls)
    for name in cls.__slots__:
        setattr(copy, name, getattr(performative, name))
    for name, value in changes.items():
        setattr(copy, name, value)
    return copy


def scan_plainly(
    buffer: bytes, position: int, max_frame_size: int, single: bool = False
) -> tuple[list[Frame | TransferRun | Dispositions], int, RemoteProtocolError | None]:
    """Return the frames of `Scanner.scan`, without templates."""
    items: list[Frame | TransferRun | Dispositions] = []
    while len(buffer) - position >= 4:
        try:
            size = frame_size(buffer, position, max_frame_size)
            if len(buffer) - position < size:
                break
            items.append(parse_frame(buffer, position, size))
        except RemoteProtocolError as error:
            return items, position, error
        position += size
        if single:
            break
    return items, position, None
