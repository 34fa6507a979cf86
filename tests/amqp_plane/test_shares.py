"""W6: shared limits of all links of a connection, and of all connections of a user, so that others also have a share."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker_core.amqp import Declare
from penstock.broker_core.amqp.performatives import RCV_FIRST, RCV_SECOND, SENDER, Attach, Detach, Disposition, Flow
from penstock.broker_core.engine.decide import transactions as decide_transactions

from .frames import detach, sends, transfer
from .harness import Script, stage
from .logins import Site, log_in, user
from .transacting import asked, control, declare, discharged, rejected, roll_back


def test_what_a_sender_leaves_unsettled_on_all_links_of_a_connection(tmp_path: Path) -> None:
    """A sender in mode second that never settles gets no more credit. A link without unsettled deliveries has credit for one."""
    limits = {"amqp_credit": 4, "amqp_max_unsettled": 3, "amqp_max_unsettled_per_connection": 6}
    with stage(tmp_path, fsync="never", **limits) as s:
        s.declare("q")
        a = s.script("A").usual()

        def attach(handle: int, credit: int, by: Script = a, mode: int = RCV_SECOND) -> None:
            by.send(sends(handle=handle, name=f"link {handle}", rcv_settle_mode=mode))
            by.expect(Attach)
            by.expect(Flow, handle=handle, link_credit=credit)

        attach(0, 4)
        attach(1, 2)
        attach(2, 1)
        a.send(*[transfer(number) for number in range(4)])
        a.expect(Disposition, first=0, last=3, settled=False)
        a.send(transfer(4, handle=2))
        a.expect(Disposition, first=4, settled=False)
        a.nothing()
        s.note("a settled delivery renews the link's credit within the limit: the others have credit for three")
        a.send(Disposition(role=SENDER, first=4, settled=True))
        a.expect(Flow, handle=2, link_credit=1)
        a.send(Disposition(role=SENDER, first=0, last=1, settled=True))
        a.expect(Flow, handle=0, link_credit=1)
        s.note("a link that ends frees its part")
        a.send(detach(0))
        a.expect(Detach)
        a.send(*[transfer(number, handle=1) for number in (5, 6)])
        a.expect(Disposition, first=5, last=6, settled=False)
        a.expect(Flow, handle=1, link_credit=2)
        a.send(Disposition(role=SENDER, first=5, last=6, settled=True))
        a.expect(Flow, handle=1, link_credit=4)
        s.note("the limit does not concern other connections, nor links that settle immediately")
        attach(0, 4, mode=RCV_FIRST)
        attach(0, 4, by=s.script("B", container_id="B").usual())


def test_transactions_of_one_user_leave_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide_transactions, "MAX_USER_TRANSACTIONS", 2)
    names = ("alice", "bob", "anonymous")
    site = Site(tmp_path, {"alice": user(), "bob": user()}, {n: {"*": "send,receive"} for n in names})
    with stage(tmp_path, fsync="never", access=site.access) as s:
        a, b = (log_in(s, "alice", container_id=f"{number}").usual() for number in range(2))
        for script in (a, b):
            control(script)
            txn = declare(script, 0)
        b.send(asked(1, Declare()))
        assert rejected(b, 1) == "amqp:resource-limit-exceeded"
        bob = log_in(s, "bob").usual()
        control(bob)
        declare(bob, 0)
        roll_back(b, 2, txn)
        discharged(b, 2)
        declare(b, 3)
