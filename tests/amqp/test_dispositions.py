"""Dispositions that name many deliveries, repeatedly: their effects and their cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.amqp import events, serial
from penstock.broker_core.amqp.deliveries import Unsettled
from penstock.broker_core.amqp.frames import encode_frame
from penstock.broker_core.amqp.performatives import (
    RECEIVER,
    TERMINAL,
    Accepted,
    DeliveryState,
    Disposition,
    Modified,
    Received,
    Released,
    TransactionalState,
)

from .values import STEADY, Pair, calls

MANY = 5000
ALL = 2**31 - 1


def in_transaction(outcome: Any, txn_id: bytes = b"1") -> TransactionalState:
    return TransactionalState(txn_id=txn_id, outcome=outcome)


def sending(count: int, first: int = 0) -> tuple[Any, Any]:
    """A pair, and its sender with `count` unsettled deliveries."""
    pair = Pair(incoming_window=MANY).opened()
    session = pair.session(first_outgoing_id=first)
    sender, receiver = pair.link(session=session)
    send(pair, sender, receiver, count)
    return pair, sender


def send(pair: Any, sender: Any, receiver: Any, count: int) -> None:
    receiver.grant(count)
    pair.pump()
    number = serial.add(sender.session.next_delivery_id, 0)
    tags = [b"%d" % serial.add(number, step) for step in range(count)]
    assert len(sender.send_many(tags, [b"m"] * count)) == count
    pair.pump()


def disposition_frame(first: int, last: int | None, state: DeliveryState | None, settled: bool = False) -> bytes:
    disposition = Disposition(role=RECEIVER, first=first, last=last, settled=settled, state=state)
    return encode_frame(0, disposition.encode())


def changed_ids(sender: Any, *frames: bytes) -> list[int]:
    """The ids of the deliveries that these frames change."""
    client_events = sender.session.connection.receive_data(b"".join(frames))
    return [d.id for event in client_events if isinstance(event, events.Disposed) for d in event.deliveries]


A, R = Accepted(), Released()
REPEATED: dict[str, Callable[[int], bytes]] = {
    "no state": lambda n: disposition_frame(n % 2, ALL, None),
    "no outcome": lambda n: disposition_frame(0, ALL, Received(section_number=n % 2, section_offset=0)),
    "one outcome": lambda n: disposition_frame(0, ALL, A),
    "one outcome, other ranges": lambda n: disposition_frame(n % 7, MANY - n % 5, A),
    "one after the other": lambda n: disposition_frame(0, ALL, R if n % 2 else A),
    "in a transaction": lambda n: disposition_frame(0, MANY - 1, in_transaction(A)),
    "in a transaction, other ranges": lambda n: disposition_frame(n % 7, MANY - 1 - n % 5, in_transaction(A)),
    "nothing is there": lambda n: disposition_frame(2 * MANY, 3 * MANY - n % 2, A, settled=True),
    "nothing is left": lambda n: disposition_frame(0, MANY - 1, R if n % 2 else A, settled=True),
}


@pytest.mark.parametrize("case", REPEATED)
def test_what_a_repeated_disposition_costs_is_what_it_changes(case: str) -> None:
    _, sender = sending(MANY)
    frame = REPEATED[case]
    for number in range(10):
        changed_ids(sender, frame(number))
    more = [frame(number) for number in range(10, 30)]
    assert changed_ids(sender, *more[:10]) == []
    assert calls(lambda: changed_ids(sender, *more[10:])) < MANY / 2


def test_a_hole_or_two_change_nothing_in_that() -> None:
    _, sender = sending(MANY)
    assert changed_ids(
        sender, disposition_frame(10, 10, A, settled=True), disposition_frame(MANY // 2, MANY // 2, A, settled=True)
    ) == [10, MANY // 2]
    assert changed_ids(sender, disposition_frame(11, MANY // 2 - 1, A, settled=True)) == list(range(11, MANY // 2))
    changed_ids(sender, disposition_frame(10, MANY // 2, R, settled=True))
    assert (
        calls(lambda: changed_ids(sender, *(disposition_frame(n, MANY // 2, R, settled=True) for n in range(10, 20)))) < MANY / 2
    )
    assert changed_ids(sender, disposition_frame(0, ALL, A, settled=True)) == [*range(10), *range(MANY // 2 + 1, MANY)]


def test_outcomes_in_a_transaction_are_not_changed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unsettled, "SPARE", 100)
    _, sender = sending(10)
    frames = [disposition_frame(0, 9, in_transaction(R if n % 2 else A)) for n in range(50)]
    assert len(changed_ids(sender, *frames[:20])) == 200
    client_events = sender.session.connection.receive_data(b"".join(frames[20:]))
    violated = next(event for event in client_events if isinstance(event, events.Violated))
    assert violated.error.condition == "amqp:resource-limit-exceeded"
    assert violated.session is sender.session


def test_a_client_that_changes_an_outcome_now_and_then_may_do_so_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unsettled, "SPARE", 0)
    pair, sender = sending(10)
    receiver = next(iter(pair.server.sessions[0].links.values()))
    for _ in range(20):
        first = min(sender.session.outgoing)
        for outcome in (A, R, A):
            assert len(changed_ids(sender, disposition_frame(first, first + 9, in_transaction(outcome)))) == 10
        assert len(changed_ids(sender, disposition_frame(first, first + 9, in_transaction(A), settled=True))) == 10
        receiver.session.dispose(list(receiver.unsettled.values()), A)
        pair.server.data_to_send()
        send(pair, sender, receiver, 10)


def test_what_a_transaction_was_told_does_not_count_behind_its_end() -> None:
    _, sender = sending(4)
    state, known = in_transaction(A), sender.session.connection.coordinated
    known.open(b"1")
    assert changed_ids(sender, disposition_frame(0, 3, state)) == [0, 1, 2, 3]
    assert changed_ids(sender, disposition_frame(0, 3, state)) == []
    known.close(b"1")
    assert changed_ids(sender, disposition_frame(0, 3, state)) == [0, 1, 2, 3]


def test_of_two_states_that_are_kept_in_short_none_is_taken_for_the_other() -> None:
    _, sender = sending(2)
    first_state, second_state = (in_transaction(Modified(message_annotations={"x-opt-n": number})) for number in (1, 2))  # type: ignore[dict-item]
    assert changed_ids(sender, disposition_frame(0, 1, first_state)) == [0, 1]
    assert changed_ids(sender, disposition_frame(0, 1, second_state)) == [0, 1]


STATES = [A, R, Received(section_number=1, section_offset=0), None, in_transaction(A), in_transaction(R), in_transaction(A, b"2")]
steps = st.one_of(
    st.integers(1, 20),
    st.tuples(st.integers(-3, 70), st.integers(0, 70), st.sampled_from(STATES), st.booleans()),
    st.tuples(st.integers(-3, 70), st.just(ALL), st.sampled_from(STATES), st.booleans()),
)


@given(st.sampled_from([0, 2**32 - 20, 2**31 - 20]), st.lists(steps, max_size=30))
@settings(STEADY, max_examples=150)
def test_ranges_are_what_a_walk_over_all_would_say(first: int, history: list[Any]) -> None:
    pair, sender = sending(5, first)
    receiver = next(iter(pair.server.sessions[0].links.values()))
    known: dict[int, list[Any]] = {n: [None, None] for n in range(5)}  # by steps from `first`: outcome, state in a transaction
    newest = 5
    for step in history:
        if isinstance(step, int):
            send(pair, sender, receiver, step)
            known |= {number: [None, None] for number in range(newest, newest + step)}
            newest += step
            continue
        begin, span, state, settled = step
        changed = [n for n in known if begin <= n <= begin + span and _changes(known[n], state, settled)]
        frame = disposition_frame(serial.add(first, begin), serial.add(first, begin + span), state, settled)
        assert changed_ids(sender, frame) == [serial.add(first, n) for n in changed]
        if settled:
            known = {number: states for number, states in known.items() if number not in changed}
        for number in changed if not settled else ():
            known[number][isinstance(state, TransactionalState)] = state
    assert sorted(sender.unsettled) == sorted(b"%d" % serial.add(first, number) for number in known)


def _changes(known: list[Any], state: Any, settled: bool) -> bool:
    if settled:
        return True
    if isinstance(state, TERMINAL):
        return known[0] is None
    return isinstance(state, TransactionalState) and known[1] != state
