"""The law of validity on arrival: every reader decodes an accepted message, and the decoder refuses a refused one.

Readers are the reference decoder, the vectors, the bytes that a receiver is sent, python-qpid-proton, selectors, and message ids.
Messages are generated valid, strange and damaged. Deterministic: each round prints its seed. `PENSTOCK_FUZZ_ROUNDS` (default 3)
makes a nightly run, `PENSTOCK_FUZZ_SEED` is the seed of its first round.
"""

from __future__ import annotations

import os
import random
from typing import Any

import proton
import pytest

from penstock.broker_core import selectors
from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.decoder import MAX_DEPTH, MAX_ITEMS
from penstock.broker_core.amqp.encoder import encode
from penstock.broker_core.amqp.errors import RemoteProtocolError
from penstock.broker_core.amqp.messages import bare, decode_message, scan
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.amqp.types import Char, Float, Int, Symbol, Timestamp, ULong
from penstock.broker_core.errors import InvalidRequest
from penstock.broker_core.messages.encoding import reference, shapes, validity
from penstock.broker_core.messages.encoding.arriving import arrived
from penstock.broker_core.messages.encoding.fields import id_digests
from penstock.broker_core.messages.encoding.leaving import leaving

from ..amqp.values import MAX_WIDTHLESS
from . import messages as m
from .test_decode_fuzz import damaged, originals

ROUNDS = int(os.environ.get("PENSTOCK_FUZZ_ROUNDS", "3"))
SEED = int(os.environ.get("PENSTOCK_FUZZ_SEED", "0"))
BATCHES, BATCH = 8, 250  # of a round, messages of each
SELECTOR = selectors.parse(
    "customer = 'somebody' OR a AND b < 3 OR JMSMessageID = 'x' OR JMSXGroupID LIKE 'g%' OR JMSTimestamp > 5"
)


DATA = b"\0Su\xa0\1x"
NULL, ONE, TEXT = b"\x40", b"\x54\1", b"\xa1\1v"


