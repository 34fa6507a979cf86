"""Local transactions (part 4) that fail as a whole, and the conditions that clients receive. C11."""

from __future__ import annotations

from penstock.broker_core.amqp import Declare, Discharge, Target, TransactionalState
from penstock.broker_core.amqp.performatives import (
    SENDER,
    Accepted,
    Attach,
    Detach,
    Disposition,
    Flow,
    Properties,
    Rejected,
    Released,
    Source,
)
from penstock.broker_core.engine.decide import transactions as decide_transactions
from penstock.broker_core.errors import TransactionTimedOut

from ..journal.lying_disk import LyingDisk
from .frames import detach, message, more, says, sends, symbol, transfer
from .harness import Stage, staged
from .scenarios_incoming import _conditions
from .scenarios_outgoing import filled, numbered
from .transacting import (
    CONTROL,
    ROLLBACK,
    UNKNOWN,
    asked,
    commit,
    control,
    declare,
    discharged,
    rejected,
    roll_back,
    unknown_id,
    within,
)


def declares_and_discharges_that_are_refused(s: Stage) -> None:
    a = s.script().usual()
    control(a)
    s.note("a global transaction; a message without a declare; a transaction that is unknown, or already discharged")
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
    s.note("a transaction of another connection")
    b = s.script("B", container_id="other").usual()
    control(b)
    theirs = declare(b, 0)
    roll_back(a, 6, theirs)
    assert rejected(a, 6) == UNKNOWN
    s.note("a declare that is settled, or part of a transaction: the link ends")
    a.send(asked(7, Declare(), settled=True))
    assert _conditions(a.expect(Detach)) == "amqp:not-allowed"
    a.send(detach(CONTROL))
    control(a)
    a.send(asked(8, Declare(), state=within(theirs)))
    assert _conditions(a.expect(Detach)) == "amqp:not-allowed"
    a.send(detach(CONTROL))
    s.note("a source without the outcome *rejected*: the link and its open transactions end")
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
    s.note("the link ends in all cases: a settled or unsettled message, to any target, or an outcome")
    for settled in (False, True):
        a.send(transfer(2 * settled, state=within(b"\x07"), settled=settled), transfer(2 * settled + 1))
        a.expect(Disposition, first=2 * settled + 1, state=Accepted())
        unknown_id(a, handle=1, tag=b"t%d" % (2 * settled))
        a.send(detach(0), sends())
        a.expect(Attach)
        a.expect(Flow)
    a.sender(name="relay", handle=2, target=Target())
    a.send(transfer(4, message(b"x", properties=Properties(to="q")), 2, state=within(b"\x07")))
    unknown_id(a, handle=3, tag=b"t4")
    a.send(detach(2), says(within(b"\x07", Accepted()), 0, settled=False))
    assert _conditions(a.expect(Detach, handle=2)) == UNKNOWN
    a.send(detach(1))
    s.show("q")


def what_comes_behind_a_discharge_is_not_in_it(s: Stage) -> None:
    a = s.script().usual()
    control(a)
    a.sender()
    txn = declare(a, 0)
    a.send(transfer(1, state=within(txn)), asked(2, Discharge(txn_id=txn)), transfer(3, state=within(txn)))
    a.expect(Disposition, first=1, state=within(txn, Accepted()))
    discharged(a, 2)
    unknown_id(a, handle=1, tag=b"t3")
    s.show("q")
    a.receiver(handle=1, credit=5)
    a.expect_messages(b"m1")
    a.nothing()


def something_of_it_cannot_be_done(s: Stage) -> None:
    s.note("one failure fails the transaction: an invalid message, an unknown queue; each message and the discharge are rejected")
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
    s.note("the discharge is sent before the message is rejected")
    txn = declare(a, number)
    a.send(transfer(number + 1, b"junk", state=within(txn)), asked(number + 2, Discharge(txn_id=txn)))
    a.expect(Disposition, first=number + 1)
    assert rejected(a, number + 2) == ROLLBACK
    number += 4
    s.note("the queue is deleted before the commit")
    txn = declare(a, number)
    a.send(transfer(number + 1, handle=1, state=within(txn)), transfer(number + 2, state=within(txn)))
    a.expect(Disposition, first=number + 1)
    a.expect(Disposition, first=number + 2)
    s.delete("r")
    a.expect(Detach, handle=2)
    commit(a, number + 3, txn)
    assert rejected(a, number + 3) == ROLLBACK
    s.show("q")


@staged(disk=LyingDisk, free_space_mark_bytes=2 << 20)
def the_disk_is_full_in_a_transaction(s: Stage) -> None:
    s.note("a full disk fails the transaction, also if its discharge has arrived; a rollback needs no space")
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
    s.note("a transaction with a partial delivery cannot be discharged: the control link ends (4.4.1)")
    a = s.script().usual()
    control(a)
    a.sender()
    txn = declare(a, 0)
    whole = message(b"half")
    a.send(transfer(1, whole[:4], more=True, state=within(txn)))
    commit(a, 2, txn)
    assert _conditions(a.expect(Detach, handle=0)) == ROLLBACK
    a.send(detach(CONTROL), more(whole[4:], state=within(txn)))
    unknown_id(a, handle=1, tag=b"t1")
    s.show("q")


def a_delivery_of_two_transactions(s: Stage) -> None:
    s.note("a second outcome in another transaction: the control link ends (4.4.2)")
    filled(s, *numbered(1))
    a = s.script().usual()
    control(a)
    control(a, handle=8)
    a.receiver(credit=1)
    a.expect_messages(b"m0")
    first, later = declare(a, 0), declare(a, 1, handle=8)
    a.send(says(within(first, Accepted()), 0, settled=False), says(within(later, Released()), 0, settled=False))
    assert _conditions(a.expect(Detach, handle=1)) == ROLLBACK
    commit(a, 2, first)
    a.expect(Disposition, role=SENDER, first=0, settled=True, state=Accepted())
    discharged(a, 2)
    s.show("q")


def work_that_takes_too_long(s: Stage) -> None:
    s.note("the broker has rolled the transaction back: later work and its discharge are rejected")
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
    """Let housekeeping end the transaction as too old."""
    s.lines.append("!  the transaction becomes too old")
    age, decide_transactions.TRANSACTION_AGE = decide_transactions.TRANSACTION_AGE, 0
    try:
        s.until(lambda: _failed(s), "housekeeping rolls it back")
    finally:
        decide_transactions.TRANSACTION_AGE = age


def _failed(s: Stage) -> bool:
    with s.service.turn():
        return all(isinstance(txn.failed, TransactionTimedOut) for txn in s.service.state.transactions.open.values())


SCENARIOS = [
    declares_and_discharges_that_are_refused,
    work_in_a_transaction_that_is_not_there,
    what_comes_behind_a_discharge_is_not_in_it,
    something_of_it_cannot_be_done,
    the_disk_is_full_in_a_transaction,
    a_delivery_that_is_not_complete,
    a_delivery_of_two_transactions,
    work_that_takes_too_long,
]
