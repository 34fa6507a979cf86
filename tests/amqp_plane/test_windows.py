"""Links that wait for the incoming window of their session (2.5.6): any flow that opens it lets them continue, each in order."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.broker_core.amqp.performatives import Accepted, Detach, Disposition, End, Flow, Source, Transfer
from penstock.broker_core.amqp.types import Symbol

from .frames import flow, message, says
from .harness import Script, Stage, stage
from .scenarios_outgoing import filled, numbered

LARGE = message(b"x" * 1200)  # three frames of 512 octets


def _half_sent(s: Stage, **fields: bool) -> Script:
    """Open a window of two frames for a message of three; `fields` are those of the first flow."""
    a = s.script(max_frame_size=512)
    a.frame_size = 512
    a.begin(incoming_window=2)
    a.receiver()
    a.receiver(handle=1, name="another")
    a.send(flow(0, 10, incoming_window=2, **fields))
    a.expect(Transfer, handle=0, more=True)
    a.expect(Transfer, handle=0, more=True)
    s.settle()
    return a


def test_a_flow_that_names_another_link_opens_the_window(tmp_path: Path) -> None:
    with stage(tmp_path) as s:
        s.declare("q")
        filled(s, *numbered(3))
        a = s.script()
        a.begin(incoming_window=2)
        a.receiver()
        a.receiver(handle=1, name="another")
        a.send(flow(0, 10, incoming_window=2))
        a.expect_messages(b"m0", b"m1")
        s.settle()
        a.send(flow(1, 0, incoming_window=5))
        a.expect_messages(b"m2")


def test_it_opens_it_for_what_comes_behind_the_rest_of_a_message(tmp_path: Path) -> None:
    with stage(tmp_path) as s:
        s.declare("q")
        filled(s, LARGE, message(b"m1"))
        a = _half_sent(s)
        a.send(flow(1, 0, incoming_window=20))
        a.expect_message()
        a.expect_messages(b"m1")


def test_a_flow_for_which_its_link_ends_opens_it_too(tmp_path: Path) -> None:
    with stage(tmp_path) as s:
        s.declare("q")
        filled(s, *numbered(3))
        a = s.script()
        a.begin(incoming_window=2)
        a.receiver()
        a.receiver(handle=1, name="another")
        a.send(flow(0, 10, incoming_window=2))
        a.expect_messages(b"m0", b"m1")
        s.settle()
        a.send(flow(1, 0, incoming_window=5, properties={Symbol("txn-id"): b"no transaction"}))
        a.expect_messages(b"m2")
        a.expect(Detach, handle=1)


@pytest.mark.parametrize("window", [20, 1], ids=["more than enough", "just enough"])
@pytest.mark.parametrize("named", [None, 1], ids=["no link named", "another named"])
@pytest.mark.parametrize("when", ["at first", "half way"])
def test_a_drain_is_answered_behind_a_half_sent_message(tmp_path: Path, when: str, named: int | None, window: int) -> None:
    with stage(tmp_path) as s:
        s.declare("q")
        filled(s, LARGE)
        a = _half_sent(s, drain=when == "at first")
        if when == "half way":
            a.send(flow(0, 10, incoming_window=0, drain=True))
            s.settle()
        a.send(flow(None, incoming_window=window) if named is None else flow(named, 0, incoming_window=window))
        a.expect_message()
        a.expect(Flow, handle=0, delivery_count=10, link_credit=0, drain=True)


def test_a_drain_whose_receiver_asks_again_when_it_opens_the_window_is_answered_once(tmp_path: Path) -> None:
    with stage(tmp_path, amqp_max_unsettled=1) as s:
        s.declare("q")
        filled(s, *numbered(2))
        a = s.script()
        a.begin(incoming_window=1)
        a.receiver()
        a.send(flow(0, 10, incoming_window=1, drain=True))
        a.expect_messages(b"m0")
        s.settle()
        a.send(flow(0, 10, incoming_window=5, drain=True))
        a.expect(Flow, handle=0, delivery_count=10, link_credit=0, drain=True)
        a.nothing()


def test_the_window_goes_round_among_those_who_wait(tmp_path: Path) -> None:
    with stage(tmp_path) as s:
        s.declare("q", "r")
        filled(s, *numbered(6))
        filled(s, *numbered(6), queue="r")
        a = s.script()
        a.begin(incoming_window=0)
        a.receiver("q")
        a.receiver("r", handle=1)
        a.send(flow(0, 6, incoming_window=0), flow(1, 6, incoming_window=0))
        s.settle()
        opened: list[list[int]] = []
        for _ in range(6):
            a.send(flow(0, 6, incoming_window=2))  # though all of them name the first
            opened.append([a.expect(Transfer).handle, a.expect(Transfer).handle])
            s.settle()
        assert [1, 1] in opened[:3]
        assert sorted(opened) == [[0, 0]] * 3 + [[1, 1]] * 3


@pytest.mark.parametrize("way", ["ends", "in error"])
def test_sessions_that_end_without_a_window_leave_nothing_behind(tmp_path: Path, way: str) -> None:
    with stage(tmp_path) as s:
        s.declare("q")
        filled(s, *numbered(2))
        a = s.script()
        a.begin(incoming_window=1)
        a.receiver()
        a.send(flow(0, 10, incoming_window=1))
        a.expect(Transfer)
        s.settle()
        (peer,) = [wire.peer for wire in s.plane._accepted if wire.peer is not None and wire.peer.container == "client"]
        assert peer.squeezed
        a.send(End() if way == "ends" else flow(7, 1, incoming_window=1))
        a.expect(End)
        if way == "in error":
            a.send(End())
        s.settle()
        assert not peer.squeezed


def test_an_outcome_just_before_the_end_of_the_session_of_a_link_that_lives_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The link looks for no more messages when its outcome is durable: it is on no session."""
    with stage(tmp_path) as s:
        s.declare("q")
        filled(s, *numbered(3))
        a = s.script().usual()
        a.receiver(source=Source(address="q", expiry_policy="never"), credit=10)
        a.expect_messages(b"m0", b"m1", b"m2")
        a.send(says(Accepted(), 0, settled=False), End())
        a.expect(Disposition, first=0)
        a.expect(End)
        s.settle()
        assert s.counts("q") == {"acquired": 2, "archived": 1}
    assert "effect failed" not in caplog.text


def _calls_for_flows(folder: Path, links: int) -> int:
    """Count the functions and methods that the plane's thread calls for flows of a session with so many links."""
    count, flows = 0, 100

    def note(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    with stage(folder) as s:
        s.declare("q")
        a = s.script().usual()
        for number in range(links):
            a.receiver(handle=number, name=str(number), credit=1)
        a.nothing()
        s.plane.call(lambda: sys.setprofile(note))
        a.send(*[flow(None)] * flows)
        a.nothing()
        s.plane.call(lambda: sys.setprofile(None))
        s.settle()
    return count


def test_a_flow_of_a_session_costs_the_same_with_many_links(tmp_path: Path) -> None:
    """Such a flow is 26 octets: a peer may send thousands of them in one write."""
    assert _calls_for_flows(tmp_path / "many", 100) < 3 * _calls_for_flows(tmp_path / "one", 1)
