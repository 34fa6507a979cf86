"""Hypothesis strategies for AMQP values, and helpers that several tests share."""

from __future__ import annotations

import itertools
import os
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from penstock.broker_core.amqp import Connection, ConnectionSettings, Role, events
from penstock.broker_core.amqp.decoder import LIMITS, MAX_ITEMS, WIDTHLESS, DecoderLimits, decode
from penstock.broker_core.amqp.encoder import encode
from penstock.broker_core.amqp.errors import DecodeError
from penstock.broker_core.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Pairs,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

# The same examples in every run, chosen by the test alone. PENSTOCK_HYPOTHESIS=random tries others.
STEADY = settings(derandomize=os.environ.get("PENSTOCK_HYPOTHESIS") != "random", deadline=None, database=None)

#: Elements without octets that one value may have: 4,096.
MAX_WIDTHLESS = MAX_ITEMS // WIDTHLESS


def decode_all(buffer: bytes, limits: DecoderLimits = LIMITS) -> Any:
    """Return the one value that fills the whole buffer. Octets after it are a DecodeError."""
    value, position = decode(buffer, 0, len(buffer), limits)
    if position != len(buffer):
        raise DecodeError(f"{len(buffer) - position} octets after the value", position)
    return value


def integers(cls: Any) -> st.SearchStrategy[Any]:
    edges = [v for v in (cls.low, cls.high, 0, 1, -1, 127, 128, -128, -129, 255, 256) if cls.low <= v <= cls.high]
    return st.one_of(st.sampled_from(edges), st.integers(cls.low, cls.high)).map(cls)


symbols = st.text(st.characters(max_codepoint=127), max_size=300).map(Symbol)
scalars: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "ubyte": integers(UByte),
    "ushort": integers(UShort),
    "uint": integers(UInt),
    "ulong": integers(ULong),
    "byte": integers(Byte),
    "short": integers(Short),
    "int": integers(Int),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False).map(Float),
    "double": st.floats(allow_nan=False),
    "decimal32": st.binary(min_size=4, max_size=4).map(Decimal32),
    "decimal64": st.binary(min_size=8, max_size=8).map(Decimal64),
    "decimal128": st.binary(min_size=16, max_size=16).map(Decimal128),
    "char": st.characters(exclude_categories=["Cs"]).map(Char),
    "timestamp": integers(Timestamp),
    "uuid": st.uuids(),
    "binary": st.binary(max_size=300),
    "string": st.text(max_size=300),
    "symbol": symbols,
}
scalar = st.one_of(*scalars.values())


def _arrays_of(kind: str) -> st.SearchStrategy[Array]:
    return st.lists(scalars[kind], max_size=5).map(lambda elements: Array(kind, tuple(elements)))


_flat_arrays = {kind: _arrays_of(kind) for kind in sorted(scalars)}


def arrays(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Array]:
    flat = st.sampled_from(list(_flat_arrays)).flatmap(_flat_arrays.__getitem__)
    lists = st.lists(st.lists(items, max_size=3), max_size=3).map(lambda elements: Array("list", tuple(elements)))
    nested = st.lists(flat, max_size=3).map(lambda elements: Array("array", tuple(elements)))
    described = st.builds(lambda array, d: Array(array.kind, array.items, (d,)), flat, symbols)
    return st.one_of(flat, lists, nested, described)


def to_map(pairs: list[tuple[Any, Any]]) -> Any:
    """A dict if it can hold them, otherwise Pairs. Equal keys are left out."""
    distinct = {encode(key): (key, value) for key, value in pairs}
    mapping = dict(distinct.values())
    return mapping if len(mapping) == len(distinct) else Pairs(distinct.values())


def compounds(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(items, max_size=5),
        st.lists(st.tuples(scalar, items), max_size=5).map(to_map),
        st.builds(Described, st.one_of(symbols, integers(ULong)), items),
        arrays(items),
    )


values = st.recursive(scalar, compounds, max_leaves=12)


