"""Locks (Q14): messages that a link holds for too long go back, and later outcomes for them change nothing."""

from __future__ import annotations

from penstock.broker_core.amqp.performatives import Accepted, Disposition, Modified
from penstock.broker_core.engine.commands import AlterQueue

from .frames import flow, message, says, transfer
from .harness import Script, Stage
from .scenarios_transactions import CONTROL, ROLLBACK, commit, control, declare, discharged, rejected, within


def _locked(s: Stage) -> Script:
    """Attach a receiver whose locks on the first two of three messages have ended."""
    s.declare("locked", lockTimeout=1)
    lines = list(s.lines)
    filler = s.script("filler", container_id="filler").usual()
    filler.sender("locked")
    filler.send(*[transfer(number, message(b"m%d" % number)) for number in range(3)])
    filler.expect(Disposition, first=0)
    filler.drop(quietly=True)
    s.lines[:] = [*lines, "!  3 messages are sent to locked"]
    a = s.script().usual()
    a.receiver("locked")
    a.send(flow(0, 2))
    a.expect_messages(b"m0", b"m1")
    s.until(lambda: s.counts("locked") == {"available": 3}, "their locks have ended")
    s.service.submit(AlterQueue("locked", {"lockTimeout": 0}))
    s.note("from here on the queue has no locks")
    return a


def an_outcome_after_the_lock_has_ended_changes_nothing(s: Stage) -> None:
    a = _locked(s)
    a.send(says(Accepted(), 0, 1))
    a.nothing()
    s.show("locked")
    a.send(flow(0, 3, count=2))
    a.expect_messages(b"m0", b"m1", b"m2")


def deliveries_that_are_lost_are_ended_before_their_messages_come_again(s: Stage) -> None:
    a = _locked(s)
    a.send(flow(0, 3, count=2))
    s.note("their tags are free again: the broker has settled them")
    lost = a.expect(Disposition, first=0, last=1, settled=True)
    assert lost.state == Modified(delivery_failed=True)
    a.expect_messages(b"m0", b"m1", b"m2")
    a.send(says(Accepted(), 0, 1))
    s.note("too late: these outcomes do not apply to the new deliveries")
    a.nothing()
    s.show("locked")


def an_outcome_for_lost_and_held_deliveries_holds_for_the_held_ones(s: Stage) -> None:
    a = _locked(s)
    b = s.script("b", container_id="b").usual()
    b.receiver("locked")
    b.send(flow(0, 2))
    b.expect_messages(b"m0", b"m1")
    a.send(flow(0, 1, count=2))
    a.expect(Disposition, first=0, last=1, settled=True)
    a.expect_messages(b"m2")
    s.note("one disposition for all three: another link holds the first two now")
    a.send(says(Accepted(), 0, 2))
    a.nothing()
    s.show("locked")


def a_transaction_with_a_delivery_whose_lock_has_ended_is_rolled_back(s: Stage) -> None:
    a = _locked(s)
    control(a, handle=CONTROL)
    a.sender("q", handle=1)
    a.send(flow(0, 3, count=2))
    a.expect(Disposition, first=0, last=1, settled=True)
    a.expect_messages(b"m0", b"m1", b"m2")
    txn = declare(a, 0)
    s.note("the receiver still uses the first deliveries, although the broker has ended them")
    a.send(transfer(1, message(b"made of m1"), handle=1, state=within(txn)), says(within(txn, Accepted()), 1, settled=False))
    a.expect(Disposition, role=True, first=1)
    commit(a, 2, txn)
    assert rejected(a, 2) == ROLLBACK
    s.show("locked", "q")
    s.note("the failure concerns one transaction: the next one accepts all three")
    txn = declare(a, 3)
    a.send(says(within(txn, Accepted()), 1, 4))
    commit(a, 4, txn)
    discharged(a, 4)
    s.show("locked", "q")


SCENARIOS = [
    a_transaction_with_a_delivery_whose_lock_has_ended_is_rolled_back,
    an_outcome_after_the_lock_has_ended_changes_nothing,
    deliveries_that_are_lost_are_ended_before_their_messages_come_again,
    an_outcome_for_lost_and_held_deliveries_holds_for_the_held_ones,
]
