"""Transactional acquisition (4.4.3, 4.4.4): messages that a link acquires in a transaction, and their end. C11."""

from __future__ import annotations

from typing import Any

from penstock.broker_core.amqp import Modified
from penstock.broker_core.amqp.performatives import (
    SENDER,
    SND_SETTLED,
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Released,
    Source,
    Transfer,
)

from .frames import begin, detach, flow, message, receives, says, symbol
from .harness import Script, Stage
from .scenarios_incoming import _conditions
from .scenarios_outgoing import filled, numbered
from .transacting import CONTROL, ROLLBACK, UNKNOWN, commit, control, declare, discharged, roll_back, within

TXN_ID = symbol("txn-id")


def acquires(handle: int, credit: int, txn: Any, count: int = 0, **fields: Any) -> Flow:
    """Build a receiver's flow whose credit acquires messages in a transaction."""
    return flow(handle, credit, count, properties={TXN_ID: txn}, **fields)


def _begun(s: Stage, count: int, **fields: Any) -> tuple[Script, bytes]:
    """Fill the queue; return a client with a receiver and an open transaction."""
    filled(s, *numbered(count))
    a = s.script().usual()
    control(a)
    txn = declare(a, 0)
    a.receiver(**fields)
    return a, txn


def _transfers(a: Script, txn: bytes | None, *bodies: bytes, **fields: Any) -> None:
    for body in bodies:
        payload = a.expect_message(state=None if txn is None else within(txn), **fields)
        assert payload.endswith(body)


def _ended(a: Script, first: int, last: int | None = None, state: Any = None) -> None:
    a.expect(Disposition, role=SENDER, first=first, last=last, settled=True, state=state or Accepted())


def acquiring_in_a_transaction(s: Stage) -> None:
    s.note("deliveries name the transaction, and so do our flows; a commit makes their outcomes final")
    a, txn = _begun(s, 3)
    a.send(acquires(0, 2, txn, drain=False))
    _transfers(a, txn, b"m0", b"m1")
    a.send(acquires(0, 0, txn, count=2, echo=True))
    answer = a.expect(Flow, handle=1, link_credit=0)
    assert answer.properties == {TXN_ID: txn}
    a.send(says(within(txn, Accepted()), 0, settled=False), says(within(txn, Accepted()), 1))
    s.show("q")
    commit(a, 1, txn)
    _ended(a, 0)
    discharged(a, 1)
    s.show("q")
    s.note("the link leaves the transaction with its discharge: later messages are acquired outside of it")
    a.send(flow(0, 1, count=2))
    _transfers(a, None, b"m2")
    a.send(says(Accepted(), 2))
    s.until(lambda: s.counts("q") == {"archived": 3}, "the outcome without an answer")
    s.show("q")


def a_rollback_undoes_the_acquisition(s: Stage) -> None:
    s.note("any default outcome; deliveries that the receiver has settled or not, with or without an outcome")
    a, txn = _begun(s, 3, source=Source(address="q", default_outcome=Accepted()))
    a.send(acquires(0, 3, txn))
    _transfers(a, txn, b"m0", b"m1", b"m2")
    a.send(says(within(txn, Accepted()), 0), says(within(txn, Accepted()), 1, settled=False))
    roll_back(a, 1, txn)
    _ended(a, 1, 2, Modified(delivery_failed=True))
    discharged(a, 1)
    assert s.messages("q") == [(0, 1), (1, 1), (2, 1)]
    s.show("q")
    s.note("they come again; later outcomes of the first deliveries have no effect")
    a.send(says(Accepted(), 0, 2), flow(0, 3, count=3))
    for _ in range(3):
        a.expect_message(state=None)
    s.show("q")


def what_nothing_was_said_of_is_the_links_after_a_commit(s: Stage) -> None:
    a, txn = _begun(s, 2)
    a.send(acquires(0, 2, txn))
    _transfers(a, txn, b"m0", b"m1")
    commit(a, 1, txn)
    discharged(a, 1)
    s.show("q")
    a.send(says(Released(), 0, settled=False), says(Accepted(), 1))
    _ended(a, 0, state=Released())
    s.show("q")


def an_outcome_elsewhere_of_what_was_acquired_in_a_transaction(s: Stage) -> None:
    s.note("an outcome outside or in another transaction: no commit is possible, and the control link ends (4.4.2, 4.4.4)")
    filled(s, *numbered(1))
    for elsewhere in (False, True):
        a = s.script().usual()
        control(a)
        control(a, handle=8)
        txn, second = declare(a, 0), declare(a, 1, handle=8)
        a.receiver()
        a.send(acquires(0, 1, txn))
        payload = a.expect_message(state=within(txn))
        assert payload.endswith(b"m0")
        a.send(says(within(second, Accepted()) if elsewhere else Accepted(), 0, settled=False))
        if elsewhere:
            assert _conditions(a.expect(Detach, handle=1)) == ROLLBACK
        else:
            _ended(a, 0, state=Modified(delivery_failed=True))
            assert _conditions(a.expect(Detach, handle=0)) == ROLLBACK
        s.show("q")
        a.drop()
        s.until(lambda: s.counts("q") == {"available": 1}, "the lost connection's links have ended")


