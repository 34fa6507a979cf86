"""Deliveries of a resumed link (2.6.13, 3.4.6)."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker_core.amqp import LocalProtocolError
from penstock.broker_core.amqp.messages import MAX_SECTIONS
from penstock.broker_core.amqp.performatives import SENDER, Accepted, Attach, Modified, Received, Rejected
from penstock.broker_core.amqp.resume import Action, resolve

from .values import Pair

R = Received


@pytest.mark.parametrize(
    ("tag", "mine", "theirs", "action"),
    [  # the example of 3.4.6; "-" is absent
        (1, None, "-", Action.RESTART),
        (2, R(section_number=0, section_offset=0), R(section_number=1, section_offset=10), Action.RESUME),
        (3, None, Accepted(), Action.STATE),
        (4, None, None, Action.RESUME),
        (5, R(section_number=2, section_offset=10), "-", Action.RESTART),
        (6, R(section_number=1, section_offset=0), R(section_number=1, section_offset=5), Action.RESUME),
        (7, R(section_number=3, section_offset=0), R(section_number=2, section_offset=5), Action.ABORT_THEN_RESTART),
        (8, R(section_number=3, section_offset=0), Accepted(), Action.STATE),
        (9, R(section_number=3, section_offset=0), None, Action.ABORT_THEN_RESTART),
        (10, Accepted(), "-", Action.SETTLE),
        (11, Accepted(), R(section_number=1, section_offset=5), Action.ABORT),
        (12, Accepted(), Accepted(), Action.STATE),
        (13, Accepted(), Rejected(), Action.STATE),
        (14, Modified(), None, Action.ABORT),
        (15, "-", Accepted(), Action.IGNORE),
    ],
)
def test_resuming_by_the_example_of_the_text(tag: int, mine: Any, theirs: Any, action: Action) -> None:
    name = b"%d" % tag
    left = {} if mine == "-" else {name: mine}
    right = {} if theirs == "-" else {name: theirs}
    decision = resolve(left, right)[name]
    assert decision.action is action
    if action is Action.RESUME:
        assert decision.position == ((theirs.section_number, theirs.section_offset) if theirs else (0, 0))
    if theirs == "-":
        assert resolve(left, right, receiver_incomplete=True)[name].action is Action.UNKNOWN


def test_a_position_behind_more_sections_than_a_message_may_have_is_its_begin() -> None:
    """A position is found section by section. From the beginning of the message every receiver can continue."""
    theirs = {
        b"in": R(section_number=MAX_SECTIONS, section_offset=7),
        b"out": R(section_number=MAX_SECTIONS + 1, section_offset=7),
    }
    decisions = resolve({b"in": None, b"out": None}, theirs)
    assert decisions[b"in"] == (Action.RESUME, (MAX_SECTIONS, 7))
    assert decisions[b"out"] == (Action.RESUME, (0, 0))
    mine = {b"out": R(section_number=1, section_offset=0)}  # earlier sections are lost
    assert resolve(mine, theirs)[b"out"].action is Action.ABORT_THEN_RESTART


def test_no_new_delivery_while_a_map_is_incomplete() -> None:
    pair = Pair().opened()
    session = pair.session()
    sender = session[0].sender("x")
    sender.attach(unsettled={b"1": None})
    _, server_events = pair.pump()
    receiver = server_events[0].link  # type: ignore[union-attr]
    receiver.attach(unsettled={b"1": None}, incomplete_unsettled=True)
    receiver.grant(5)
    pair.pump()
    with pytest.raises(LocalProtocolError, match="incomplete"):
        sender.send(b"2", b"m")
    with pytest.raises(LocalProtocolError, match="incomplete"):
        sender.send_many([b"2"], [b"m"])
    sender.send(b"1", b"m", resume=True)
    _, server_events = pair.pump()
    assert server_events[-1].deliveries[0].resumed  # type: ignore[union-attr]
    assert isinstance(sender.local_attach, Attach)
    assert sender.role == SENDER
