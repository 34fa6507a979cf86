"""Hostile octets: all input is valid or a named error, without another exception, in bounded memory.

The cut of the octets, and the fast way, change nothing.

The tests are deterministic: a failure prints the seed of its round. `PENSTOCK_FUZZ_ROUNDS` sets the work (default 3) and
`PENSTOCK_FUZZ_SEED` the first seed (default 0), as `./dev fuzz` does.
"""

from __future__ import annotations

import os
import random
import tracemalloc
from typing import Any

import pytest

from penstock.broker_core.amqp import (
    Connection,
    ConnectionSettings,
    DecodeError,
    FieldError,
    LocalProtocolError,
    RemoteProtocolError,
    Role,
    SaslClient,
    SaslServer,
    events,
)
from penstock.broker_core.amqp.decoder import decode
from penstock.broker_core.amqp.frames import SASL_FRAME, encode_frame, protocol_header
from penstock.broker_core.amqp.messages import Message, bare, decode_message, scan
from penstock.broker_core.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Header,
    Open,
    Properties,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    Transfer,
)
from penstock.broker_core.amqp.types import Array, Described, Pairs, Symbol, UInt, ULong

from .values import flatten

ROUNDS = int(os.environ.get("PENSTOCK_FUZZ_ROUNDS", "3"))
SEED = int(os.environ.get("PENSTOCK_FUZZ_SEED", "0"))
INTERESTING = [0x00, 0x01, 0x40, 0x43, 0x45, 0x52, 0x53, 0x70, 0x7F, 0x80, 0xA0, 0xB0, 0xC0, 0xD0, 0xE0, 0xF0, 0xFF]


def mutate(source: random.Random, octets: bytes) -> bytes:
    """Some octets changed, repeated, left out, moved or cut."""
    data = bytearray(octets)
    for _ in range(source.choice([1, 1, 2, 4, 8])):
        if not data:
            break
        at = source.randrange(len(data))
        kind = source.randrange(6)
        if kind == 0:
            data[at] = source.choice(INTERESTING)
        elif kind == 1:
            data[at] ^= 1 << source.randrange(8)
        elif kind == 2:
            data[at:at] = bytes(source.choice(INTERESTING) for _ in range(source.randrange(1, 9)))
        elif kind == 3:
            del data[at : at + source.randrange(1, 9)]
        elif kind == 4:
            end = at + source.randrange(1, 60)
            data[at:at] = data[at:end]
        else:
            del data[at:]
    return bytes(data)


class Application:
    """A server that answers everything immediately, and ignores errors of its own library."""

    def __init__(self, connection: Connection, lazy: random.Random | None = None) -> None:
        self.connection = connection
        self.lazy = lazy
        self.seen: list[Any] = []

    def feed(self, data: bytes) -> None:
        new_events = self.connection.receive_data(data)
        self.seen += flatten(new_events)
        self.answer_all(new_events)
        self.connection.data_to_send()

    def answer_all(self, new_events: list[events.Event]) -> None:
        for event in new_events:
            if self.lazy and self.lazy.random() < 0.1:
                continue
            try:
                self.answer(event)
            except LocalProtocolError:
                self.seen.append("local")

    def answer(self, event: events.Event) -> None:
        if isinstance(event, events.Opened):
            self.connection.open()
        elif isinstance(event, events.Begun):
            event.session.begin()
        elif isinstance(event, events.Attached):
            event.link.attach(source=Source(address="a"), target=Target(address="b"))
            if hasattr(event.link, "grant"):
                event.link.grant(50)
        elif isinstance(event, events.Delivered):
            event.link.session.dispose([d for d in event.deliveries if not d.settled], Accepted())
        elif isinstance(event, events.Flowed) and hasattr(event.link, "send_many"):
            count = event.link.link_credit
            event.link.send_many([b"%d" % n for n in range(count)][:5], [b"x"] * 5)
            event.link.drained()
        elif isinstance(event, events.Detached):
            event.link.detach()
        elif isinstance(event, events.Ended):
            event.session.end()
        elif isinstance(event, events.Closed):
            self.connection.close()


def frames(*bodies: Any, channel: int = 0, payload: bytes = b"") -> bytes:
    return b"".join(encode_frame(channel, b"" if b is None else b.encode(), payload) for b in bodies)


