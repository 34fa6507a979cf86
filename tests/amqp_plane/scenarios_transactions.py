"""Local transactions (part 4): declared, worked in, discharged; rolled back with their control link. C11, seed 004."""

from __future__ import annotations

from typing import Any

from broker_core.amqp import Coordinator, Declare, Declared, Discharge, Target, TransactionalState
from broker_core.amqp.performatives import (
    SENDER,
    Accepted,
    Attach,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Properties,
    Rejected,
    Released,
    Source,
    Transfer,
)
from broker_core.amqp.transactions import LOCAL_TRANSACTIONS, request
from broker_core.engine import commands as c
from broker_core.engine import decide_transactions
from broker_core.engine import exchange_commands as x
from broker_core.errors import TransactionTimedOut

from ..journal.lying_disk import LyingDisk
from .frames import annotations_of, detach, flow, message, more, says, sends, symbol, transfer
from .harness import Script, Stage, staged
from .scenarios_incoming import _conditions
from .scenarios_outgoing import filled, numbered

CONTROL = 9  # the control link's handle
UNKNOWN, ROLLBACK = "amqp:transaction:unknown-id", "amqp:transaction:rollback"


def control(a: Script, handle: int = CONTROL, channel: int = 0, **fields: Any) -> Attach:
    target = Coordinator(capabilities=(symbol(LOCAL_TRANSACTIONS),))
    a.send(sends(handle=handle, name=f"control {handle}", target=target, **fields), channel=channel)
    answer = a.expect(Attach, channel)
    a.expect(Flow, channel)
    return answer


def asked(number: int, body: Declare | Discharge, handle: int = CONTROL, **fields: Any) -> tuple[Transfer, bytes]:
    return transfer(number, request(body), handle, **fields)


def declare(a: Script, number: int, handle: int = CONTROL, channel: int = 0) -> bytes:
    a.send(asked(number, Declare(), handle), channel=channel)
    state = a.expect(Disposition, channel, role=True, first=number, settled=True).state
    assert isinstance(state, Declared)
    return state.txn_id


def commit(a: Script, number: int, txn: bytes) -> None:
    a.send(asked(number, Discharge(txn_id=txn, fail=False)))


def roll_back(a: Script, number: int, txn: bytes) -> None:
    a.send(asked(number, Discharge(txn_id=txn, fail=True)))


def within(txn: bytes, outcome: Any = None) -> TransactionalState:
    return TransactionalState(txn_id=txn, outcome=outcome)


def discharged(a: Script, number: int) -> None:
    a.expect(Disposition, role=True, first=number, settled=True, state=Accepted())


def rejected(a: Script, number: int) -> str | None:
    return _conditions(a.expect(Disposition, role=True, first=number, settled=True))


def messages_of_several_queues_at_once(s: Stage) -> None:
    s.declare("r")
    a = s.script().usual()
    answer = control(a)
    assert isinstance(answer.target, Coordinator)
    assert LOCAL_TRANSACTIONS in answer.target.capabilities
    a.sender("q")
    a.sender("r", handle=1)
    txn = declare(a, 0)
    a.send(transfer(1, state=within(txn)), transfer(2, handle=1, state=within(txn)), transfer(3, state=within(txn), settled=True))
    a.expect(Disposition, first=1, settled=True, state=within(txn, Accepted()))
    a.expect(Disposition, first=2, settled=True, state=within(txn, Accepted()))
    s.note("nobody sees them yet; what is sent outside is not held up, and comes before them")
    a.send(transfer(4))
    a.expect(Disposition, first=4, state=Accepted())
    s.show("q", "r")
    commit(a, 5, txn)
    discharged(a, 5)
    s.show("q", "r")
    a.receiver("q", handle=2, credit=5)
    a.expect_messages(b"m4", b"m1", b"m3")
    s.note("the next one is rolled back")
    txn = declare(a, 6)
    a.send(transfer(7, state=within(txn)))
    a.expect(Disposition, first=7, state=within(txn, Accepted()))
    roll_back(a, 8, txn)
    discharged(a, 8)
    a.nothing()
    s.show("q", "r")