def same(left: Any, right: Any) -> bool:
    """Return True if the values have the same type and value at every level: the same canonical octets."""
    return type(left) is type(right) and encode(left) == encode(right)


# --- connections


def flatten(event_list: list[events.Event]) -> list[Any]:
    """Return events in a comparable form that does not depend on the number of deliveries or dispositions in one event."""
    result: list[Any] = []
    for event in event_list:
        if isinstance(event, events.Delivered):
            result += [
                (event.link.name, d.id, d.tag, d.format, d.payload, d.settled, repr(d.remote_state)) for d in event.deliveries
            ]
        elif isinstance(event, events.Disposed):
            disposition = ["disposed", event.session.remote_channel, repr(event.state), event.settled]
            if not (result and isinstance(result[-1], tuple) and result[-1][0] == disposition):
                result.append((disposition, []))
            result[-1][1].extend((d.id, d.tag, repr(d.remote_state)) for d in event.deliveries)
        else:
            result.append(repr(event))
    return result


class Pair:
    """Two of our connections over a wire of memory. `log` keeps every event of each end."""

    def __init__(self, client: Any = None, server: Any = None, **settings: Any) -> None:
        self.client = Connection(Role.CLIENT, ConnectionSettings(**{"container_id": "client", **settings, **(client or {})}))
        self.server = Connection(Role.SERVER, ConnectionSettings(**{"container_id": "server", **settings, **(server or {})}))

    def pump(self) -> tuple[list[events.Event], list[events.Event]]:
        """Carry octets until both are silent. Return the new events of client and server."""
        at_client: list[events.Event] = []
        at_server: list[events.Event] = []
        for _ in itertools.count():
            up, down = self.client.data_to_send(), self.server.data_to_send()
            if not up and not down:
                return at_client, at_server
            at_server += self.server.receive_data(up)
            at_client += self.client.receive_data(down)
        raise AssertionError

    def opened(self) -> Pair:
        self.pump()
        self.client.open()
        self.server.open()
        self.pump()
        return self

    def session(self, **begin: Any) -> tuple[Any, Any]:
        ours = self.client.begin(**begin)
        _, server_events = self.pump()
        theirs = server_events[-1].session  # type: ignore[union-attr]
        theirs.begin()
        self.pump()
        return ours, theirs

    def link(self, name: str = "link", credit: int = 0, session: Any = None, **attach: Any) -> tuple[Any, Any]:
        """A sender of the client and a receiver of the server, both attached."""
        from penstock.broker_core.amqp.performatives import Source, Target

        ours, _ = session or self.session()
        sender = ours.sender(name)
        sender.attach(source=Source(address="here"), target=Target(address="there"), **attach)
        _, server_events = self.pump()
        receiver = server_events[-1].link  # type: ignore[union-attr]
        receiver.attach(source=Source(address="here"), target=Target(address="there"))
        if credit:
            receiver.grant(credit)
        self.pump()
        return sender, receiver


def raw_frame(body: bytes, channel: int = 0, kind: int = 0, doff: int = 2) -> bytes:
    return struct.pack(">IBBH", 8 + len(body), doff, kind, channel) + body


# --- maps whose keys are uuids

ALIKE = (1 << 61) - 1  # Python's hash of an integer is its remainder by this


def chosen(count: int) -> bytes:
    """A map of different uuids with one hash."""
    return mapping([(number * ALIKE).to_bytes(16, "big") for number in range(count)])


def random(count: int) -> bytes:
    return mapping([os.urandom(16) for _ in range(count)])


def mapping(uuids: list[bytes]) -> bytes:
    body = b"".join(b"\x98" + octets + b"\x40" for octets in uuids)
    return b"\xd1" + struct.pack(">II", len(body) + 4, 2 * len(uuids)) + body


def best(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def calls(action: Callable[[], object]) -> int:
    """Count the calls of functions and methods, Python's and C's."""
    count = 0

    def note(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count
