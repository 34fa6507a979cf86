"""Transactions of a listener for Service Bus, as the Java and .NET SDKs use them.

Their receivers wait for the answer to each outcome before the commit (receiver-settles-second).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp import Accepted, Message, Modified, Rejected, TransactionalState
from penstock.broker_core.amqp.performatives import RCV_SECOND, Disposition, Error, Properties, Source, Target, Transfer
from penstock.broker_core.amqp.types import Symbol
from penstock.broker_core.amqp_plane.service_bus.vendor import BATCH_FORMAT
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.limits import SECOND, TRANSACTION_AGE

from ..service.helpers import Clock, enqueue
from .frames import says, sends, transfer
from .harness import Stage, stage
from .service_bus import LISTENER, Cbs, attached
from .test_service_bus_sending import BAD, GOOD, batch, message
from .transacting import ROLLBACK, UNKNOWN, commit, control, declare, discharged, rejected, roll_back, within

TO_Q, TO_R, FROM_Q, TO_TOPIC = 2, 3, 4, 5
DEAD_LETTER = Rejected(
    error=Error(condition="com.microsoft:dead-letter", info={"DeadLetterReason": "Odd", "DeadLetterErrorDescription": "It is."})
)


class Work:
    """A connection with a control link, senders to `q`, `r` and `news`, and a receiver from `q`."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        cbs = Cbs(stage, {"any": "key"})
        self.script = cbs.script
        self._number = -1
        for name in ("q", "r", "news"):
            assert cbs.put(cbs.token("any", name, 10_000), f"sb://localhost/{name}")[0] == 202
            self.next()
        control(self.script)
        for handle, name in ((TO_Q, "q"), (TO_R, "r"), (TO_TOPIC, "news")):
            self.script.sender(name, handle)
        self.script.receiver("q", FROM_Q, 10, rcv_settle_mode=RCV_SECOND)

    def next(self) -> int:
        """The id of the client's next delivery."""
        self._number += 1
        return self._number

    def begin(self) -> bytes:
        return declare(self.script, self.next())

    def send(self, handle: int, payload: bytes, txn: bytes | None = None, format: int = 0) -> Any:
        """Send a message or a batch; return its outcome."""
        number, state = self.next(), None if txn is None else within(txn)
        self.script.send(transfer(number, payload, handle, state=state, message_format=format))
        answer = self.script.expect(Disposition, role=True, first=number, settled=True).state
        if txn is not None and isinstance(answer, TransactionalState):
            assert answer.txn_id == txn
            return answer.outcome
        return answer

    def receive(self) -> Transfer:
        return self.script.expect(Transfer)

    def settle(self, delivery: Transfer, outcome: Any, txn: bytes | None = None) -> Disposition:
        state = outcome if txn is None else within(txn, outcome)
        assert delivery.delivery_id is not None
        self.script.send(says(state, delivery.delivery_id, settled=False))
        return self.script.expect(Disposition, role=False, first=delivery.delivery_id)

    def commit(self, txn: bytes) -> None:
        commit(self.script, number := self.next(), txn)
        discharged(self.script, number)

    def fails(self, txn: bytes) -> str | None:
        """Commit; return the condition of the refusal."""
        commit(self.script, number := self.next(), txn)
        return rejected(self.script, number)

    def roll_back(self, txn: bytes) -> None:
        roll_back(self.script, number := self.next(), txn)
        discharged(self.script, number)

    def count(self, queue: str) -> int:
        return sum(count for state, count in self.stage.counts(queue).items() if state != "archived")


@pytest.fixture
def w(tmp_path: Path) -> Iterator[Work]:
    with stage(tmp_path, fsync="never", listeners=(LISTENER,), clock=Clock()) as made:
        made.declare("dead", "news.all")
        made.declare("q", "r", lockTimeout=60_000, deadLetterQueue="dead")
        made.exchange("news", "topic", unroutable="refuse")
        made.service.submit(c.Bind("news", "news.all", "#"))
        yield Work(made)


def test_a_transaction_may_be_declared_before_the_first_token(tmp_path: Path) -> None:
    """The Java SDK does so. A link in it needs its token."""
    with stage(tmp_path, fsync="never", listeners=(LISTENER,)) as made:
        made.declare("q")
        script = made.script().usual()
        control(script)
        declare(script, 0)
        assert attached(script, sends("q", 2)).condition == "amqp:unauthorized-access"