def outcomes_and_messages_of_one_transaction(s: Stage) -> None:
    s.declare("r")
    filled(s, *numbered(4))
    a = s.script().usual()
    control(a)
    a.sender("r")
    a.receiver(handle=1, credit=4)
    a.expect_messages(b"m0", b"m1", b"m2", b"m3")
    txn = declare(a, 0)
    a.send(
        transfer(1, message(b"made of m0"), state=within(txn)),
        says(within(txn, Accepted()), 0, settled=False),
        says(within(txn, Rejected()), 1, settled=False),
        says(within(txn, Released()), 2, settled=False),
    )
    a.expect(Disposition, role=True, first=1, state=within(txn, Accepted()))
    s.show("q", "r")
    s.note("said again, the last word counts; one is ended outside of it, at once")
    a.send(says(within(txn, Accepted()), 1, settled=False), says(Accepted(), 3))
    a.nothing()
    s.show("q", "r")
    s.note("who waits for outcomes is told them before the answer")
    commit(a, 2, txn)
    a.expect(Disposition, role=SENDER, first=0, last=1, settled=True, state=Accepted())
    a.expect(Disposition, role=SENDER, first=2, settled=True, state=Released())
    discharged(a, 2)
    s.show("q", "r")


def a_rollback_leaves_deliveries_with_their_link(s: Stage) -> None:
    filled(s, *numbered(3))
    a = s.script().usual()
    control(a)
    a.receiver(credit=3)
    a.expect_messages(b"m0", b"m1", b"m2")
    txn = declare(a, 0)
    a.send(
        says(within(txn, Accepted()), 0, 1, settled=False), says(within(txn, Modified(delivery_failed=True)), 2, settled=False)
    )
    roll_back(a, 1, txn)
    discharged(a, 1)
    s.note("they are still this link's, and nothing is counted: it ends them in another transaction, or in none")
    s.show("q")
    txn = declare(a, 2)
    a.send(says(within(txn, Accepted()), 0, settled=False), says(Accepted(), 1, settled=False))
    a.expect(Disposition, role=SENDER, first=1, settled=True, state=Accepted())
    commit(a, 3, txn)
    a.expect(Disposition, role=SENDER, first=0, settled=True, state=Accepted())
    discharged(a, 3)
    assert s.messages("q") == [(2, 0)]
    s.show("q")


def a_rollback_of_what_was_settled_is_the_default_outcome(s: Stage) -> None:
    s.note("as clients of JMS do: settled at once; after a rollback nobody can say more (4.4.4.2)")
    filled(s, *numbered(2))
    a = s.script().usual()
    control(a)
    a.receiver(credit=2, source=Source(address="q", default_outcome=Modified(delivery_failed=True)))
    a.expect_messages(b"m0", b"m1")
    txn = declare(a, 0)
    a.send(says(within(txn, Accepted()), 0, 1))
    roll_back(a, 1, txn)
    discharged(a, 1)
    assert s.messages("q") == [(0, 1), (1, 1)]
    a.send(flow(0, 2, count=2))
    a.expect_messages(b"m0", b"m1")
    txn = declare(a, 2)
    a.send(says(within(txn, Accepted()), 2, 3))
    commit(a, 3, txn)
    discharged(a, 3)
    s.show("q")


def the_end_of_a_link_before_its_transaction(s: Stage) -> None:
    s.note("what it said holds if the transaction commits; the rest it held comes back at once")
    for fail in (False, True):
        filled(s, *numbered(3))
        a = s.script().usual()
        control(a)
        a.receiver(credit=3)
        a.expect_messages(b"m0", b"m1", b"m2")
        txn = declare(a, 0)
        a.send(says(within(txn, Accepted()), 0, settled=False), says(within(txn, Accepted()), 1), detach())
        a.expect(Detach)
        s.show("q")
        (roll_back if fail else commit)(a, 1, txn)
        discharged(a, 1)
        s.show("q")
        a.send(Close())
        a.expect(Close)
        s.service.submit(c.Purge("q"))


