"""Runs of transfers into a connection: with any special case among them, the fast way returns the same as the plain way."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker_core.amqp import Connection, ConnectionSettings, Role, events
from penstock.broker_core.amqp.frames import encode_frame, protocol_header
from penstock.broker_core.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Open,
    Received,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from penstock.broker_core.amqp.states import LinkState

from .values import flatten
from .wire import Wire


def transfers(count: int = 40, first: int = 1000, size: int = 10, **fields: Any) -> list[tuple[Transfer, bytes]]:
    """Transfers of one shape. `fields` may be functions of the number."""
    result = []
    for number in range(count):
        field_values = {name: value(number) if callable(value) else value for name, value in fields.items()}
        base = {
            "handle": 0,
            "delivery_id": first + number,
            "delivery_tag": b"%06d" % number,
            "message_format": 0,
            "settled": False,
        }
        result.append((Transfer(**{**base, **field_values}), b"x" * size))
    return result


def with_size(sizes: dict[int, int]) -> list[tuple[Transfer, bytes]]:
    return [(t, b"x" * sizes.get(n, 10)) for n, (t, _) in enumerate(transfers())]


def run(
    sent_transfers: list[tuple[Transfer, bytes]],
    fast: bool,
    credit: int = 1000,
    attach: Any = (),
    ours: Any = (),
    warm: bool = False,
) -> list[Any]:
    settings = ConnectionSettings(container_id="s", incoming_window=32, max_message_size=100, max_frame_size=4096)
    connection = Connection(Role.SERVER, settings, fast=fast)
    seen: list[Any] = []

    def feed(octets: bytes) -> list[events.Event]:
        events_ = connection.receive_data(octets)
        seen.extend(flatten(events_))
        return events_

    def frame(body: Any) -> bytes:
        return encode_frame(0, body.encode())

    feed(protocol_header(0) + frame(Open(container_id="p")))
    connection.open()
    session = feed(frame(Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9)))[0].session  # type: ignore[union-attr]
    session.begin()
    theirs = Attach(
        **{"name": "l", "handle": 0, "role": False, "initial_delivery_count": 2**32 - 5, "source": Source(), **dict(attach)}
    )
    if warm:  # an earlier link of the same handle has taught the shape, so that the first transfer is part of a run
        feed(frame(Attach(name="w", handle=0, role=False, initial_delivery_count=0)))
        early = session.remote_links[0]
        early.attach(source=Source(), target=Target())
        early.grant(1)
        first = sent_transfers[0][0]
        shape = Transfer(**{f.attribute: getattr(first, f.attribute) for f in Transfer.FIELDS} | {"delivery_id": 500})
        feed(frame(shape) + frame(Detach(handle=0, closed=True)))
        if early.state is LinkState.DETACH_RCVD:
            early.detach()
        seen.clear()
    link = feed(frame(theirs))[0].link  # type: ignore[union-attr]
    link.attach(source=Source(), target=Target(), **dict(ours))
    link.grant(credit)
    connection.data_to_send()
    out = []
    for begin in range(0, len(sent_transfers), 20):  # a window of 32 is renewed inside, and the peer receives the flow afterwards
        feed(b"".join(encode_frame(0, t.encode(), payload) for t, payload in sent_transfers[begin : begin + 20]))
        out.append(connection.data_to_send())
    numbers = (
        link.delivery_count,
        link.link_credit,
        session.incoming_window,
        session.next_incoming_id,
        session.state,
        link.state,
    )
    return [seen, out, *numbers, sorted(link.unsettled), sorted(session.incoming)]


CASES: dict[str, tuple[list[tuple[Transfer, bytes]], dict[str, Any]]] = {
    "nothing special": (transfers(), {}),
    "settled": (transfers(settled=True), {}),
    "batchable": (transfers(batchable=True), {}),
    "beyond credit": (transfers(), {"credit": 25}),
    "ids across the wrap": (transfers(delivery_id=lambda n: (2**32 - 15 + n) % 2**32), {}),
    "a gap in the ids": (transfers(delivery_id=lambda n: 1000 + n + (n > 10)), {}),
    "ids out of order": (transfers(delivery_id=lambda n: 1000 + {10: 11, 11: 10}.get(n, n)), {}),
    "ids that go back": (transfers(delivery_id=lambda n: 1000 + n - 5 * (n > 30)), {}),
    "an id again in the next buffer": (transfers(delivery_id=lambda n: 1000 + n - (n > 19)), {}),
    # Tags.
    "a tag again": (transfers(delivery_tag=lambda n: b"%06d" % (n % 30)), {}),
    "a tag again in one buffer": (transfers(delivery_tag=lambda n: b"%06d" % (n % 7)), {}),
    "a tag again within a run": (transfers(delivery_tag=lambda n: b"%06d" % (4 if n == 5 else n)), {}),
    "tags again, all settled": (transfers(settled=True, delivery_tag=lambda n: b"%06d" % (n % 7)), {}),
    "tags that are too long": (transfers(delivery_tag=lambda n: b"%033d" % n), {"warm": True}),
    "tags as long as they may be": (transfers(delivery_tag=lambda n: b"%032d" % n), {}),
    # Messages.
    "one message too large": (with_size({17: 101}), {}),
    "one message as large as it may be": (with_size({17: 100}), {}),
    # States and modes.
    "a state": (transfers(state=Accepted()), {}),
    "of a transaction": (transfers(state=TransactionalState(txn_id=b"t")), {}),
    "of several transactions": (transfers(state=lambda n: TransactionalState(txn_id=b"%d" % (n // 5))), {}),
    "resumed, and unknown here": (transfers(resume=True), {}),
    # Settle modes.
    "a mode of its own": (transfers(rcv_settle_mode=1), {}),
    "a mode of its own, allowed": (transfers(rcv_settle_mode=0), {"attach": {"rcv_settle_mode": 1}}),
    # Settlement.
    "unsettled where the sender settles": (transfers(), {"attach": {"snd_settle_mode": 1}, "warm": True}),
    "settled where the sender settles": (transfers(settled=True), {"attach": {"snd_settle_mode": 1}, "warm": True}),
    "settled where the sender does not": (transfers(settled=True), {"attach": {"snd_settle_mode": 0}, "warm": True}),
    "our map is incomplete": (transfers(), {"ours": {"unsettled": {}, "incomplete_unsettled": True}, "warm": True}),
    "in two frames each": (
        transfers(more=lambda n: n % 2 == 0, delivery_id=lambda n: 1000 + n // 2, delivery_tag=lambda n: b"%06d" % (n // 2)),
        {},
    ),
    "aborted": (transfers(aborted=True), {}),
    "no such link": (transfers(handle=3), {}),
    "the link goes missing": (transfers(handle=lambda n: 0 if n < 10 else 1), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_fast_and_plain_agree(name: str) -> None:
    sent_transfers, options = CASES[name]
    assert run(sent_transfers, True, **options) == run(sent_transfers, False, **options)


@pytest.mark.parametrize(
    ("name", "delivered", "condition"),
    [
        ("nothing special", 40, None),
        ("beyond credit", 25, "transfer-limit-exceeded"),
        ("ids across the wrap", 40, None),
        ("a gap in the ids", 40, None),
        ("ids out of order", 11, "invalid-field"),
        ("ids that go back", 31, "invalid-field"),
        ("an id again in the next buffer", 20, "invalid-field"),
        # Tags.
        ("a tag again", 30, "not-allowed"),
        ("a tag again in one buffer", 7, "not-allowed"),
        ("a tag again within a run", 5, "not-allowed"),
        ("tags again, all settled", 40, None),
        ("tags that are too long", 0, "invalid-field"),
        ("tags as long as they may be", 40, None),
        # Messages.
        ("one message too large", 17, "message-size-exceeded"),
        ("one message as large as it may be", 40, None),
        ("resumed, and unknown here", 0, None),
        ("a mode of its own", 0, "invalid-field"),
        ("a mode of its own, allowed", 40, None),
        # Settlement.
        ("unsettled where the sender settles", 0, "not-allowed"),
        ("settled where the sender does not", 0, "not-allowed"),
        # Links.
        ("our map is incomplete", 0, "not-allowed"),
        ("in two frames each", 20, None),
        ("no such link", 0, "unattached-handle"),
        ("the link goes missing", 10, "unattached-handle"),
    ],
)
def test_what_they_say(name: str, delivered: int, condition: str | None) -> None:
    sent_transfers, options = CASES[name]
    seen = run(sent_transfers, True, **options)[0]
    assert len([event for event in seen if isinstance(event, tuple)]) == delivered
    violations = [event for event in seen if str(event).startswith("Violated")]
    if condition is None:
        assert not violations
    else:
        assert condition in violations[0]


@pytest.mark.parametrize(
    ("flags", "settled"),
    [([None, None], False), ([True, None], True), ([None, True], True), ([False, True], True), ([False, None], False)],
)
def test_settled_adds_up_over_the_transfers_of_a_delivery(flags: list[bool | None], settled: bool) -> None:
    w = Wire().opened()
    session = w.session()
    link = w.receiver()
    w.transfer(0, b"t", settled=flags[0], more=True)
    (event,) = w.transfer(None, None, settled=flags[1])
    assert isinstance(event, events.Delivered)
    assert event.deliveries[0].settled is settled
    assert bool(session.incoming) is bool(link.unsettled) is not settled


def test_a_terminal_state_in_a_transfer_is_the_last() -> None:
    w = Wire().opened()
    session = w.session()
    w.receiver()
    w.transfer(0, b"t", state=Received(section_number=0, section_offset=0), more=True)
    w.transfer(None, None, state=Accepted(), more=True)
    w.transfer(None, None, state=Received(section_number=1, section_offset=0))
    assert session.incoming[0].remote_state == Accepted()


@pytest.mark.parametrize("together", [True, False])
def test_available_goes_down_and_never_below_zero(together: bool) -> None:
    w = Wire().opened()
    w.session()
    link = w.receiver(credit=50)
    w.flow(handle=0, delivery_count=0, link_credit=50, available=4)
    seen = []
    for number in range(300, 306):
        w.transfer(number, b"%d" % number)
        seen.append(link.available)
    assert seen == [3, 2, 1, 0, 0, 0]
    w.flow(next_outgoing_id=6, handle=0, delivery_count=6, link_credit=44, available=9)
    bodies = [Transfer(handle=0, delivery_id=n, delivery_tag=b"%d" % n, message_format=0) for n in range(306, 312)]
    if together:
        w.octets(b"".join(encode_frame(0, body.encode(), b"m") for body in bodies))
    else:
        for body in bodies:
            w.peer(body, payload=b"m")
    assert link.available == 3