@pytest.mark.parametrize("committed", [True, False])
def test_messages_and_batches_to_two_queues_and_a_topic_arrive_together(w: Work, committed: bool) -> None:
    txn = w.begin()
    assert w.send(TO_R, message(b"single"), txn) == Accepted()
    assert w.send(TO_R, batch(*[GOOD] * 300), txn, BATCH_FORMAT) == Accepted()
    assert w.send(TO_TOPIC, batch(GOOD, GOOD), txn, BATCH_FORMAT) == Accepted()
    assert w.send(TO_R, message(b"outside")) == Accepted()
    assert (w.count("r"), w.count("news.all")) == (1, 0)
    if committed:
        w.commit(txn)
        assert (w.count("r"), w.count("news.all")) == (302, 2)
    else:
        w.roll_back(txn)
        assert (w.count("r"), w.count("news.all")) == (1, 0)


def test_outcomes_are_answered_before_the_commit_and_settled_by_it(w: Work) -> None:
    assert w.send(TO_Q, message(b"work")) == Accepted()
    work = w.receive()
    txn = w.begin()
    assert w.send(TO_R, message(b"result"), txn) == Accepted()
    answer = w.settle(work, Accepted(), txn)
    assert (answer.state, answer.settled) == (within(txn, Accepted()), False)
    assert (w.stage.counts("q"), w.count("r")) == ({"acquired": 1}, 0)
    commit(w.script, number := w.next(), txn)
    w.script.expect(Disposition, role=False, first=work.delivery_id, settled=True, state=within(txn, Accepted()))
    discharged(w.script, number)
    assert (w.stage.counts("q"), w.count("r")) == ({"archived": 1}, 1)


def test_after_a_rollback_the_lock_holds(w: Work) -> None:
    assert w.send(TO_Q, message(b"work")) == Accepted()
    work = w.receive()
    txn = w.begin()
    assert w.settle(work, Accepted(), txn).state == within(txn, Accepted())
    w.roll_back(txn)
    assert w.stage.counts("q") == {"acquired": 1}
    answer = w.settle(work, Accepted())
    assert (answer.state, answer.settled) == (Accepted(), True)
    assert w.stage.counts("q") == {"archived": 1}


def test_abandon_and_dead_letter_in_a_transaction(w: Work) -> None:
    assert w.send(TO_Q, message(b"again")) == Accepted()
    again = w.receive()
    assert w.send(TO_Q, message(b"odd")) == Accepted()
    odd = w.receive()
    txn = w.begin()
    assert w.settle(again, Modified(delivery_failed=True), txn).state == within(txn, Modified(delivery_failed=True))
    assert w.settle(odd, DEAD_LETTER, txn).state == within(txn, Rejected())
    commit(w.script, number := w.next(), txn)
    ended = {w.script.expect(Disposition, role=False, settled=True).first for _ in range(2)}
    assert ended == {again.delivery_id, odd.delivery_id}
    discharged(w.script, number)
    assert w.script.expect(Transfer).delivery_tag != again.delivery_tag
    with w.stage.service.turn() as turn:
        assert turn.state.queues["dead"].blocks[0].errors == {0: "Odd\nIt is."}


def test_defer_in_a_transaction(w: Work) -> None:
    assert w.send(TO_Q, message(b"later")) == Accepted()
    later = w.receive()
    txn = w.begin()
    deferred = Modified(undeliverable_here=True)
    assert w.settle(later, deferred, txn).state == within(txn, deferred)
    assert w.stage.counts("q") == {"acquired": 1}
    commit(w.script, number := w.next(), txn)
    w.script.expect(Disposition, role=False, settled=True, state=within(txn, deferred))
    discharged(w.script, number)
    (stat,) = w.stage.service.submit(c.Stat("q"))
    assert stat["deferred"] == 1


def test_a_lock_that_is_lost_in_a_transaction_is_reported_and_fails_it(w: Work) -> None:
    w.stage.service.submit(enqueue("r", b"work"))
    w.script.receiver("r", 6, 1, rcv_settle_mode=RCV_SECOND)
    work = w.receive()
    txn = w.begin()
    assert w.send(TO_Q, message(b"result"), txn) == Accepted()
    w.stage.pass_time(61)
    answer = w.settle(work, Accepted(), txn)
    assert isinstance(answer.state, Rejected)
    assert answer.state.error is not None
    assert (answer.state.error.condition, answer.settled) == ("com.microsoft:message-lock-lost", True)
    assert w.fails(txn) == ROLLBACK
    assert (w.count("q"), w.stage.counts("r")) == (0, {"available": 1})