def the_end_of_a_link_whose_default_outcome_has_annotations(s: Stage) -> None:
    filled(s, *numbered(2))
    a = s.script().usual()
    control(a)
    default = Modified(delivery_failed=True, message_annotations={symbol("x-opt-left"): True})
    a.receiver(credit=2, source=Source(address="q", default_outcome=default))
    a.expect_messages(b"m0", b"m1")
    txn = declare(a, 0)
    a.send(says(within(txn, Accepted()), 0, settled=False), detach())
    a.expect(Detach)
    s.show("q")
    commit(a, 1, txn)
    discharged(a, 1)
    s.show("q")
    a.receiver(handle=1, credit=2)
    assert annotations_of(a.expect_message()) == {"x-opt-left": True}


def the_control_link_ends(s: Stage) -> None:
    s.note("detached, its session ended, its connection lost: all that it declared is rolled back (4.1)")
    filled(s, *numbered(2))
    a = s.script("A").usual()
    a.begin(channel=1)
    a.sender(handle=0)
    a.receiver(handle=1, credit=2)
    a.expect_messages(b"m0", b"m1")
    for number, leave in enumerate([detach(CONTROL), End(), None]):
        control(a, channel=1)
        txn = declare(a, number % 2, channel=1)
        a.send(transfer(2 * number, state=within(txn)), says(within(txn, Accepted()), 0, 1, settled=False))
        a.expect(Disposition, role=True, first=2 * number)
        if leave is None:
            break
        a.send(leave, channel=1)
        a.expect(type(leave), 1)
        s.show("q")
        a.send(transfer(2 * number + 1, state=within(txn)))
        assert rejected(a, 2 * number + 1) == UNKNOWN
        if isinstance(leave, End):
            a.begin(channel=1)
    a.drop()
    s.until(lambda: s.counts("q") == {"available": 2}, "the lost connection's links have ended")
    s.show("q")
    assert not s.service.state.stages


def transactions_of_several_sessions(s: Stage) -> None:
    s.note("one control link, several transactions, work on several sessions of the connection (4.5.7)")
    a = s.script().usual()
    a.begin(channel=1)
    control(a)
    one, other = declare(a, 0), declare(a, 1)
    a.sender()
    a.send(sends(name="elsewhere"), channel=1)
    a.expect(Attach, 1)
    a.expect(Flow, 1)
    a.send(transfer(2, state=within(one)), transfer(3, state=within(other)))
    a.expect(Disposition, 0, first=2, state=within(one, Accepted()))
    a.expect(Disposition, 0, first=3, state=within(other, Accepted()))
    a.send(transfer(0, message(b"elsewhere"), state=within(one)), channel=1)
    a.expect(Disposition, 1, first=0, state=within(one, Accepted()))
    roll_back(a, 4, other)
    discharged(a, 4)
    commit(a, 5, one)
    discharged(a, 5)
    a.receiver(handle=1, credit=5)
    a.expect_messages(b"m2", b"elsewhere")
    a.nothing()


def declares_and_discharges_that_are_refused(s: Stage) -> None:
    a = s.script().usual()
    control(a)
    s.note("a global transaction; no declare; a transaction that is not there, or not any more")
    a.send(asked(0, Declare(global_id=b"x")), transfer(1, message(b"declare"), CONTROL))
    assert rejected(a, 0) == "amqp:not-implemented"
    assert rejected(a, 1) == "amqp:decode-error"
    commit(a, 2, b"\x07")
    assert rejected(a, 2) == UNKNOWN
    txn = declare(a, 3)
    commit(a, 4, txn)
    discharged(a, 4)
    roll_back(a, 5, txn)
    assert rejected(a, 5) == UNKNOWN
    s.note("of another connection")
    b = s.script("B", container_id="other").usual()
    control(b)
    theirs = declare(b, 0)
    roll_back(a, 6, theirs)
    assert rejected(a, 6) == UNKNOWN
    s.note("settled by its sender; in a transaction itself: the link ends")
    a.send(asked(7, Declare(), settled=True))
    assert _conditions(a.expect(Detach)) == "amqp:not-allowed"
    a.send(detach(CONTROL))
    control(a)
    a.send(asked(8, Declare(), state=within(theirs)))
    assert _conditions(a.expect(Detach)) == "amqp:not-allowed"
    a.send(detach(CONTROL))
    s.note("a source that does not know *rejected*: the link ends, with what it has declared")
    control(a, source=Source(outcomes=(symbol("amqp:accepted:list"),)))
    declare(a, 9)
    commit(a, 10, b"\x07")
    assert _conditions(a.expect(Detach)) == UNKNOWN
    assert len(s.service.state.transactions.open) == 1  # that of B


