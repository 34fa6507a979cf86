"""Passes, and when one runs: the table of states and events, as a table and in the orders in which events come."""

from __future__ import annotations

import itertools
import random

import pytest

from penstock.broker_core.amqp_plane.loop.gate import (
    CALL_SOON,
    DISK,
    HOLD_UP,
    IDLE,
    NOTHING,
    READ,
    READ_OVER,
    READING,
    READING_WAITING,
    READING_WANTED,
    RUN,
    RUN_NOW,
    SCHEDULED,
    TRANSITIONS,
    WAITING,
    WANT,
    Gate,
)

STATES = {IDLE, SCHEDULED, READING, READING_WANTED, WAITING, READING_WAITING}
EVENTS = {WANT, READ, READ_OVER, RUN, HOLD_UP, DISK}


def made() -> tuple[Gate, list[str]]:
    did: list[str] = []
    return Gate(lambda: did.append("call"), lambda: did.append("run")), did


def test_every_state_is_listed_and_every_row_ends_in_one() -> None:
    assert set(TRANSITIONS) == STATES
    for events in TRANSITIONS.values():
        assert set(events) <= EVENTS
        for after, action in events.values():
            assert after in STATES
            assert action in {NOTHING, CALL_SOON, RUN_NOW}


def test_a_pass_that_is_wanted_is_on_its_way_whatever_the_state() -> None:
    """No request is forgotten: a call is under way, or the socket that is being read runs the pass."""
    for state, events in TRANSITIONS.items():
        after, action = events[WANT]
        assert after in (SCHEDULED, READING_WANTED), state
        assert (action is CALL_SOON) == (after is SCHEDULED and state is not SCHEDULED), "called once"


def test_a_pass_that_waits_for_the_disk_goes_on_when_the_disk_has_moved() -> None:
    assert TRANSITIONS[WAITING][DISK] == (SCHEDULED, CALL_SOON)
    assert {events[HOLD_UP][0] for events in TRANSITIONS.values() if HOLD_UP in events} == {WAITING, SCHEDULED}
    assert TRANSITIONS[READING_WAITING][READ_OVER] == (WAITING, NOTHING), "it still waits after reading"


def test_what_a_lone_socket_brings_is_carried_out_when_it_is_read_without_a_round_of_the_loop() -> None:
    gate, did = made()
    for event in (READ, WANT, WANT):
        gate.happened(event)
        assert did == []
    gate.happened(READ_OVER)
    assert (gate.state, did) == (IDLE, ["run"])


def test_what_a_lone_socket_brings_joins_the_pass_that_is_scheduled() -> None:
    gate, did = made()
    for event in (WANT, READ, WANT, READ_OVER):
        gate.happened(event)
    assert (gate.state, did) == (SCHEDULED, ["call"])
    gate.happened(RUN)
    assert (gate.state, did) == (IDLE, ["call", "run"])


def test_what_a_pass_itself_wants_is_for_the_next() -> None:
    did: list[str] = []
    gate = Gate(lambda: did.append("call"), lambda: gate.happened(WANT))
    gate.happened(WANT)
    gate.happened(RUN)
    assert (gate.state, did) == (SCHEDULED, ["call", "call"])


UNLISTED = [(s, e) for s, e in itertools.product(sorted(STATES), sorted(EVENTS)) if e not in TRANSITIONS[s]]


@pytest.mark.parametrize(("state", "event"), UNLISTED)
def test_an_event_that_a_state_does_not_list_is_a_fault_and_changes_nothing(state: str, event: str) -> None:
    gate, did = made()
    gate.state = state
    with pytest.raises(KeyError):
        gate.happened(event)
    assert (gate.state, did) == (state, [])


@pytest.mark.parametrize("seed", range(3))
def test_in_any_order_each_wish_gets_a_pass_and_each_call_is_answered(seed: int) -> None:
    """As in the plane: sockets are read between callbacks, and a commit may be held up until the disk is ready."""
    chance = random.Random(seed)
    calls = wanted = passes = 0

    def call() -> None:
        nonlocal calls
        calls += 1

    def run() -> None:
        nonlocal wanted, passes
        if chance.random() < 0.3:
            gate.happened(HOLD_UP)
        else:
            passes, wanted = passes + 1, 0
            if chance.random() < 0.3:
                gate.happened(WANT)

    gate = Gate(call, run)
    for _ in range(2000):
        step = chance.choice((WANT, "read", "loop", DISK))
        if step == "read":
            gate.happened(READ)
            for _ in range(chance.randrange(3)):
                wanted += 1
                gate.happened(WANT)
            gate.happened(READ_OVER)
        elif step == "loop":
            if calls:
                calls -= 1
                gate.happened(RUN)
        else:
            wanted += step == WANT
            gate.happened(step)
        assert calls == (gate.state is SCHEDULED), f"seed {seed}"
        assert gate.state in (IDLE, SCHEDULED, WAITING)
        assert gate.state is not IDLE or not wanted, f"seed {seed}: a pass is wanted, but not scheduled"
        assert gate.waits == (gate.state is WAITING)
    assert passes > 100