@pytest.mark.parametrize("properties", [{"a": "x" * 5000}, {"a": "x" * 500}])
def test_changed_properties_that_are_refused_fail_the_transaction_and_the_lock_holds(
    w: Work, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plane refuses one outcome, and the engine refuses another one."""
    monkeypatch.setattr(sys.modules["penstock.broker_core.engine.decide.links"], "MAX_ROW_OVERLAYS", 100)
    assert w.send(TO_Q, message(b"work")) == Accepted()
    work = w.receive()
    txn = w.begin()
    answer = w.settle(work, Modified(message_annotations={Symbol(name): text for name, text in properties.items()}), txn)
    assert isinstance(answer.state, Rejected)
    assert answer.state.error is not None
    assert not answer.settled
    assert w.fails(txn) == ROLLBACK
    assert w.stage.counts("q") == {"acquired": 1}
    answer = w.settle(work, Accepted())
    assert (answer.state, answer.settled) == (Accepted(), True)
    assert w.stage.counts("q") == {"archived": 1}


def test_a_bad_batch_fails_its_transaction(w: Work) -> None:
    txn = w.begin()
    assert w.send(TO_R, message(b"single"), txn) == Accepted()
    answer = w.send(TO_R, batch(GOOD, BAD, GOOD), txn, BATCH_FORMAT)
    assert isinstance(answer, Rejected)
    assert answer.error is not None
    assert "message 1 of the batch is invalid" in str(answer.error.description)
    assert w.fails(txn) == ROLLBACK
    assert w.count("r") == 0


def test_a_batch_that_a_topic_cannot_take_fails_its_transaction(w: Work) -> None:
    w.stage.declare("news.small", maxMessages=1)
    w.stage.service.submit(c.Bind("news", "news.small", "#"))
    txn = w.begin()
    assert isinstance(w.send(TO_TOPIC, batch(GOOD, GOOD), txn, BATCH_FORMAT), Rejected)
    assert w.fails(txn) == ROLLBACK
    assert (w.count("news.all"), w.count("news.small")) == (0, 0)


def test_a_batch_in_an_unknown_transaction_is_refused(w: Work) -> None:
    answer = w.send(TO_R, batch(GOOD, GOOD), b"unknown", BATCH_FORMAT)
    assert isinstance(answer, Rejected)
    assert answer.error is not None
    assert answer.error.condition == UNKNOWN
    assert w.send(TO_R, batch(GOOD), None, BATCH_FORMAT) == Accepted(), "the link continues"


def test_a_request_is_no_part_of_a_transaction(w: Work) -> None:
    """The transaction fails as well: a rollback could not undo the request."""
    w.script.sender("q/$management", 6, source=Source(address="me"))
    w.script.receiver("q/$management", 7, 10, target=Target(address="me"))
    txn = w.begin()
    operation = {"operation": "com.microsoft:schedule-message"}
    body = {"messages": [{"message": GOOD}]}
    request = Message(properties=Properties(message_id="m"), application_properties=operation, value=body, has_value=True)
    w.script.send(transfer(w.next(), request.encode(), 6, state=within(txn)))
    w.script.expect(Disposition, state=within(txn, Accepted()))
    w.script.expect(Transfer)
    assert w.fails(txn) == ROLLBACK
    assert w.count("q") == 0


def test_a_link_may_send_via_another_entity(w: Work) -> None:
    """In one transaction, an older SDK sends only via the queue that it receives from."""
    properties = {Symbol("com.microsoft:transfer-destination-address"): "r"}
    w.script.sender("q", 6, name="via q", properties=properties)
    txn = w.begin()
    assert w.send(6, message(b"m"), txn) == Accepted()
    w.commit(txn)
    assert (w.count("q"), w.count("r")) == (0, 1)
    elsewhere = {Symbol("com.microsoft:transfer-destination-address"): "elsewhere"}
    refused = attached(w.script, sends("q", 7, name="via q to elsewhere", properties=elsewhere))
    assert refused.condition == "amqp:unauthorized-access"


def test_a_transaction_ends_after_its_time_limit(w: Work) -> None:
    txn = w.begin()
    assert w.send(TO_R, message(b"single"), txn) == Accepted()
    w.stage.pass_time(TRANSACTION_AGE / SECOND + 1)
    w.stage.service.submit(c.TimeOutTransactions())
    assert w.fails(txn) == "amqp:transaction:timeout"
    assert w.count("r") == 0


def test_a_transaction_ends_with_its_connection(w: Work) -> None:
    w.stage.service.submit(enqueue("q", b"work"))
    work = w.receive()
    txn = w.begin()
    assert w.send(TO_R, batch(GOOD, GOOD), txn, BATCH_FORMAT) == Accepted()
    assert w.settle(work, Accepted(), txn).state == within(txn, Accepted())
    w.script.drop()
    w.stage.until(lambda: w.stage.counts("q") == {"available": 1}, "the message is available again")
    assert w.count("r") == 0