def work_in_a_transaction_that_is_not_there(s: Stage) -> None:
    filled(s, *numbered(2))
    a = s.script().usual()
    control(a)
    a.sender()
    a.receiver(handle=1, credit=2)
    a.expect_messages(b"m0", b"m1")
    a.send(transfer(0, state=within(b"\x07")), transfer(1))
    assert rejected(a, 0) == UNKNOWN
    a.expect(Disposition, first=1, state=Accepted())
    s.note("a message that its sender has settled, an outcome: nobody can be told by an outcome, so the link ends")
    a.send(transfer(2, state=within(b"\x07"), settled=True))
    assert _conditions(a.expect(Detach, handle=1)) == UNKNOWN
    a.send(detach(0), says(within(b"\x07", Accepted()), 0, settled=False))
    assert _conditions(a.expect(Detach, handle=2)) == UNKNOWN
    a.send(detach(1))
    s.show("q")


def what_comes_behind_a_discharge_is_not_in_it(s: Stage) -> None:
    a = s.script().usual()
    control(a)
    a.sender()
    txn = declare(a, 0)
    a.send(transfer(1, state=within(txn)), asked(2, Discharge(txn_id=txn)), transfer(3, state=within(txn)))
    assert rejected(a, 3) == UNKNOWN
    a.expect(Disposition, first=1, state=within(txn, Accepted()))
    discharged(a, 2)
    s.show("q")
    a.receiver(handle=1, credit=5)
    a.expect_messages(b"m1")
    a.nothing()


def something_of_it_cannot_be_done(s: Stage) -> None:
    s.note("then nothing of it is: a message that is none, one for no queue, each of them told, and the discharge as well")
    s.declare("r")
    a = s.script().usual()
    control(a)
    a.sender()
    a.sender("r", handle=1)
    a.sender(name="relay", handle=2, target=Target())
    number = 0
    for bad in (transfer(0, b"junk"), transfer(0, b"junk", settled=True), transfer(0, handle=2), transfer(0, message_format=7)):
        txn = declare(a, number)
        bad[0].delivery_id, bad[0].delivery_tag, bad[0].state = number + 2, b"bad%d" % number, within(txn)
        a.send(transfer(number + 1, handle=1, state=within(txn)), bad)
        waits = 1 if bad[0].settled else 2
        states = [a.expect(Disposition).state for _ in range(waits)]
        assert all(isinstance(state, TransactionalState) and state.txn_id == txn for state in states)
        commit(a, number + 3, txn)
        assert rejected(a, number + 3) == ROLLBACK
        s.show("q", "r")
        number += 4
    s.note("the discharge does not wait to hear of it")
    txn = declare(a, number)
    a.send(transfer(number + 1, b"junk", state=within(txn)), asked(number + 2, Discharge(txn_id=txn)))
    a.expect(Disposition, first=number + 1)
    assert rejected(a, number + 2) == ROLLBACK
    number += 4
    s.note("the queue is gone by the time of the commit")
    txn = declare(a, number)
    a.send(transfer(number + 1, handle=1, state=within(txn)), transfer(number + 2, state=within(txn)))
    a.expect(Disposition, first=number + 1)
    a.expect(Disposition, first=number + 2)
    s.delete("r")
    a.expect(Detach, handle=2)
    commit(a, number + 3, txn)
    assert rejected(a, number + 3) == ROLLBACK
    s.show("q")