def listed(*elements: bytes, count: int = 0) -> bytes:
    if count:  # elements in one piece
        octets = b"".join(elements)
        return b"\xd0" + (len(octets) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + octets
    return m.compound(0xC0, list(elements))


def mapped(*elements: bytes) -> bytes:
    return m.compound(0xC1, list(elements))


def nested(levels: int) -> bytes:
    """So many lists, one in the other."""
    octets = NULL
    for _ in range(levels):
        octets = listed(octets)
    return octets


#: Messages that a client could send by an ordinary mistake, and that no reader could decode.
REFUSED: dict[str, bytes] = {
    "a list among application properties": b"\0St" + mapped(b"\xa1\1k", listed(ONE)) + DATA,
    "a map among application properties": b"\0St" + mapped(b"\xa1\1k", mapped()) + DATA,
    "a described value among application properties": b"\0St" + mapped(b"\xa1\1k", b"\0\xa3\1d\x40") + DATA,
    "an array among application properties": b"\0St" + mapped(b"\xa1\1k", b"\xe0\2\0\x54") + DATA,
    "a symbol as a key": b"\0St" + mapped(b"\xa3\1k", ONE) + DATA,
    "a number as a key": b"\0St" + mapped(ONE, TEXT) + DATA,
    "no key": b"\0St" + mapped(NULL, TEXT) + DATA,
    "a key twice": b"\0St" + mapped(b"\xa1\1k", ONE, b"\xa1\1k", TEXT) + DATA,
    "a key twice, encoded differently": b"\0St" + mapped(b"\xa1\1k", ONE, b"\xb1\0\0\0\1k", TEXT) + DATA,
    "a key without a value": b"\0St\xc1\4\1\xa1\1k" + DATA,
    "a text with invalid UTF-8": b"\0St" + mapped(b"\xa1\1k", b"\xa1\2\xc3\x28") + DATA,
    "a key with invalid UTF-8": b"\0St" + mapped(b"\xa1\1\xff", ONE) + DATA,
    "a boolean of 7": b"\0St" + mapped(b"\xa1\1k", b"\x56\7") + DATA,
    "half of a surrogate pair": b"\0St" + mapped(b"\xa1\1k", b"\x73\0\0\xd8\0") + DATA,
    "a message-id that is an int": b"\0Ss" + listed(ONE) + DATA,
    "a message-id that is a symbol": b"\0Ss" + listed(b"\xa3\1s") + DATA,
    "a correlation-id that is a list": b"\0Ss" + listed(*[NULL] * 5, listed()) + DATA,
    "a user-id that is a string": b"\0Ss" + listed(NULL, b"\xa1\1u") + DATA,
    "a subject with invalid UTF-8": b"\0Ss" + listed(*[NULL] * 3, b"\xa1\1\xff") + DATA,
    "a content-type that is a string": b"\0Ss" + listed(*[NULL] * 6, b"\xa1\1t") + DATA,
    "a content-type beyond ASCII": b"\0Ss" + listed(*[NULL] * 6, b"\xa3\2\xc3\xa9") + DATA,
    "a creation-time that is a long": b"\0Ss" + listed(*[NULL] * 9, b"\x55\1") + DATA,
    "a group-sequence that is an int": b"\0Ss" + listed(*[NULL] * 11, ONE) + DATA,
    "a field too many": b"\0Ss" + listed(*[NULL] * 14) + DATA,
    "octets after the fields": b"\0Ss\xc0\4\1\x40\x40\x40" + DATA,
    "a body with invalid UTF-8": b"\0Sw\xa1\2\xc3\x28",
    "a body with a key twice": b"\0Sw" + mapped(ONE, TEXT, ONE, TEXT),
    "a body nested too deep": b"\0Sw" + nested(MAX_DEPTH + 1),
    "a body nested far too deep": b"\0Sw" + nested(1500),
    "a sequence nested too deep": b"\0Sv" + nested(MAX_DEPTH + 1),
    "a described body that is cut short": b"\0Sw\0\xa3\1d",
    "more values than a reader makes": b"\0Sw" + listed(NULL * (MAX_ITEMS + 1), count=MAX_ITEMS + 1),
    "more values without octets than a reader makes": b"\0Sw\xf0\0\0\0\5" + (MAX_WIDTHLESS + 1).to_bytes(4, "big") + b"\x40",
    "more values without octets than a reader makes, in several arrays": b"\0Sw"
    + listed(*[b"\xf0\0\0\0\5" + (MAX_WIDTHLESS // 2).to_bytes(4, "big") + b"\x40"] * 3),
    "a map body of an odd number of elements": b"\0Sw\xc1\3\1\x54\1",
    "a map as a key of a map that is a key": b"\0Sw" + mapped(mapped(mapped(ONE, ONE), ONE), ONE),
    "delivery annotations with texts as keys": b"\0Sq" + mapped(b"\xa1\1k", ONE) + DATA,
    "message annotations with a key twice": b"\0Sr" + mapped(b"\xa3\1k", ONE, b"\xa3\1k", ONE) + DATA,
    "a header with a text as its priority": b"\0Sp" + listed(b"\x41", TEXT) + DATA,
}
ACCEPTED: dict[str, bytes] = {
    "a body nested as deep as may be": b"\0Sw" + nested(MAX_DEPTH),
    "a body nested as deep as python-qpid-proton nests": b"\0Sw" + nested(40),
    "a sequence nested as deep as may be": b"\0Sv" + nested(MAX_DEPTH),
    "as many values as may be": b"\0Sw" + listed(NULL * MAX_ITEMS, count=MAX_ITEMS),
    "as many values without octets as may be": b"\0Sw\xf0\0\0\0\5" + MAX_WIDTHLESS.to_bytes(4, "big") + b"\x40",
    "many values without octets in several arrays": b"\0Sw"
    + listed(*[b"\xf0\0\0\0\5" + (MAX_WIDTHLESS // 2 - 1).to_bytes(4, "big") + b"\x40"] * 2),
    "keys of every kind in a body": b"\0Sw" + mapped(ONE, TEXT, b"\x52\1", TEXT, b"\xa3\1v", ONE, TEXT, ONE, NULL, ONE),
    "a map as a key in a body": b"\0Sw" + mapped(mapped(ONE, TEXT), mapped(mapped(), ONE)),
    "every simple value": Message(
        application_properties={
            "b": True,
            "c": Char("é"),
            "f": Float(1.5),
            "t": Timestamp(-1),
            "n": None,
            "x": b"\xff",
            "i": Int(3),
        }
    ).encode(),
    "an id of each type": b"\0Ss" + listed(encode(ULong(1)), NULL, NULL, NULL, NULL, b"\x98" + bytes(range(16))) + DATA,
    "nothing at all": b"",
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_reader_could_decode_is_refused_at_both_doors(case: str) -> None:
    """As one message and among a hundred good ones, by a section that was never seen and by one that was."""
    good = Message(properties=Properties(message_id="good"), application_properties={"k": Int(1)}, data=[b"x"]).encode()
    for _ in range(2):
        arrivals = arrived([REFUSED[case]])
        assert [number for number, _ in arrivals.refused] == [0]
        arrivals = arrived([good] * 50 + [REFUSED[case]] + [good] * 50)
        assert [number for number, _ in arrivals.refused] == [50]
        assert isinstance(arrivals.refused[0][1], RemoteProtocolError)
        assert arrivals.refused[0][1].condition in ("amqp:decode-error", "amqp:invalid-field")
        assert arrivals.batch.column("message").to_pylist() == [good] * 100
    if REFUSED[case][2:3] not in b"pqr":
        with pytest.raises(InvalidRequest, match="column 'message' in row 50: not a"):
            validity.check_column(m.payload([good] * 50 + [REFUSED[case]] + [good] * 50).column("message"))


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_every_reader_decodes_is_accepted(case: str) -> None:
    check([ACCEPTED[case]])
    check([ACCEPTED[case]] * (40 if len(ACCEPTED[case]) < 10_000 else 2))


def check(octets: list[bytes]) -> int:
    """The law for these messages; how many of them were accepted."""
    arrivals = arrived(octets)
    refused = dict(arrivals.refused)
    for number, error in refused.items():
        assert isinstance(error, RemoteProtocolError)
        with pytest.raises(RemoteProtocolError):
            decode_message(octets[number])
    accepted = [payload for number, payload in enumerate(octets) if number not in refused]
    batch = arrivals.batch
    # The vectors with the reference decoder for odd rows; the reference decoder for all.
    columns = m.columns(batch, m.ALL_COLUMNS)
    for row, message in enumerate(batch.column("message").to_pylist()):
        want = reference.row(message, None, tuple(n for n in m.ALL_COLUMNS if n != "annotations"))
        if row % 16 == 0:
            got = {name: m.listed(name, columns[name].slice(row, 1))[0] for name in want}
            assert got == {name: m.shape(name, value) for name, value in want.items()}
        if shapes.valid(message):
            validity.check(message)
    for array in columns.values():
        array.validate(full=True)
    # The other door takes the same.
    validity.check_column(batch.column("message"))
    # Messages that are sent to receivers.
    for sent, came in zip(leaving(batch, 0, 0, {}), accepted, strict=True):
        assert bare(sent) == bare(came)
        decode_message(sent)
        received(sent)
    assert len(selectors.matches(SELECTOR, batch)) == len(accepted)
    id_digests(batch)
    return len(accepted)


def received(octets: bytes) -> None:
    """By python-qpid-proton where it can: it needs a body, and makes a dict of a map, whose keys it may not be able to hash."""
    message = proton.Message()
    if octets and any(0x75 <= section.code <= 0x77 for section in scan(octets)):
        try:
            message.decode(octets)
        except (TypeError, ValueError) as error:
            if "hash" not in str(error):
                raise


def strange(source: random.Random) -> bytes:
    """A message with one of the strange insides above, or of random nesting."""
    kind = source.randrange(3)
    if kind == 0:
        return source.choice(list(REFUSED.values()))
    if kind == 1:
        return b"\0Sw" + nested(source.randrange(1, 2 * MAX_DEPTH))
    return b"\0Ss" + listed(*(source.choice(_VALUES) for _ in range(source.randrange(14)))) + b"\0St" + mapped(
        *(source.choice(_VALUES[:8] if number % 2 == 0 else _VALUES) for number in range(2 * source.randrange(5)))
    ) + source.choice((DATA, b"", b"\0Sw" + source.choice(_VALUES)))  # fmt: skip


_VALUES: list[bytes] = [
    *(encode(value) for value in ("a", "b", "c", "d", "e", "größe", "x" * 300)),
    b"\xb1\0\0\0\1z",
    *(encode(value) for value in (None, True, Symbol("s"), b"b", Timestamp(5), ULong(7), Int(1), 2.5, Char("c"), [1], {"k": 1})),
    b"\x56\1",
    b"\x43",
    b"\x98" + bytes(16),
]


@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_accepted_at_the_door_is_readable_by_every_reader(seed: int) -> None:
    print(f"seed {seed}")
    source = random.Random(seed)
    shapes.shapes.clear()
    accepted = 0
    for _ in range(BATCHES):
        whole = originals(source)
        octets = [damaged(source, source.choice(whole)) if source.randrange(3) else strange(source) for _ in range(BATCH)]
        accepted += check(octets)
        accepted += check([source.choice(octets) for _ in range(20)])
    print(f"{accepted} accepted")
    assert BATCH * BATCHES // 10 < accepted < BATCH * BATCHES * 9 // 10


def test_shapes_are_bounded_and_mean_nothing_where_they_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "KEPT_SHAPES", 8)
    monkeypatch.setattr(shapes, "_count", 0)
    shapes.shapes.clear()
    for number in range(40):
        message = Message(properties=Properties(message_id="i" * number, subject="s" * (40 - number % 5)), data=[b""]).encode()
        assert shapes.valid(message)
        assert sum(map(len, shapes.shapes.values())) <= 8
    # The bytes of a known shape with one changed byte: a quick check accepts it only if the decoder does.
    section = Message(
        properties=Properties(message_id="id", user_id=b"u", creation_time=1), application_properties={"k": Int(1), "l": "x"}
    )
    good = section.encode()
    assert shapes.valid(good)
    changed: list[Any] = [
        good[:i] + bytes([octet]) + good[i + 1 :] for i in range(len(good)) for octet in (0, 1, 0x40, 0x7F, 0x80, 0xFF)
    ]
    for octets in changed:
        try:
            decode_message(octets)
            scan(octets)
        except RemoteProtocolError:
            assert arrived([octets]).refused
