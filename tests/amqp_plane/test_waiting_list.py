"""Q15: limits of time and bytes for messages to the anonymous terminus that wait for room, and room from outcomes.

The waiting itself is tested in `scenarios_blocking`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp.messages import Properties
from penstock.broker_core.amqp.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Detach,
    Disposition,
    Flow,
    Rejected,
    Source,
    Target,
)
from penstock.broker_core.amqp_plane.links import waiting_list
from penstock.broker_core.engine import commands as c

from ..service.helpers import enqueue
from .frames import message, says, sends, symbol, transfer
from .harness import Script, Stage, stage
from .logins import Site, log_in, user

KIB = 1024
FULL = "amqp:resource-limit-exceeded"


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path, fsync="never") as made:
        made.declare("q")
        yield made


def relay(s: Stage, **fields: Any) -> Script:
    """Attach to the anonymous terminus, with a blocking queue that is full."""
    s.declare("few", maxMessages=1, overflow="block")
    a = s.script().usual()
    a.send(sends(name="relay", target=Target(), **fields))
    a.expect(Attach)
    a.expect(Flow)
    a.send(transfer(0, to("few")))
    a.expect(Disposition, state=Accepted())
    return a


def to(queue: str, body: bytes = b"m") -> bytes:
    return message(body, properties=Properties(to=queue))


def test_a_message_waits_for_room_for_so_long(s: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q15: by the anonymous terminus, in order of arrival; later messages wait their own time."""
    monkeypatch.setattr(waiting_list, "CAPACITY_TIMEOUT_S", 0.5)
    a = relay(s)
    began = time.monotonic()
    a.send(transfer(1, to("few")), transfer(2, to("few")))
    for number in (1, 2):
        refused = a.expect(Disposition, first=number)
        assert isinstance(refused.state, Rejected)
        assert refused.state.error.condition == FULL
        assert "no room for 0.5 s" in refused.state.error.description
    assert time.monotonic() - began >= 0.5
    s.service.submit(c.Purge("few"))
    a.send(transfer(3, to("few")))
    a.expect(Disposition, first=3, state=Accepted())


def test_a_sender_that_cannot_be_told_rejected_is_detached_when_it_has_waited(s: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_list, "CAPACITY_TIMEOUT_S", 0.1)
    a = relay(s, source=Source(outcomes=(symbol("amqp:accepted:list"),)))
    a.send(transfer(1, to("few")))
    error = a.expect(Detach).error
    assert error is not None
    assert error.condition == FULL


def test_so_many_octets_wait_for_room(s: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q15: beyond the limit a message is refused immediately. Waiting messages continue to wait, and other queues are not
    affected.
    """
    monkeypatch.setattr(waiting_list, "WAITING_BYTES", 7 * KIB)  # three times a body and a KiB
    a = relay(s)
    a.send(*(transfer(number, to("few", bytes(KIB))) for number in (1, 2, 3, 4)))
    refused = a.expect(Disposition, first=4)
    assert isinstance(refused.state, Rejected)
    assert refused.state.error.condition == FULL
    s.declare("roomy", maxMessages=9, overflow="block")
    for number, queue in ((5, "q"), (6, "roomy")):
        a.send(transfer(number, to(queue, bytes(KIB))))
        a.expect(Disposition, first=number, state=Accepted())
    for number in (1, 2, 3):
        s.service.submit(c.Purge("few"))
        a.expect(Disposition, first=number, state=Accepted())
    s.until(lambda: not s.plane.sender_credit.waiting_lists and not s.plane.sender_credit.waiting_bytes, "nothing of it is kept")
    assert not s.plane.sender_credit.waiting_bytes_of


def test_what_waits_of_one_user_leaves_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On any number of connections. All users together also have a limit."""
    monkeypatch.setattr(waiting_list, "OF_ONE_USER", 5 * KIB)  # twice a body and a KiB
    monkeypatch.setattr(waiting_list, "WAITING_BYTES", 7 * KIB)
    site = Site(tmp_path, {name: user() for name in ("ann", "bob", "cid")}, {n: {"*": "send"} for n in ("ann", "bob", "cid")})
    with stage(tmp_path, fsync="never", access=site.access) as s:
        s.declare("few", maxMessages=1, overflow="block")
        s.service.submit(enqueue("few", b"m"))
        for number, (name, takes) in enumerate((("ann", 1), ("ann", 1), ("ann", 0), ("bob", 1), ("bob", 0), ("cid", 0))):
            a = log_in(s, name, container_id=f"{number}").usual()
            a.send(sends(name="relay", target=Target()))
            a.expect(Attach)
            a.expect(Flow)
            a.send(transfer(0, to("few", bytes(KIB))))
            if takes:
                a.nothing()
                continue
            refused = a.expect(Disposition, first=0)
            assert isinstance(refused.state, Rejected)
            assert refused.state.error.condition == FULL
            assert ("of one user" in refused.state.error.description) is (name == "ann")
        assert len(s.plane.sender_credit.waiting_lists) == 3


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("kind", ["fifo", "lastvalue"])
def test_an_outcome_makes_room_for_the_message_that_comes_behind_it(s: Stage, kind: str, settled: bool) -> None:
    """Q15 Q17: a sender that has just settled messages has room, and need not wait until the broker carries out the outcome."""
    limits = {"maxMessages": 1} if kind == "fifo" else {"key": "messageId", "maxKeys": 1}
    s.declare("few", type=kind, overflow="reject", **limits)
    a = s.script().usual()
    a.sender("few")
    a.receiver("few", handle=1, credit=10)
    for number in range(3):
        dispositions = [says(Accepted(), number - 1, settled=settled)] if number else []
        a.send(*dispositions, transfer(number, message(b"m", properties=Properties(message_id=f"{number}"))))
        if dispositions and not settled:
            a.expect(Disposition, role=SENDER, first=number - 1)
        a.expect(Disposition, role=RECEIVER, first=number, state=Accepted())
        a.expect_message()


@pytest.mark.parametrize("overflow", ["reject", "block"])
def test_who_is_told_that_a_queue_is_full_hears_of_staged_messages(s: Stage, overflow: str) -> None:
    """Staged messages use its room, although no client can see them."""
    s.declare("few", maxMessages=2, overflow=overflow)
    several = enqueue("few", b"m", b"m")
    s.service.submit(c.StageMessages("somebody's", "few", several.count, several.sizes, several.payload))
    a = s.script().usual()
    a.sender(name="relay", target=Target(capabilities=(symbol("immediate"),) if overflow == "block" else ()))
    a.send(transfer(0, to("few")))
    state = a.expect(Disposition).state
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert "2 of its messages are staged" in (state.error.description or "")
