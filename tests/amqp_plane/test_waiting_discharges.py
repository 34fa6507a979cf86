"""C11: a discharge that waits for the window of a session, so that a delivery of its transaction ends first."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp.performatives import Accepted, Attach, Begin, Detach, Disposition, End, Flow, Transfer
from penstock.broker_core.amqp_plane.transactions.acquisition import Acquisition

from ..service.helpers import enqueue
from .frames import begin, detach, flow, receives, says
from .harness import Script, Stage, stage
from .scenarios_acquisition import acquires
from .transacting import commit, control, declare, discharged, roll_back, within

NARROW = {"incoming_window": 1}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often a link was asked whether a delivery of a transaction has not ended yet."""
    count: Counter[str] = Counter()
    ends_later = Acquisition.ends_later

    def counted(self: Acquisition, transaction: Any) -> bool:
        count["asked"] += 1
        return ends_later(self, transaction)

    monkeypatch.setattr(Acquisition, "ends_later", counted)
    return count


def half_sent(made: Stage, **fields: Any) -> tuple[Script, bytes]:
    """Open a transaction with a delivery that waits for the window of a separate session."""
    made.declare("q")
    made.service.submit(enqueue("q", b"x" * 1500))
    a = made.script(max_frame_size=1024)
    a.frame_size = 1024
    a.begin()
    a.send(begin(**NARROW), channel=1)
    a.expect(Begin)
    control(a)
    txn = declare(a, 0)
    a.send(receives(**fields), channel=1)
    a.expect(Attach, 1)
    a.send(acquires(0, 5, txn, **NARROW), channel=1)
    assert a.expect(Transfer, 1, state=within(txn)).more
    return a, txn


def test_other_transactions_of_the_link_do_not_wait(tmp_path: Path, looks: Counter[str]) -> None:
    with stage(tmp_path) as made:
        a, txn = half_sent(made)
        roll_back(a, 1, txn)
        a.nothing()
        for number in range(2, 22, 2):
            second = declare(a, number)
            a.send(acquires(0, 5, second, incoming_window=0, echo=True), channel=1)
            a.expect(Flow, 1)
            (roll_back if number % 4 else commit)(a, number + 1, second)
            discharged(a, number + 1)
        made.note("a flow on another session, or one that opens no window, wakes no discharge")
        looks.clear()
        for _ in range(10):
            a.send(flow(None, echo=True))
            a.expect(Flow, 0)
            a.send(flow(None, incoming_window=0, echo=True), channel=1)
            a.expect(Flow, 1)
        assert not looks
        a.send(flow(None, **NARROW), channel=1)
        a.expect(Transfer, 1, aborted=True, more=False)
        discharged(a, 1)
        assert looks["asked"] == 1


@pytest.mark.parametrize("how", ["link", "session", "error", "queue"])
def test_the_end_of_the_link_lets_the_discharge_be_answered(tmp_path: Path, how: str) -> None:
    with stage(tmp_path) as made:
        a, txn = half_sent(made)
        roll_back(a, 1, txn)
        a.nothing()
        if how == "queue":
            made.delete("q")
        elif how == "error":
            a.send(acquires(0, 1, b"\x07", incoming_window=0), channel=1)  # there is no such transaction
        else:
            a.send(detach(0) if how == "link" else End(), channel=1)
        bodies = a.read(2)
        assert Counter(map(type, bodies)) == {Disposition: 1, End if how == "session" else Detach: 1}
        assert next(body for body in bodies if isinstance(body, Disposition)).state == Accepted()


def test_a_rollback_does_not_abort_what_is_sent_in_another_transaction(tmp_path: Path) -> None:
    """One link sends a small message in the first transaction, and the first frame of a large one in the second."""
    with stage(tmp_path) as made:
        made.declare("q")
        made.service.submit(enqueue("q", b"small", b"x" * 1500))
        a = made.script(max_frame_size=1024)
        a.frame_size = 1024
        a.begin()
        a.send(begin(incoming_window=2), channel=1)
        a.expect(Begin)
        control(a)
        first, second = declare(a, 0), declare(a, 1)
        a.send(receives(), channel=1)
        a.expect(Attach, 1)
        a.send(acquires(0, 1, first, incoming_window=2), channel=1)
        assert not a.expect(Transfer, 1, state=within(first)).more
        a.send(acquires(0, 1, second, count=1, incoming_window=1), channel=1)
        assert a.expect(Transfer, 1, state=within(second)).more
        roll_back(a, 2, first)
        a.expect(Disposition, 1, first=0, settled=True)
        discharged(a, 2)
        a.send(flow(None, incoming_window=9), channel=1)
        a.expect(Transfer, 1, aborted=False, more=False)
        a.send(says(within(second, Accepted()), 1), channel=1)
        commit(a, 3, second)
        discharged(a, 3)
        assert made.counts("q") == {"available": 1, "archived": 1}
