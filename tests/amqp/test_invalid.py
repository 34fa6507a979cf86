"""Sound frames with an invalid field: each ends the link that it names, or its session, or the connection."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker_core.amqp import events
from penstock.broker_core.amqp.encoder import encode
from penstock.broker_core.amqp.errors import Scope
from penstock.broker_core.amqp.frames import encode_frame
from penstock.broker_core.amqp.links import FREED
from penstock.broker_core.amqp.performatives import Detach, End
from penstock.broker_core.amqp.types import Described, Symbol, Timestamp, UInt, ULong

from .wire import Wire

NUMBER_KEYS = Described(ULong(0x27), [None, None, {UInt(7): 1}])  # modified
IN_TRANSACTION = Described(ULong(0x34), [b"txn", NUMBER_KEYS])
MODE_9 = Described(ULong(0x28), ["q", UInt(9)])  # source
ZERO = UInt(0)
WINDOWS: list[Any] = [UInt(0), UInt(100), UInt(0), UInt(100)]


def frame(code: int, *fields: Any, channel: int = 0, payload: bytes = b"") -> bytes:
    return encode_frame(channel, encode(Described(ULong(code), list(fields))), payload)


def disposition(state: Any, first: Any = ZERO, last: Any = None) -> bytes:
    return frame(0x15, True, first, last, True, state)


def transfer(*fields: Any) -> bytes:
    return frame(0x14, *fields, payload=b"m")


#: The peer's handle 0 sends to us, handle 1 receives. It has deliveries 0 and 1.
CASES: dict[str, tuple[bytes, str | None]] = {
    "modified with numbers as keys": (disposition(NUMBER_KEYS), "out"),
    "of two deliveries": (disposition(NUMBER_KEYS, last=UInt(1)), "out"),
    "in a transaction": (disposition(IN_TRANSACTION), "out"),
    "a rejected whose error is a text": (disposition(Described(ULong(0x25), ["no"])), "out"),
    "an accepted with a field": (disposition(Described(ULong(0x24), [True])), "out"),
    # A disposition.
    "a state that is a text": (disposition("accepted"), "out"),
    "a settled that is a number": (frame(0x15, True, UInt(0), None, UInt(1)), "out"),
    "of deliveries that are not there": (disposition(NUMBER_KEYS, UInt(70), UInt(90)), ""),
    # The range.
    "a range that goes back": (disposition(NUMBER_KEYS, UInt(1), UInt(0)), None),
    "a first that is a text": (disposition(Described(ULong(0x24), []), "0"), None),
    "a disposition with seven fields": (frame(0x15, True, UInt(0), None, True, None, False, 7), None),
    # A transfer.
    "a delivery-tag that is a text": (transfer(UInt(0), UInt(0), "tag", UInt(0)), "in"),
    "a message-format that is a text": (transfer(UInt(0), UInt(0), b"tag", "0"), "in"),
    "the state of a message": (transfer(UInt(0), UInt(0), b"tag", UInt(0), False, False, None, NUMBER_KEYS), "in"),
    "a transfer for no handle": (transfer(UInt(7), UInt(0), "tag"), None),
    "a handle that is a text": (transfer("0", UInt(0), b"tag"), None),
    # A flow.
    "a credit that is a text": (frame(0x13, *WINDOWS, UInt(1), UInt(0), "10"), "out"),
    "properties of a flow with texts as keys": (
        frame(0x13, *WINDOWS, UInt(1), UInt(0), UInt(9), None, False, False, {"a": 1}),
        "out",
    ),
    "a window that is a text": (frame(0x13, UInt(0), "100", UInt(0), UInt(100)), None),
    "an echo that is a number, of the session": (frame(0x13, *WINDOWS, None, None, None, None, False, UInt(1)), None),
    "a detach whose error is a text": (frame(0x16, UInt(0), True, "no"), "in"),
    "a detach without a handle": (frame(0x16, None, True), None),
    "an attach to a durable source of mode 9": (frame(0x12, "new", UInt(2), True, None, None, MODE_9), "new"),
    "an attach whose properties have texts as keys": (
        frame(0x12, "new", UInt(2), False, None, None, None, None, None, None, UInt(0), None, None, None, {"a": 1}),
        "new",
    ),
    "an attach without a name": (frame(0x12, None, UInt(2), True), None),
    "an attach without a role": (frame(0x12, "new", UInt(2)), None),
}


@pytest.fixture(params=[False, True], ids=["answered at once", "answered by the application"])
def wire(request: pytest.FixtureRequest) -> Wire:
    w = Wire(answers_violations=not request.param).opened()
    w.session(1)
    session = w.session()
    w.receiver()
    sender = w.sender(handle=1)
    w.do("two messages", lambda: [sender.send(tag, b"m") for tag in (b"0", b"1")])
    assert [int(number) for number in session.outgoing] == [0, 1]
    return w


def answered(w: Wire, octets: bytes) -> list[events.Event]:
    new_events = w.octets(octets, "a frame")
    for event in new_events:
        if isinstance(event, events.Violated):
            w.do("answer", lambda event=event: w.us.answer(event))  # type: ignore[misc]
    return new_events


def our_last_frame(w: Wire) -> str:
    return [line for line in w.lines if line.startswith("  <- [")][-1]


@pytest.mark.parametrize("case", CASES)
def test_it_ends_what_it_names(wire: Wire, case: str) -> None:
    octets, name = CASES[case]
    new_events = answered(wire, octets)
    violated = [event for event in new_events if isinstance(event, events.Violated)]
    if name == "":
        assert not violated
        assert [link.state.value for link in wire.us.sessions[1].links.values()] == ["attached", "attached"]
        return
    [event] = violated
    assert event.error.condition == ("amqp:session:unattached-handle" if "no handle" in case else "amqp:invalid-field")
    assert (None if event.link is None else event.link.name) == name
    assert event.error.scope is (Scope.SESSION if name is None else Scope.LINK)
    assert our_last_frame(wire).startswith(f"  <- [1] {'end' if name is None else 'detach'}(")
    assert event.error.condition in our_last_frame(wire)
    answered(wire, frame(0x13, *WINDOWS, None, None, None, None, False, True, channel=1))  # the other session continues
    assert our_last_frame(wire).startswith("  <- [0] flow(")


def test_the_session_goes_on_with_its_numbers(wire: Wire) -> None:
    """An invalid transfer has used the window, and an invalid flow has set it. Behind them the other links work."""
    session = wire.us.sessions[1]
    answered(wire, transfer(UInt(0), UInt(0), "tag"))
    assert (session.next_incoming_id, session.incoming_window) == (1, 2047)
    answered(wire, frame(0x13, UInt(2), UInt(7), UInt(1), UInt(100), UInt(1), UInt(0), "10"))
    assert session.remote_incoming_window == 7
    answered(wire, disposition(NUMBER_KEYS))  # the link has ended
    assert wire.us.state.value == "opened"
    assert session.state.value == "mapped"


def test_its_transaction_cannot_be_committed_in_part(wire: Wire) -> None:
    """An invalid state still names its transaction, so the count of mentions exceeds the count of applied states."""
    wire.us.coordinated.open(b"txn")
    new_events = answered(
        wire, disposition(IN_TRANSACTION) + transfer(UInt(0), UInt(0), b"t", UInt(0), False, False, None, IN_TRANSACTION)
    )
    assert [event for event in new_events if isinstance(event, events.Named)] == [events.Named(b"txn", 1)] * 2
    symbolic = Described(Symbol("amqp:transactional-state:list"), [b"txn", NUMBER_KEYS])
    assert answered(wire, disposition(symbolic, UInt(70))) == [events.Named(b"txn", 1)]
    assert answered(wire, disposition(Described(ULong(0x34), [Timestamp(1), None]), UInt(70))) == []


def test_repeated_it_costs_nothing(wire: Wire) -> None:
    """The deliveries of a link in error are forgotten, so a repeated disposition changes nothing."""
    octets = disposition(NUMBER_KEYS, UInt(0), UInt(0x7FFFFFFF))
    assert len(answered(wire, octets * 50)) == 1
    assert not wire.us.sessions[1].outgoing


@pytest.mark.parametrize("code", [0x10, 0x11])
def test_an_open_or_begin_ends_the_connection(wire: Wire, code: int) -> None:
    [event] = answered(wire, frame(code, Timestamp(1)))
    assert isinstance(event, events.Violated)
    assert (event.error.condition, event.session) == ("amqp:invalid-field", None)
    assert our_last_frame(wire).startswith("  <- [0] close(error")


def test_an_end_or_close_is_the_last_frame_all_the_same(wire: Wire) -> None:
    [event] = answered(wire, frame(0x17, "no", channel=0))
    assert isinstance(event, events.Violated)
    assert event.session is not None
    assert our_last_frame(wire).startswith("  <- [1] end(error")
    assert 1 not in wire.us.sessions
    answered(wire, frame(0x18, "no"))
    assert wire.us.finished
    assert our_last_frame(wire).startswith("  <- [0] close(error")


# ---- frames that cross


def test_a_second_detach_or_end_is_ignored(wire: Wire) -> None:
    """fe2o3-amqp detaches twice when its attach is refused."""
    for _ in range(3):
        wire.peer(Detach(handle=0, closed=True))
    assert wire.us.sessions[1].state.value == "mapped"
    for _ in range(3):
        wire.peer(End())
    assert wire.us.state.value == "opened"
    [event] = wire.peer(Detach(handle=9), channel=1)
    assert isinstance(event, events.Violated)  # this handle was never attached
    assert event.session is not None
    [event] = wire.peer(End(), channel=7)
    assert isinstance(event, events.Violated)  # this channel never had a session
    assert event.session is None


def test_freed_handles_are_bounded() -> None:
    w = Wire(handle_max=1 << 20).opened()
    session = w.session()
    for handle in range(FREED + 10):
        session.handles.remote_links[handle] = None
        session.handles.detached(handle)
    assert len(session.handles.left) == FREED
    assert 9 not in session.handles.left
    assert 10 in session.handles.left
