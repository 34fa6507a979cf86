"""The fast way returns the same as the plain way: for generated frames and mutated ones, cut anywhere."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.amqp.composites import Composite
from penstock.broker_core.amqp.disposing import frames
from penstock.broker_core.amqp.encoder import encode
from penstock.broker_core.amqp.fastpath import MAX_LEARNT, MAX_TEMPLATES, Dispositions, Scanner, TransferRun, scan_plainly
from penstock.broker_core.amqp.frames import AMQP_FRAME, Frame, encode_frame, parse_frame
from penstock.broker_core.amqp.performatives import (
    Accepted,
    Disposition,
    Error,
    Flow,
    Modified,
    Rejected,
    Released,
    TransactionalState,
    Transfer,
)
from penstock.broker_core.amqp.types import Array, Described, Symbol

from .values import STEADY

LIMIT = 4096
uints = st.one_of(st.sampled_from([0, 1, 255, 256, 2**31, 2**32 - 1]), st.integers(0, 2**32 - 1))
optional = st.one_of(st.none(), uints)
states = st.sampled_from([None, Accepted(), Released(), Modified(delivery_failed=True), Rejected()])

transfers = st.builds(
    Transfer,
    handle=st.sampled_from([0, 1, 2, 300]), delivery_id=optional, delivery_tag=st.one_of(st.none(), st.binary(max_size=40)),
    message_format=st.sampled_from([None, 0, 0, 7]), settled=st.sampled_from([None, False, True]), more=st.booleans(),
    rcv_settle_mode=st.sampled_from([None, 0, 1]), state=states, resume=st.booleans(), aborted=st.booleans(),
    batchable=st.booleans(),
)  # fmt: skip
plain_transfers = st.builds(
    Transfer,
    handle=st.sampled_from([0, 1]), delivery_id=uints, delivery_tag=st.binary(min_size=0, max_size=6),
    message_format=st.just(0), settled=st.booleans(),
)  # fmt: skip
dispositions = st.builds(
    Disposition, role=st.booleans(), first=uints, last=optional, settled=st.booleans(), state=states, batchable=st.booleans()
)
flows = st.builds(
    Flow,
    next_incoming_id=optional, incoming_window=uints, next_outgoing_id=uints, outgoing_window=uints, handle=optional,
    delivery_count=optional, link_credit=optional, available=optional, drain=st.booleans(), echo=st.booleans(),
)  # fmt: skip


@st.composite
def buffers(draw: st.DrawFn) -> bytes:
    """Frames of clients: a few shapes many times, other frames between them, then some octets changed."""
    shapes = draw(st.lists(st.one_of(plain_transfers, transfers, dispositions, flows), min_size=1, max_size=4))
    frames = []
    for _ in range(draw(st.integers(1, 12))):
        shape: Composite | None = draw(st.sampled_from([*shapes, None]))
        channel = draw(st.sampled_from([0, 0, 1]))
        if isinstance(shape, Transfer) and shape.delivery_id is not None and draw(st.booleans()):
            shape.delivery_id = draw(uints)
        payload = draw(st.binary(max_size=30)) if isinstance(shape, Transfer) else b""
        frames.append(encode_frame(channel, b"" if shape is None else shape.encode(), payload))
    octets = bytearray(b"".join(frames * draw(st.integers(1, 3))))
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        octets[draw(st.integers(0, len(octets) - 1))] = draw(st.integers(0, 255))
    return bytes(octets[: draw(st.integers(0, len(octets)))]) if draw(st.booleans()) else bytes(octets)


def flat(result: tuple[list[Any], int, Any]) -> tuple[list[Any], int, str]:
    items = [frame for item in result[0] for frame in ([item] if isinstance(item, Frame) else item.frames())]
    return items, result[1], repr(result[2])


@given(buffers())
@settings(STEADY, max_examples=500)
def test_fast_is_plain(buffer: bytes) -> None:
    scanner = Scanner()
    plain = flat(scan_plainly(buffer, 0, LIMIT))
    assert flat(scanner.scan(buffer, 0, LIMIT)) == plain  # learning
    assert flat(scanner.scan(buffer, 0, LIMIT)) == plain  # with all templates learnt


@given(st.lists(buffers(), min_size=2, max_size=3))
@settings(STEADY, max_examples=200)
def test_templates_of_one_buffer_do_not_mislead_the_next(successive_buffers: list[bytes]) -> None:
    scanner = Scanner()
    for buffer in successive_buffers:
        assert flat(scanner.scan(buffer, 0, LIMIT)) == flat(scan_plainly(buffer, 0, LIMIT))


def test_one_item_at_a_time() -> None:
    buffer = b"".join(encode_frame(0, Transfer(handle=0, delivery_id=i, delivery_tag=b"t").encode()) for i in range(5))
    scanner, position, seen = Scanner(), 0, []
    while position < len(buffer):
        items, position, error = scanner.scan(buffer, position, LIMIT, True)
        assert error is None
        seen += items
    assert len(seen) == 5


@pytest.mark.parametrize("state", [None, TransactionalState(txn_id=b"\x00\x01")], ids=["plain", "transactional"])
def test_transfers_of_one_shape_become_a_run(state: TransactionalState | None) -> None:
    def frame(number: int) -> bytes:
        body = Transfer(handle=0, delivery_id=number, delivery_tag=b"%04d" % number, message_format=0, settled=False, state=state)
        return encode_frame(0, body.encode(), b"x")

    buffer = b"".join(map(frame, range(1000, 1100)))
    items, end, error = Scanner().scan(buffer, 0, LIMIT)
    assert error is None
    assert end == len(buffer)
    assert len(items) == 2  # the frame of the template, and all others
    assert isinstance(items[1], TransferRun)
    assert items[1].ids == list(range(1001, 1100))
    assert items[1].transfer.state == state


@pytest.mark.parametrize("last", [False, True])
def test_dispositions_of_one_shape_become_one_item(last: bool) -> None:
    dispositions = [
        Disposition(role=True, first=n, last=n + 3 if last else None, settled=True, state=Accepted()) for n in range(300, 400, 5)
    ]
    buffer = b"".join(encode_frame(0, body.encode()) for body in dispositions)
    items, end, error = Scanner().scan(buffer, 0, LIMIT)
    assert error is None
    assert end == len(buffer)
    assert len(items) == 2  # the frame of the template, and all others
    assert isinstance(items[1], Dispositions)
    assert [frame.performative for frame in items[1].frames()] == dispositions[1:]


def test_templates_are_bounded() -> None:
    scanner = Scanner()
    for handle in range(3 * MAX_TEMPLATES):
        body = Transfer(handle=handle * 2**16, delivery_id=1, delivery_tag=b"t", message_format=handle)
        scanner.scan(encode_frame(handle, body.encode()), 0, LIMIT)
    assert len(scanner._templates) <= MAX_TEMPLATES


def transfer_of(value: Any) -> Transfer:
    state = Described(Symbol("x"), value)
    return Transfer(handle=1, delivery_id=1, delivery_tag=b"t", message_format=0, state=state)


def disposition_of(value: Any) -> Disposition:
    return Disposition(role=True, first=1, last=2, state=Rejected(error=Error(condition="x", info={Symbol("k"): value})))


def flow_of(value: Any) -> Flow:
    return Flow(incoming_window=1, next_outgoing_id=1, outgoing_window=1, handle=1, properties={Symbol("k"): value})


@pytest.mark.parametrize("make", [transfer_of, disposition_of, flow_of])
def test_what_is_large_decoded_is_not_learnt(make: Callable[[Any], Composite]) -> None:
    """A template would keep it: symbols that fill a frame, or a thousand nulls in ten octets."""
    stand_in, nulls = encode(b"\xff" * 8), b"\xf0" + struct.pack(">II", 5, 1000) + b"\x40"
    symbols = make(Array("symbol", (Symbol("a"),) * 1000)).encode()
    octets = make(b"x" * MAX_LEARNT).encode()
    short = make(b"\xff" * 8).encode()
    assert stand_in in short
    for body in (symbols, octets, short.replace(stand_in, nulls)):
        scanner = Scanner()
        items, _, error = scanner.scan(encode_frame(0, body), 0, LIMIT)
        assert (len(items), error) == (1, None)
        assert not scanner._templates


@pytest.mark.parametrize(
    "body",
    [
        Transfer(handle=1, delivery_id=1, delivery_tag=b"t", message_format=0, state=TransactionalState(txn_id=b"x" * 32)),
        Transfer(handle=1, delivery_id=1, delivery_tag=b"t" * 32, message_format=0),
        Disposition(role=True, first=1, last=2, state=TransactionalState(txn_id=b"x", outcome=Accepted())),
        Disposition(role=True, first=1, last=2, state=Rejected(error=Error(condition="x:y", description="because"))),
        flow_of(b"x" * 32),
    ],
)
def test_what_clients_repeat_is_learnt(body: Composite) -> None:
    scanner = Scanner()
    scanner.scan(encode_frame(0, body.encode()), 0, LIMIT)
    assert len(scanner._templates) == 1


def test_it_is_fast_at_all() -> None:
    """Not a benchmark: the fast way is several times faster than the plain way, measured together."""
    buffer = b"".join(
        encode_frame(0, Transfer(handle=0, delivery_id=i, delivery_tag=b"%08d" % i, message_format=0).encode(), b"x" * 64)
        for i in range(1000, 2000)
    )
    scanner = Scanner()
    scanner.scan(buffer, 0, LIMIT)

    def best(call: Any) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            call(buffer, 0, LIMIT)
            times.append(time.perf_counter() - start)
        return min(times)

    assert best(scanner.scan) * 3 < best(scan_plainly)


@settings(STEADY)
@given(
    st.integers(0, 65535), st.lists(st.tuples(uints, uints), max_size=4), st.booleans(), states, st.booleans()
)  # fmt: skip
def test_dispositions_out_say_what_the_plain_way_says(
    channel: int, ranges: list[tuple[int, int]], role: bool, state: Any, settled: bool
) -> None:
    fields = {"role": role, "state": state, "settled": settled}
    encoded = frames(channel, ranges, **fields)
    if encoded is None:
        assert isinstance(state, (Modified, Rejected))
        return
    assert [parse_frame(octets, 0, len(octets), AMQP_FRAME) for octets in encoded] == [
        Frame(channel, Disposition(first=first, last=None if first == last else last, **fields), b"") for first, last in ranges
    ]