def a_conversation(source: random.Random) -> list[bytes]:
    """Frames that a client might send, in pieces. An application may answer between pieces."""
    begin = Begin(next_outgoing_id=source.choice([0, 2**32 - 3]), incoming_window=100, outgoing_window=100)
    to_us = Attach(name="in", handle=0, role=False, source=Source(), target=Target(address="q"), initial_delivery_count=2**32 - 2)
    from_us = Attach(name="out", handle=1, role=True, source=Source(address="q"), target=Target())
    pieces = [protocol_header(0), frames(Open(container_id="p", max_frame_size=1024)), frames(begin), frames(to_us, from_us)]
    number = source.choice([0, 250, 2**32 - 3])
    for _ in range(source.randrange(1, 6)):
        kind = source.randrange(6)
        if kind <= 2:
            count, settled = source.randrange(1, 12), source.choice([None, False, True])
            bodies = []
            for _ in range(count):
                tag = b"%05d" % (number % 10**5)
                bodies.append(Transfer(handle=0, delivery_id=number % 2**32, delivery_tag=tag, message_format=0, settled=settled))
                number += 1
            pieces.append(frames(*bodies, payload=Message(data=[b"x" * source.randrange(20)]).encode()))
        elif kind == 3:
            first = Transfer(handle=0, delivery_id=number % 2**32, delivery_tag=b"m%d" % number, message_format=0, more=True)
            rest = Transfer(handle=0, aborted=source.random() < 0.5)
            number += 1
            pieces.append(frames(first, Transfer(handle=0, more=True), rest, payload=b"part"))
        elif kind == 4:
            base = {"incoming_window": 100, "next_outgoing_id": number % 2**32, "outgoing_window": 9, "next_incoming_id": 0}
            drain = source.random() < 0.5
            credit = Flow(**base, handle=1, delivery_count=0, link_credit=5, drain=drain)
            pieces.append(frames(credit, Flow(**base, echo=True), None))
        else:
            last = source.choice([None, 3, 2**31])
            pieces.append(frames(Disposition(role=True, first=0, last=last, settled=True, state=Accepted())))
    if source.random() < 0.5:
        pieces.append(frames(Detach(handle=0, closed=True), End(), Close()))
    return pieces


def run(pieces: list[bytes], size: int | None, source: random.Random) -> None:
    """A server that forgets some answers, and may answer only after a whole piece."""
    settings = ConnectionSettings(container_id="s", max_frame_size=2048, incoming_window=16, max_message_size=4096)
    app = Application(Connection(Role.SERVER, settings), source if source.random() < 0.5 else None)
    if source.random() < 0.3:
        pieces = [b"".join(pieces)]
    for piece in pieces:
        if size is None:
            app.feed(piece)
        else:
            for at in range(0, len(piece), size):
                app.feed(piece[at : at + size])


@pytest.mark.parametrize("seed", range(60))
def test_how_octets_are_cut_changes_nothing(seed: int) -> None:
    """Whole or octet by octet, fast or plain, mutated or not: the same events and the same answers."""
    for number in range(3 * ROUNDS):
        source = random.Random(SEED + seed * 1_000_003 + number)
        pieces = a_conversation(source)
        if source.random() < 0.7:
            at = source.randrange(1, len(pieces))
            pieces[at] = mutate(source, pieces[at])
        whole = converse(pieces, None, fast=True)
        for size, fast in [(None, False), (1, True), (7, True)]:
            assert converse(pieces, size, fast) == whole, f"seed {seed}, round {number}, cut {size}, fast {fast}"


def converse(pieces: list[bytes], size: int | None, fast: bool) -> list[Any]:
    """All events and answers of a server that receives `size` octets at a time. It answers after each piece."""
    settings = ConnectionSettings(container_id="s", max_frame_size=2048, incoming_window=16, max_message_size=4096)
    connection = Connection(Role.SERVER, settings, fast=fast)
    app, out = Application(connection), []
    for piece in pieces:
        step = size or max(1, len(piece))
        new_events = [event for at in range(0, len(piece), step) for event in connection.receive_data(piece[at : at + step])]
        app.seen += flatten(new_events)
        app.answer_all(_joined(new_events))
        out.append(connection.data_to_send())
    return [app.seen, out, connection.state, connection.finished]


def _joined(event_list: list[events.Event]) -> list[events.Event]:
    """Neighbouring deliveries of one link as one event, so that the application's answers do not depend on the cut."""
    result: list[events.Event] = []
    for event in event_list:
        last = result[-1] if result else None
        if isinstance(event, events.Delivered) and isinstance(last, events.Delivered) and last.link is event.link:
            last.deliveries.extend(event.deliveries)
        else:
            result.append(event)
    return result


