"""Local transactions (part 4): declared, worked in, discharged; rolled back with their control link. C11, seed 004."""

from __future__ import annotations

from penstock.broker_core.amqp import Coordinator, Discharge
from penstock.broker_core.amqp.performatives import (
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
)
from penstock.broker_core.amqp.transactions import LOCAL_TRANSACTIONS
from penstock.broker_core.engine import commands as c

from ..journal.lying_disk import LyingDisk
from .frames import annotations_of, detach, flow, message, says, sends, symbol, transfer
from .harness import Script, Stage, staged
from .scenarios_outgoing import filled, numbered
from .transacting import (
    CONTROL,
    ROLLBACK,
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
    s.note("the messages are invisible until the commit; a message sent outside is stored before them")
    a.send(transfer(4))
    a.expect(Disposition, first=4, state=Accepted())
    s.show("q", "r")
    commit(a, 5, txn)
    discharged(a, 5)
    s.show("q", "r")
    a.receiver("q", handle=2, credit=5)
    a.expect_messages(b"m4", b"m1", b"m3")
    s.note("the next transaction is rolled back")
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
    s.note("the last outcome counts; one delivery is settled outside of the transaction, immediately")
    a.send(says(within(txn, Accepted()), 1, settled=False), says(Accepted(), 3))
    a.nothing()
    s.show("q", "r")
    s.note("the receiver gets the outcomes before the discharge is answered")
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
    s.note("the link still holds them, without an attempt: it settles them in another transaction, or outside")
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
    s.note("settled immediately, as JMS clients do: after a rollback no further outcome is possible (4.4.4.2)")
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
    s.note("a commit makes the link's outcomes final; its other messages come back immediately")
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
    s.note("a detach, an end of the session, a lost connection: the transactions of the link are rolled back (4.1)")
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
        unknown_id(a, handle=0, tag=b"t%d" % (2 * number + 1))
        a.send(detach(0), sends(name=f"once more {number}"))
        a.expect(Attach)
        a.expect(Flow)
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
    committed, rolled_back = declare(a, 0), declare(a, 1)
    a.sender()
    a.send(sends(name="elsewhere"), channel=1)
    a.expect(Attach, 1)
    a.expect(Flow, 1)
    a.send(transfer(2, state=within(committed)), transfer(3, state=within(rolled_back)))
    a.expect(Disposition, 0, first=2, state=within(committed, Accepted()))
    a.expect(Disposition, 0, first=3, state=within(rolled_back, Accepted()))
    a.send(transfer(0, message(b"elsewhere"), state=within(committed)), channel=1)
    a.expect(Disposition, 1, first=0, state=within(committed, Accepted()))
    roll_back(a, 4, rolled_back)
    discharged(a, 4)
    commit(a, 5, committed)
    discharged(a, 5)
    a.receiver(handle=1, credit=5)
    a.expect_messages(b"m2", b"elsewhere")
    a.nothing()


def messages_through_an_exchange(s: Stage) -> None:
    s.note("bindings are evaluated at the send, queues get the messages at the commit; an unroutable one fails the transaction")
    s.declare("r")
    s.exchange("x", "topic", unroutable="refuse")
    s.service.submit(c.Bind("x", "q", "a.*"))
    s.service.submit(c.Bind("x", "r", "*.b"))
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


@staged(amqp_credit=40)
def a_transaction_larger_than_the_credit(s: Stage) -> None:
    s.note("credit is renewed when messages are staged, before the commit: the sender does not stall")
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
    s.note("the outcome of the message, the outcome of the delivery, and then the answer")
    a.expect(Disposition, role=True, first=1, state=within(txn, Accepted()))
    a.expect(Disposition, role=SENDER, first=0, settled=True, state=Accepted())
    discharged(a, 2)
    s.show("q")


@staged(disk=LyingDisk)
def an_outcome_behind_the_discharge_of_its_delivery(s: Stage) -> None:
    s.note("the message belongs to its next delivery by then, so the late outcome has no effect")
    filled(s, *numbered(1))
    a = s.script().usual()
    control(a)
    a.receiver(credit=5)
    a.expect_messages(b"m0")
    _discharge_on_a_slow_disk(s, a, 0, 0, says(Accepted(), 0, settled=False))
    a.expect(Disposition, role=SENDER, first=0, settled=True, state=Released())
    discharged(a, 1)
    a.expect_messages(b"m0")
    s.show("q")
    _discharge_on_a_slow_disk(s, a, 2, 1, says(Released(), 1))
    discharged(a, 3)
    a.expect_messages(b"m0")
    a.nothing()
    s.show("q")
    s.note("but after a rollback the outcome is valid")
    txn = declare(a, 4)
    a.send(
        says(within(txn, Released()), 2, settled=False),
        asked(5, Discharge(txn_id=txn, fail=True)),
        says(Accepted(), 2, settled=False),
    )
    discharged(a, 5)
    a.expect(Disposition, role=SENDER, first=2, settled=True, state=Accepted())
    s.show("q")


def _discharge_on_a_slow_disk(s: Stage, a: Script, number: int, delivery: int, behind: Disposition) -> None:
    """Commit a transaction that releases a delivery. Send `behind` after the commit, before the answer."""
    txn = declare(a, number)
    s.slow_disk()
    a.send(says(within(txn, Released()), delivery, settled=False), asked(number + 1, Discharge(txn_id=txn)))
    s.until(lambda: not s.service.state.transactions.open, "it is carried out")
    a.send(behind, flow(None, echo=True))
    a.expect(Flow)
    s.quick_disk()


SCENARIOS = [
    messages_of_several_queues_at_once,
    outcomes_and_messages_of_one_transaction,
    a_rollback_leaves_deliveries_with_their_link,
    a_rollback_of_what_was_settled_is_the_default_outcome,
    the_end_of_a_link_before_its_transaction,
    the_end_of_a_link_whose_default_outcome_has_annotations,
    the_control_link_ends,
    transactions_of_several_sessions,
    messages_through_an_exchange,
    a_transaction_larger_than_the_credit,
    a_commit_is_told_when_the_disk_has_it,
    an_outcome_behind_the_discharge_of_its_delivery,
]
