"""Damaged messages: on nine million octets a named error or the plain decoder's row, never a wrong one, in bounded memory.

Deterministic: each round prints its seed. `PENSTOCK_FUZZ_ROUNDS` (default 3, of three million octets each) makes a nightly run.
"""

from __future__ import annotations

import os
import random
import tracemalloc

import pytest

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.encoder import encode
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.amqp.types import Array, Char, Decimal32, Described, Float, Int, Symbol, Timestamp, UInt, ULong
from penstock.broker_core.messages.encoding import reference

from . import messages as m

ROUNDS = int(os.environ.get("PENSTOCK_FUZZ_ROUNDS", "3"))
OCTETS = 3_000_000  # a round
BATCH = 500  # messages decoded together
INTERESTING = [0x00, 0x01, 0x02, 0x40, 0x43, 0x45, 0x53, 0x56, 0x73, 0x74, 0x75, 0x77, 0x7F, 0x80, 0x98, 0xA0, 0xA1, 0xA3, 0xB1]
INTERESTING += [0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0, 0xFF]


def originals(source: random.Random) -> list[bytes]:
    """Messages that clients send, some of them rare, whose bodies make them a few hundred octets long."""
    properties = Properties(
        message_id=source.choice(["an-id-of-some-length", ULong(77), b"binary", None]),
        user_id=b"guest",
        to="orders",
        subject="übergröße",
        correlation_id="c",
        content_type=Symbol("application/json"),
        creation_time=1_700_000_000_000,
        absolute_expiry_time=source.choice([None, 5]),
        group_id="group",
        group_sequence=UInt(source.choice([0, 9, 2**32 - 1])),
        reply_to_group_id=source.choice([None, "x"]),
    )
    applications = [
        {"customer": "somebody", "amount": Int(17), "region": "eu"},
        {"a": True, "b": 2.5, "c": Timestamp(1), "d": None, "e": b"\0\1", "f": Float(1.5)},
        {},
        {"long" * 80: "x" * 300, "char": Char("é"), "decimal": Decimal32(b"1234")},
    ]
    bodies: list[dict[str, object]] = [
        {"data": [source.randbytes(source.randrange(400))]},
        {"data": [b"one", b"two"]},
        {"value": "text" * source.randrange(90), "has_value": True},
        {"value": {"k": [1, Described(Symbol("d"), Array("int", (Int(1), Int(2))))]}, "has_value": True},
        {"sequences": [[1, "two"], [None]]},
        {"value": None, "has_value": True},
    ]
    return [
        Message(properties=properties, application_properties=application, **body).encode()  # type: ignore[arg-type]
        for application in applications[:3] * 3 + applications
        for body in bodies[:1] * 4 + bodies
    ]


def damaged(source: random.Random, octets: bytes) -> bytes:
    """One to three octets of a message changed, most of them in its head; now and then some left out, repeated or cut off."""
    data = bytearray(octets)
    for _ in range(source.choice((0, 1, 1, 1, 1, 2))):
        if not data:
            break
        place = source.randrange(min(len(data), source.choice((12, 40, 200, len(data)))))
        kind = source.randrange(8)
        if kind < 4:
            data[place] = source.choice(INTERESTING)
        elif kind < 6:
            data[place] = (data[place] + source.choice((1, -1, 128))) % 256
        elif kind == 6:
            del data[place : place + source.randrange(1, 4)]
        else:
            data[place:place] = data[place : place + source.randrange(1, 20)]
    return bytes(data[: source.randrange(len(data) + 1)] if source.randrange(20) == 0 else data)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_damaged_message_is_refused_by_name_or_read_as_the_plain_way_reads_it(seed: int) -> None:
    print(f"seed {seed}")
    source = random.Random(seed)
    done = rows = odd = refused = 0
    while done < OCTETS:
        whole = originals(source)
        batch = [damaged(source, source.choice(whole)) for _ in range(BATCH)]
        sections: list[bytes | None] | None = None
        if source.randrange(4) == 0:
            good = b"\0Sr" + encode({Symbol("x-opt-key"): "v", Symbol("n"): UInt(3)})
            sections = [source.choice((None, good, damaged(source, good))) for _ in batch]
        found_odd, found_refused = m.check(m.payload(batch, sections))
        done += sum(len(octets) for octets in batch)
        rows, odd, refused = rows + BATCH, odd + found_odd, refused + found_refused
    print(f"{done} octets, {rows} messages, {odd} left to the plain decoder, {refused} refused")
    # All three ways are walked: accepted by vectors, by the plain decoder, by neither.
    assert min(rows - odd, odd - refused, refused) > rows // 100


def test_noise_is_refused_or_read_alike() -> None:
    source = random.Random(9)
    for _ in range(20):
        m.check(m.payload([source.randbytes(source.randrange(60)) for _ in range(200)]))
        m.check(m.payload([b"\0Ss" + source.randbytes(source.randrange(60)) for _ in range(200)]))


def test_what_a_message_announces_allocates_nothing() -> None:
    """Counts and sizes of 4 G, and nesting without end, in a few octets each."""
    huge = [
        b"\0Ss\xd0\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\0Ss\xd0\0\0\0\4\xff\xff\xff\xff",
        b"\0St\xd1\0\0\0\4\xff\xff\xff\xfe",
        b"\0Su\xb0\xff\xff\xff\xff",
        b"\0Sw\xf0\0\0\0\5\xff\xff\xff\xff\x40",
        b"\0Sw" + b"\0\xa3\1d" * 100 + b"\x40",
        b"\0Sw" + b"\xc0\xff\1" * 80,
    ]
    tracemalloc.start()
    try:
        for octets in huge:
            with pytest.raises(m.Refused):
                m.columns(m.payload([octets] * 50), m.ALL_COLUMNS)
            with pytest.raises(reference.REFUSALS):
                reference.row(octets, None, m.ALL_COLUMNS)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