@pytest.mark.parametrize("seed", range(20))
def test_the_frame_path_survives_anything(seed: int) -> None:
    for number in range(60 * ROUNDS):
        source = random.Random(SEED + seed * 7_000_003 + number)
        pieces = a_conversation(source)
        for _ in range(source.randrange(1, 4)):
            at = source.randrange(len(pieces))
            pieces[at] = mutate(source, pieces[at])
        try:
            run(pieces, source.choice([None, None, 5]), source)
        except Exception as error:
            raise AssertionError(f"seed {seed}, round {number}") from error


@pytest.mark.parametrize("side", ["server", "client"])
def test_the_sasl_parser_survives_anything(side: str) -> None:
    users: dict[str, Any] = {}
    good = [
        SaslInit(mechanism="PLAIN", initial_response=b"\0u\0p", hostname="h"),
        SaslInit(mechanism="SCRAM-SHA-256", initial_response=b"n,,n=u,r=abc"),
        SaslMechanisms(sasl_server_mechanisms=("SCRAM-SHA-256", "PLAIN")),
        SaslOutcome(code=0, additional_data=b"v=AAAA"),
    ]
    for number in range(2500 * ROUNDS):
        source = random.Random(SEED + number)
        chosen = [source.choice(good) for _ in range(source.randrange(1, 4))]
        octets = protocol_header(3) + b"".join(encode_frame(0, b.encode(), frame_type=SASL_FRAME) for b in chosen)
        octets = mutate(source, octets)
        sasl: Any
        if side == "server":
            mechanisms = ["SCRAM-SHA-256"] if number % 50 else ["PLAIN"]  # a PLAIN check costs a derivation
            sasl = SaslServer(mechanisms, users.get, random=lambda n: b"r" * n, secret=b"s", iterations=4096)
            connection = Connection(Role.SERVER, ConnectionSettings(container_id="s"), sasl)
        else:
            sasl = SaslClient("u", "p", random=lambda n: b"r" * n)
            connection = Connection(Role.CLIENT, ConnectionSettings(container_id="c"), sasl)
        try:
            connection.receive_data(octets)
            connection.data_to_send()
        except Exception as error:
            raise AssertionError(f"round {number}: {octets!r}") from error


def test_values_and_sections_survive_anything() -> None:
    rich = Message(
        header=Header(durable=True, ttl=5),
        message_annotations={Symbol("x-opt"): Array("uint", (UInt(1), UInt(300)))},
        properties=Properties(message_id="m", to="q", creation_time=1),
        application_properties={"a": 1, "b": "text", "c": 1.5},
        value=[Pairs([(1, 2), (UInt(1), {"k": Described(ULong(1), [None, True])})]), Array("list", ([1], []))],
        has_value=True,
        footer={Symbol("f"): b"x"},
    ).encode()
    for number in range(6000 * ROUNDS):
        source = random.Random(SEED + number)
        octets = mutate(source, rich) if number % 10 else source.randbytes(source.randrange(60))
        for read in (scan, bare, decode_message, decode):
            try:
                read(octets)  # type: ignore[operator]
            except (DecodeError, FieldError):
                continue
            except Exception as error:
                raise AssertionError(f"round {number}: {read.__name__}({octets!r})") from error


def test_memory_is_bounded() -> None:
    """Half frames, announced giants, bombs of values and an endless message use no more memory than the limits together."""
    tracemalloc.start()
    settings = ConnectionSettings(container_id="s", max_frame_size=65536, max_message_size=200_000)
    app = Application(Connection(Role.SERVER, settings))
    to_us = Attach(name="in", handle=0, role=False, source=Source(), target=Target(address="q"), initial_delivery_count=0)
    for piece in (
        protocol_header(0), frames(Open(container_id="p")),
        frames(Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9)), frames(to_us),
    ):  # fmt: skip
        app.feed(piece)
    part = frames(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0, more=True), payload=b"x" * 60000)
    for _ in range(50):
        app.feed(part)
    assert any("message-size-exceeded" in str(event) for event in app.seen)
    nulls = b"\xf0\x00\x00\x00\x05\x00\x0f\xff\xff\x40"  # a million nulls in ten octets
    bomb = b"\xd0" + (len(nulls) * 20000 + 4).to_bytes(4, "big") + (20000).to_bytes(4, "big") + nulls * 20000
    with pytest.raises(RemoteProtocolError):
        decode(bomb)
    half = Connection(Role.SERVER, settings)
    half.receive_data(protocol_header(0))
    half.receive_data(b"\x00\x00\x02\x00")
    for _ in range(511 - 4):
        half.receive_data(b"\x02")
    assert not half.finished
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20