def messages_through_an_exchange(s: Stage) -> None:
    s.note("the queues of the moment when they are sent get them, at the commit; one for no queue fails the transaction")
    s.declare("r")
    s.exchange("x", "topic", unroutable="refuse")
    s.service.submit(x.Bind("x", "q", "a.*"))
    s.service.submit(x.Bind("x", "r", "*.b"))
    a = s.script().usual()
    control(a)
    a.sender("x")
    for number, subject in ((0, "a.b"), (10, "c.c")):
        txn = declare(a, number)
        both = message(b"m", properties=Properties(subject="a.b"))
        a.send(transfer(number + 1, both, state=within(txn)))
        a.expect(Disposition, first=number + 1, state=within(txn, Accepted()))
        a.send(transfer(number + 2, message(b"m", properties=Properties(subject=subject)), state=within(txn)))
        outcome = Accepted() if subject == "a.b" else Released()
        a.expect(Disposition, first=number + 2, state=within(txn, outcome))
        s.show("q", "r")
        commit(a, number + 3, txn)
        if subject == "a.b":
            discharged(a, number + 3)
        else:
            assert rejected(a, number + 3) == ROLLBACK
        s.show("q", "r")


@staged(disk=LyingDisk, free_space_mark_bytes=2 << 20)
def the_disk_is_full_in_a_transaction(s: Stage) -> None:
    s.note("what finds no room fails it, also when its discharge has come already; a rollback needs none")
    a = s.script().usual()
    control(a)
    a.sender()
    txn = declare(a, 0)
    s.room(3 << 19)
    a.send(transfer(1, state=within(txn)), asked(2, Discharge(txn_id=txn)))
    state = a.expect(Disposition, first=1).state
    assert isinstance(state, TransactionalState)
    assert isinstance(state.outcome, Rejected)
    assert rejected(a, 2) == ROLLBACK
    txn = declare(a, 3)
    roll_back(a, 4, txn)
    discharged(a, 4)
    s.room(None)
    s.show("q")


def a_delivery_that_is_not_complete(s: Stage) -> None:
    s.note("its transaction cannot be discharged, and the control link ends (4.4.1)")
    a = s.script().usual()
    control(a)
    a.sender()
    txn = declare(a, 0)
    whole = message(b"half")
    a.send(transfer(1, whole[:4], more=True, state=within(txn)))
    commit(a, 2, txn)
    assert _conditions(a.expect(Detach, handle=0)) == ROLLBACK
    a.send(detach(CONTROL), more(whole[4:], state=within(txn)))
    assert rejected(a, 1) == UNKNOWN
    s.show("q")


def a_delivery_of_two_transactions(s: Stage) -> None:
    s.note("an outcome that is another transaction's already: the control link ends (4.4.2)")
    filled(s, *numbered(1))
    a = s.script().usual()
    control(a)
    control(a, handle=8)
    a.receiver(credit=1)
    a.expect_messages(b"m0")
    one, other = declare(a, 0), declare(a, 1, handle=8)
    a.send(says(within(one, Accepted()), 0, settled=False), says(within(other, Released()), 0, settled=False))
    assert _conditions(a.expect(Detach, handle=1)) == ROLLBACK
    commit(a, 2, one)
    a.expect(Disposition, role=SENDER, first=0, settled=True, state=Accepted())
    discharged(a, 2)
    s.show("q")


@staged(amqp_credit=40)
def a_transaction_larger_than_the_credit(s: Stage) -> None:
    s.note("credit is renewed as messages are staged, not when they are committed: nothing stalls")
    a = s.script().usual()
    control(a)
    a.sender()
    txn = declare(a, 0)
    for first in (1, 41, 81):
        a.send(*[transfer(first + number, state=within(txn)) for number in range(40)])
        a.expect(Disposition, first=first, last=first + 39)
        a.expect(Flow, handle=1, delivery_count=first + 39, link_credit=40)
    s.show("q")
    commit(a, 121, txn)
    discharged(a, 121)
    s.show("q")


