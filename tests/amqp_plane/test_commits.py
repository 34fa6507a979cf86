"""A commit applies all work of its transaction, or fails with `amqp:transaction:rollback` and applies none (C11).

Each case below is one way in which a message or an outcome of a transaction is refused, ignored, dropped or cut off. The control
link and the work are on two sessions, so that the end of one leaves the other as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp import Modified, Released, Target
from penstock.broker_core.amqp.performatives import (
    RCV_SECOND,
    SENDER,
    Accepted,
    Attach,
    Detach,
    Disposition,
    End,
    Properties,
    Received,
    Rejected,
    Source,
    Transfer,
)
from penstock.broker_core.engine import commands as c

from ..service.helpers import enqueue
from .frames import detach, flow, message, more, receives, says, sends, symbol, transfer
from .harness import Script, Stage, stage
from .scenarios_incoming import _conditions
from .scenarios_outgoing import filled, numbered
from .transacting import ROLLBACK, commit, control, declare, within

WORK = 1  # the channel of all other links
TO_R, RELAY, FROM_Q = 0, 1, 2  # handles there
AS_ACCEPTED_ONLY = Source(outcomes=(symbol("amqp:accepted:list"),))

Case = Callable[[Stage, Script, bytes], None]


def _work(a: Script, *bodies: Any) -> None:
    a.send(*bodies, channel=WORK)


def _until(a: Script, kind: type[Any], **fields: Any) -> Any:
    """Return the next frame of a type with these fields, after any other frames."""
    while True:
        frame = a._frame()
        assert frame is not None, f"the end of the stream instead of {kind.__name__}"
        if isinstance(frame[1], kind) and all(getattr(frame[1], name) == value for name, value in fields.items()):
            return frame[1]


def _answer(a: Script, number: int) -> str | None:
    """Outcome of a discharge: None if it is accepted, or the condition."""
    while True:
        frame = a._frame()
        assert frame is not None
        channel, body, _ = frame
        if channel == 0 and isinstance(body, Disposition) and body.role and body.first == number:
            return None if body.state == Accepted() else _conditions(body)
        if channel == 0 and isinstance(body, Detach):
            return _conditions(body)


def _set_up(s: Stage) -> tuple[Script, bytes]:
    s.declare("r")
    s.declare("brief")
    filled(s, *numbered(3))
    a = s.script().usual()
    control(a)
    a.begin(channel=WORK)
    _work(a, sends("r", TO_R), sends(name="relay", handle=RELAY, target=Target()), receives(handle=FROM_Q), flow(FROM_Q, 3))
    for _ in range(3):
        _until(a, Transfer)
    return a, declare(a, 0)


# --- messages


def to_no_queue_by_a_sender_that_knows_no_rejection(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, sends(name="relay too", handle=5, target=Target(), source=AS_ACCEPTED_ONLY))
    _until(a, Attach, name="relay too")
    _work(a, transfer(0, message(b"x", properties=Properties(to="nowhere")), 5, state=within(txn)))


def to_no_queue(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, transfer(0, message(b"x", properties=Properties(to="nowhere")), RELAY, state=within(txn)))


def to_no_queue_settled(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, transfer(0, message(b"x", properties=Properties(to="nowhere")), RELAY, state=within(txn), settled=True))


def on_a_link_whose_queue_is_deleted(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, sends("brief", 5))
    _until(a, Attach, name="to brief")
    s.delete("brief")
    _until(a, Detach)
    _work(a, transfer(0, handle=5, state=within(txn)))


def behind_a_refusal_that_ends_its_link(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, transfer(0, b"junk", settled=True), transfer(1, state=within(txn)), transfer(2, b"junk", settled=True))
    _until(a, Detach)
    _work(a, transfer(3, state=within(txn)))


def on_a_link_whose_name_is_taken(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, sends("r", 5), transfer(0, handle=TO_R, state=within(txn)))
    _until(a, Detach)


def sent_again_by_who_comes_back_on_another_session(s: Stage, a: Script, txn: bytes) -> None:
    """Its unsettled map cannot contain the end of a transaction. So messages that it sends again would exist twice."""
    writer = {"handle": 5, "name": "writer", "rcv_settle_mode": RCV_SECOND}
    _work(a, sends("r", **writer))
    _until(a, Attach, name="writer")
    _work(a, transfer(0, handle=5, state=within(txn)))
    _until(a, Disposition, first=0)
    _work(a, detach(5, closed=False))
    _until(a, Detach)
    a.begin(channel=2)
    a.send(sends("r", **writer, unsettled={b"t0": None}), channel=2)
    _until(a, Attach, name="writer")
    a.send(transfer(0, handle=5, state=within(txn)), channel=2)
    _until(a, Disposition, first=0)


def on_a_link_that_another_connection_takes(s: Stage, a: Script, txn: bytes) -> None:
    b = s.script("B").usual()
    b.sender("r")
    _until(a, Detach)
    _work(a, transfer(0, handle=TO_R, state=within(txn)))


def on_a_handle_that_is_not_attached(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, transfer(0, handle=7, state=within(txn)))
    _until(a, End)


def on_a_session_that_the_broker_has_ended(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, transfer(0, handle=7))
    _until(a, End)
    _work(a, transfer(1, state=within(txn)))


def many_on_a_session_that_the_broker_has_ended(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, transfer(0, state=within(txn)))
    _until(a, Disposition)
    _work(a, transfer(1, handle=7), *(transfer(number, state=within(txn)) for number in range(2, 9)))
    _until(a, End)


def malformed(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, transfer(0, b"junk", state=within(txn)))


def malformed_settled(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, transfer(0, b"junk", state=within(txn), settled=True))


def of_another_format(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, transfer(0, message_format=7, state=within(txn)))


def half_of_it_and_its_link_ends(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, transfer(0, message(b"half")[:4], more=True, state=within(txn)), detach(TO_R))
    _until(a, Detach)


def half_of_it_and_its_link_is_detached(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, transfer(0, message(b"half")[:4], more=True, state=within(txn)), detach(TO_R, closed=False))
    _until(a, Detach)


def half_of_it_and_its_session_ends(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, transfer(0, message(b"half")[:4], more=True, state=within(txn)), End())
    _until(a, End)


def half_of_it_and_its_link_goes_wrong(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, transfer(0, message(b"half")[:4], more=True, state=within(txn)), more(b"x", delivery_tag=b"other"))
    _until(a, Detach)


def without_credit(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, sends("r", 5, name="no credit yet"), transfer(0, handle=5, state=within(txn)))
    _until(a, Detach)


def by_a_tag_that_is_in_use(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, transfer(0, message(b"half")[:4], more=True, handle=RELAY))
    _work(a, transfer(1, delivery_tag=b"t1"), transfer(1, delivery_tag=b"t1", state=within(txn)))
    _until(a, End)


def resumed_and_unknown(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, transfer(0, resume=True, state=within(txn)))


def named_when_it_was_sent_already(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, sends("r", 5, name="second", rcv_settle_mode=1))
    _until(a, Attach, name="second")
    _work(a, transfer(0, handle=5))
    _until(a, Disposition, first=0)
    _work(a, Disposition(role=SENDER, first=0, state=within(txn)))


def through_an_exchange_to_nobody(s: Stage, a: Script, txn: bytes) -> None:
    s.service.submit(c.DeclareExchange("x", "topic", {"unroutable": "refuse"}))
    _work(a, transfer(0, message(b"x", properties=Properties(to="x", subject="a")), RELAY, state=within(txn)))


def for_a_queue_that_is_full(s: Stage, a: Script, txn: bytes) -> None:
    s.declare("small", maxMessages=1, overflow="reject")
    _work(a, sends("small", 5))
    _until(a, Attach, name="to small")
    _work(a, transfer(0, handle=5, state=within(txn)), transfer(1, handle=5, state=within(txn)))


def on_a_control_link(s: Stage, a: Script, txn: bytes) -> None:
    control(a, handle=8, channel=WORK)
    _work(a, transfer(0, handle=8, state=within(txn)))
    _until(a, Detach)


# --- outcomes


def of_a_link_that_is_closed(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, detach(FROM_Q))
    _until(a, Detach)
    _work(a, says(within(txn, Accepted()), 0))


def of_a_link_that_is_just_being_closed(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, detach(FROM_Q), says(within(txn, Accepted()), 0))


def of_several_of_which_one_link_is_closed(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, detach(FROM_Q), receives(handle=5, name="again"), flow(5, 3))
    for _ in range(3):
        _until(a, Transfer)
    _work(a, says(within(txn, Accepted()), 2, 3))


def of_a_link_whose_queue_is_deleted(s: Stage, a: Script, txn: bytes) -> None:
    s.service.submit(enqueue("brief", b"x"))
    _work(a, receives("brief", 5), flow(5, 1))
    _until(a, Transfer)
    s.delete("brief")
    _until(a, Detach)
    _work(a, says(within(txn, Accepted()), 3))


def of_a_link_that_another_connection_has_taken(s: Stage, a: Script, txn: bytes) -> None:
    b = s.script("B").usual()
    b.receiver("q")
    _until(a, Detach)
    _work(a, says(within(txn, Accepted()), 0, settled=False))


def of_a_delivery_that_there_never_was(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, says(within(txn, Accepted()), 2, 3))


def of_what_was_ended_outside(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, says(Released(), 0, settled=False), says(within(txn, Accepted()), 0, settled=False))


def that_is_too_large(s: Stage, a: Script, txn: bytes) -> None:
    notes = {symbol("x-opt-n"): "x" * 20_000}
    _work(a, says(within(txn, Modified(message_annotations=notes)), 0, settled=False))


def said_on_a_session_that_the_broker_has_ended(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, transfer(0, handle=7))
    _until(a, End)
    _work(a, says(within(txn, Accepted()), 0))


CASES: list[Case] = [
    sent_again_by_who_comes_back_on_another_session,
    to_no_queue_by_a_sender_that_knows_no_rejection,
    to_no_queue,
    to_no_queue_settled,
    on_a_link_whose_queue_is_deleted,
    behind_a_refusal_that_ends_its_link,
    on_a_link_whose_name_is_taken,
    on_a_link_that_another_connection_takes,
    on_a_handle_that_is_not_attached,
    on_a_session_that_the_broker_has_ended,
    many_on_a_session_that_the_broker_has_ended,
    malformed,
    malformed_settled,
    of_another_format,
    half_of_it_and_its_link_ends,
    half_of_it_and_its_link_is_detached,
    half_of_it_and_its_session_ends,
    half_of_it_and_its_link_goes_wrong,
    without_credit,
    by_a_tag_that_is_in_use,
    resumed_and_unknown,
    named_when_it_was_sent_already,
    through_an_exchange_to_nobody,
    for_a_queue_that_is_full,
    on_a_control_link,
    of_a_link_that_is_closed,
    of_a_link_that_is_just_being_closed,
    of_several_of_which_one_link_is_closed,
    of_a_link_whose_queue_is_deleted,
    of_a_link_that_another_connection_has_taken,
    of_a_delivery_that_there_never_was,
    of_what_was_ended_outside,
    that_is_too_large,
    said_on_a_session_that_the_broker_has_ended,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_was_refused_or_ignored_fails_the_commit(case: Case, tmp_path: Path) -> None:
    with stage(tmp_path) as s:
        s.declare("q")
        a, txn = _set_up(s)
        case(s, a, txn)
        commit(a, 1, txn)
        assert _answer(a, 1) == ROLLBACK
        s.settle()
        assert not s.service.state.stages
        assert "archived" not in s.counts("q")


def aborted(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, transfer(0, message(b"half")[:4], more=True, state=within(txn)), Transfer(handle=TO_R, aborted=True))


def said_again_of_what_is_settled(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, says(Accepted(), 0))
    _work(a, says(within(txn, Accepted()), 0, 1), says(within(txn, Accepted()), 0, 2))


def said_twice(s: Stage, a: Script, txn: bytes) -> None:
    several = [says(within(txn, outcome), 0, 1, settled=False) for outcome in (Accepted(), Accepted(), Rejected(), Accepted())]
    _work(a, *several)


def of_what_is_only_looked_at(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, receives(handle=5, name="looks", source=Source(address="q", distribution_mode=symbol("copy"))), flow(5, 3))
    s.service.submit(enqueue("q", b"x"))
    _until(a, Transfer)
    _work(a, says(within(txn, Accepted()), 3))


def of_no_outcome_yet(s: Stage, a: Script, txn: bytes) -> None:
    _work(a, says(within(txn), 0, 1, settled=False))


def in_frames_with_a_word_in_between(s: Stage, a: Script, txn: bytes) -> None:
    whole = message(b"whole")
    between = Disposition(role=SENDER, first=0, state=Received(section_number=0, section_offset=4))
    _work(a, transfer(0, whole[:4], more=True, state=within(txn)), between, more(whole[4:]))
    _until(a, Disposition, first=0)
    assert s.counts("r") == {}, "it is not in the queue before the commit"


@pytest.mark.parametrize(
    "case",
    [
        aborted,
        said_again_of_what_is_settled,
        said_twice,
        of_what_is_only_looked_at,
        of_no_outcome_yet,
        in_frames_with_a_word_in_between,
    ],
    ids=lambda case: case.__name__,
)
def test_what_was_done_or_asks_for_nothing_does_not_fail_the_commit(case: Case, tmp_path: Path) -> None:
    with stage(tmp_path) as s:
        s.declare("q")
        a, txn = _set_up(s)
        case(s, a, txn)
        commit(a, 1, txn)
        assert _answer(a, 1) is None
