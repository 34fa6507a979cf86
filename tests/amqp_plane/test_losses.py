"""Refused and dropped AMQP messages are counted by queue, exchange and reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp.composites import Composite
from penstock.broker_core.amqp.messages import Properties
from penstock.broker_core.amqp.performatives import Attach, Disposition, Flow, Target
from penstock.broker_core.amqp_plane.links import waiting_list
from penstock.broker_core.engine import commands as c

from ..journal.lying_disk import LyingDisk
from .frames import message, sends, symbol, transfer
from .harness import Script, Stage, stage
from .test_waiting_list import relay, to
from .transacting import control, declare, within

REJECT, RING = {"maxMessages": 1, "overflow": "reject"}, {"maxMessages": 1, "overflow": "ring"}


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path, disk=LyingDisk()) as made:
        yield made


def sender(s: Stage, address: str | None, *capabilities: str) -> Script:
    script = s.script().usual()
    target = Target(address=address, capabilities=tuple(map(symbol, capabilities)))
    script.send(sends(name="sender", target=target))
    script.expect(Attach)
    script.expect(Flow)
    return script


def answered(script: Script, *payloads: bytes, first: int = 0, **fields: Any) -> None:
    """Send messages, and wait for the outcome of each."""
    script.send(*(transfer(number, payload, **fields) for number, payload in enumerate(payloads, first)))
    missing = len(payloads)
    while missing:
        frame = script.expect(Composite)
        if isinstance(frame, Disposition):
            missing -= 1 if frame.last is None else frame.last - frame.first + 1


def losses(s: Stage, node: str) -> dict[str, int]:
    s.settle()
    with s.service.turn() as turn:
        found = turn.state.queues.get(node) or turn.state.exchanges.by_name[node]
        return {reason: count for reason, count in found.losses.items() if count}


@pytest.mark.parametrize(("options", "lost"), [(REJECT, {"full": 2}), (RING, {"ring": 2}), ({}, {})])
def test_a_full_queue(s: Stage, options: dict[str, Any], lost: dict[str, int]) -> None:
    s.declare("q", **options)
    answered(sender(s, "q"), message(b"1"), message(b"2"), message(b"3"))
    assert losses(s, "q") == lost


def test_a_message_that_a_queue_has_already(s: Stage) -> None:
    s.declare("q", duplicateWindow=10)
    answered(sender(s, "q"), *[message(b"m", properties=Properties(message_id="1"))] * 3)
    assert losses(s, "q") == {"duplicate": 2}


def test_an_immediate_message_without_a_consumer(s: Stage) -> None:
    s.declare("q")
    answered(sender(s, "q", "immediate"), message(b"m"))
    assert losses(s, "q") == {"no-consumer": 1}


@pytest.mark.parametrize("capabilities", [(), ("immediate",)])
def test_a_message_that_is_invalid(s: Stage, capabilities: tuple[str, ...]) -> None:
    s.declare("q")
    answered(sender(s, "q", *capabilities), b"garbage")
    assert losses(s, "q") == {"other": 1}


def test_a_message_while_the_disk_is_full(s: Stage) -> None:
    s.declare("q")
    s.service.submit(c.DeclareExchange("x"))
    s.room(0)
    answered(sender(s, None), to("q"), to("x"))
    assert (losses(s, "q"), losses(s, "x")) == ({"disk-full": 1}, {"disk-full": 1})


def test_messages_to_an_exchange(s: Stage) -> None:
    """A full queue counts its own loss, also if another queue took the message."""
    s.declare("full", **REJECT)
    s.declare("roomy")
    for name, options in (("x", {}), ("dropping", {"unroutable": "drop"})):
        s.service.submit(c.DeclareExchange(name, options=options), c.Bind(name, "full", "one"))
        s.service.submit(c.Bind(name, "full", "both"), c.Bind(name, "roomy", "both"))
    keys = ("one", "one", "both", "none", "none")
    for exchange in ("x", "dropping"):
        answered(sender(s, exchange), *(message(b"m", properties=Properties(subject=key)) for key in keys))
    assert losses(s, "x") == {"full": 1, "unroutable": 2}
    assert losses(s, "dropping") == {"full": 2, "unbound": 2}
    assert (losses(s, "full"), losses(s, "roomy")) == ({"full": 5}, {})
    assert s.service.state.exchanges.by_name["x"].messages == 5


def test_a_message_that_waited_for_room(s: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_list, "CAPACITY_TIMEOUT_S", 0.3)
    a = relay(s)
    assert losses(s, "few") == {}
    a.send(transfer(1, to("few")))
    a.expect(Disposition, first=1)
    assert losses(s, "few") == {"full": 1}


def test_a_message_of_a_transaction(s: Stage) -> None:
    s.declare("q", **REJECT)
    a = sender(s, "q")
    control(a)
    txn = declare(a, 0)
    answered(a, message(b"1"), first=1, state=within(txn))
    answered(a, message(b"2"), message(b"3"), first=2, state=within(txn))
    assert losses(s, "q") == {"full": 2}


def test_a_restart_counts_from_0(tmp_path: Path) -> None:
    disk = LyingDisk()
    with stage(tmp_path, disk=disk) as first:
        first.declare("q", **RING)
        answered(sender(first, "q"), message(b"1"), message(b"2"))
        assert losses(first, "q") == {"ring": 1}
    with stage(tmp_path, disk=disk) as again:
        assert losses(again, "q") == {}