@staged(disk=LyingDisk)
def a_commit_is_told_when_the_disk_has_it(s: Stage) -> None:
    filled(s, *numbered(1))
    a = s.script().usual()
    control(a)
    a.sender()
    a.receiver(handle=1, credit=1)
    a.expect_messages(b"m0")
    txn = declare(a, 0)
    s.slow_disk()
    a.send(
        transfer(1, state=within(txn)),
        says(within(txn, Accepted()), 0, settled=False),
        asked(2, Discharge(txn_id=txn)),
        flow(None, echo=True),
    )
    a.expect(Flow)
    s.quick_disk()
    s.note("the message's outcome, the delivery's, and then the answer")
    a.expect(Disposition, role=True, first=1, state=within(txn, Accepted()))
    a.expect(Disposition, role=SENDER, first=0, settled=True, state=Accepted())
    discharged(a, 2)
    s.show("q")


def work_that_takes_too_long(s: Stage) -> None:
    s.note("it was rolled back by the broker, which says so to who goes on with it")
    filled(s, *numbered(1))
    a = s.script().usual()
    control(a)
    a.sender()
    a.receiver(handle=1, credit=1)
    a.expect_messages(b"m0")
    txn = declare(a, 0)
    a.send(transfer(1, state=within(txn)), says(within(txn, Accepted()), 0, settled=False))
    a.expect(Disposition, first=1)
    _time_out(s)
    a.send(transfer(2, state=within(txn)))
    state = a.expect(Disposition, first=2).state
    assert isinstance(state, TransactionalState)
    assert isinstance(state.outcome, Rejected)
    commit(a, 3, txn)
    assert rejected(a, 3) == "amqp:transaction:timeout"
    s.show("q")
    a.send(says(Accepted(), 0))
    a.nothing()
    s.show("q")


def _time_out(s: Stage) -> None:
    """As if its age had come."""
    s.lines.append("!  the transaction becomes too old")
    age, decide_transactions.TRANSACTION_AGE = decide_transactions.TRANSACTION_AGE, 0
    try:
        s.until(lambda: _failed(s), "housekeeping rolls it back")
    finally:
        decide_transactions.TRANSACTION_AGE = age


def _failed(s: Stage) -> bool:
    with s.service.turn():
        return all(isinstance(each.failed, TransactionTimedOut) for each in s.service.state.transactions.open.values())


def acquiring_in_a_transaction(s: Stage) -> None:
    s.note("is not done here: the link ends, by name (4.4.3)")
    filled(s, *numbered(1))
    a = s.script().usual()
    control(a)
    txn = declare(a, 0)
    a.receiver()
    a.send(flow(0, 1, properties={symbol("txn-id"): txn}))
    assert _conditions(a.expect(Detach, handle=1)) == "amqp:not-implemented"
    s.show("q")


SCENARIOS = [
    messages_of_several_queues_at_once,
    outcomes_and_messages_of_one_transaction,
    a_rollback_leaves_deliveries_with_their_link,
    a_rollback_of_what_was_settled_is_the_default_outcome,
    the_end_of_a_link_before_its_transaction,
    the_end_of_a_link_whose_default_outcome_has_annotations,
    the_control_link_ends,
    transactions_of_several_sessions,
    declares_and_discharges_that_are_refused,
    work_in_a_transaction_that_is_not_there,
    what_comes_behind_a_discharge_is_not_in_it,
    something_of_it_cannot_be_done,
    messages_through_an_exchange,
    the_disk_is_full_in_a_transaction,
    a_delivery_that_is_not_complete,
    a_delivery_of_two_transactions,
    a_transaction_larger_than_the_credit,
    a_commit_is_told_when_the_disk_has_it,
    work_that_takes_too_long,
    acquiring_in_a_transaction,
]