def acquired_and_sent_settled(s: Stage) -> None:
    s.note("a commit accepts them, a rollback brings them back")
    filled(s, *numbered(2))
    a = s.script().usual()
    control(a)
    a.receiver(snd_settle_mode=SND_SETTLED)
    for number, fail in ((0, True), (2, False)):
        txn = declare(a, number)
        a.send(acquires(0, 2, txn, count=number))
        for _ in range(2):
            a.expect_message(state=within(txn), settled=True)
        s.show("q")
        (roll_back if fail else commit)(a, number + 1, txn)
        discharged(a, number + 1)
        s.show("q")


def acquiring_in_a_transaction_that_is_not_there(s: Stage) -> None:
    filled(s, *numbered(1))
    a = s.script().usual()
    control(a)
    txn = declare(a, 0)
    for asked, condition in ((b"\x07", UNKNOWN), ("text", "amqp:invalid-field")):
        a.receiver()
        a.send(acquires(0, 1, asked))
        assert _conditions(a.expect(Detach, handle=1)) == condition
        a.send(detach(0))
    s.note("a browser acquires nothing, nor does a sender")
    a.receiver(source=Source(address="q", distribution_mode=symbol("copy")))
    a.send(acquires(0, 1, txn))
    assert _conditions(a.expect(Detach, handle=1)) == "amqp:not-implemented"
    a.send(detach(0))
    a.sender()
    a.send(acquires(0, 1, txn))
    assert _conditions(a.expect(Detach, handle=1)) == "amqp:not-implemented"
    s.show("q")


def the_end_of_a_link_that_has_acquired_in_a_transaction(s: Stage) -> None:
    s.note("deliveries without an outcome come back; a commit makes the outcomes final")
    filled(s, *numbered(3))
    a = s.script().usual()
    control(a)
    a.receiver(source=Source(address="q", default_outcome=Accepted()))
    txn = declare(a, 0)
    a.send(acquires(0, 3, txn))
    _transfers(a, txn, b"m0", b"m1", b"m2")
    a.send(says(within(txn, Accepted()), 0, settled=False), detach(0))
    a.expect(Detach)
    s.show("q")
    commit(a, 1, txn)
    discharged(a, 1)
    s.show("q")
    s.note("when the control link ends, all deliveries come back")
    a.receiver(handle=1)
    txn = declare(a, 2)
    a.send(acquires(1, 2, txn))
    for _ in range(2):
        a.expect_message(state=within(txn))
    a.send(detach(CONTROL))
    s.note("the second message was prefetched: it had no attempt")
    _ended(a, 3, state=Modified(delivery_failed=True))
    _ended(a, 4, state=Released())
    a.expect(Detach)
    s.show("q")


def a_flow_that_takes_the_transaction_back(s: Stage) -> None:
    a, txn = _begun(s, 3)
    a.send(acquires(0, 1, txn))
    _transfers(a, txn, b"m0")
    s.note("a flow without the property changes nothing; the value null ends the acquisition in the transaction")
    a.send(flow(0, 1, count=1))
    _transfers(a, txn, b"m1")
    a.send(acquires(0, 1, None, count=2))
    _transfers(a, None, b"m2")
    a.send(says(Accepted(), 2, settled=False))
    _ended(a, 2)
    roll_back(a, 1, txn)
    _ended(a, 0, 1, Modified(delivery_failed=True))
    discharged(a, 1)
    s.show("q")


def a_delivery_that_is_sent_in_part_when_its_transaction_is_rolled_back(s: Stage) -> None:
    s.note("the delivery is aborted before the discharge is answered; the discharge waits for the session's window")
    filled(s, message(b"x" * 1500))
    a = s.script(max_frame_size=1024)
    a.frame_size = 1024
    a.begin()
    a.send(begin(incoming_window=1), channel=1)
    a.expect(Begin)
    control(a)
    txn = declare(a, 0)
    a.send(receives(), channel=1)
    a.expect(Attach, 1)
    a.send(acquires(0, 1, txn, incoming_window=1), channel=1)
    assert a.expect(Transfer, 1, state=within(txn)).more
    roll_back(a, 1, txn)
    a.send(flow(None, echo=True))
    a.expect(Flow, 0)
    s.show("q")
    a.send(flow(None, incoming_window=1), channel=1)
    a.expect(Transfer, 1, aborted=True, more=False)
    discharged(a, 1)
    s.show("q")


SCENARIOS = [
    acquiring_in_a_transaction,
    a_rollback_undoes_the_acquisition,
    what_nothing_was_said_of_is_the_links_after_a_commit,
    an_outcome_elsewhere_of_what_was_acquired_in_a_transaction,
    acquired_and_sent_settled,
    acquiring_in_a_transaction_that_is_not_there,
    the_end_of_a_link_that_has_acquired_in_a_transaction,
    a_flow_that_takes_the_transaction_back,
    a_delivery_that_is_sent_in_part_when_its_transaction_is_rolled_back,
]
