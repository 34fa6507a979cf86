"""C8 Q24: which of a link's messages count as attempted, by the cause of the link's end and the progress of its receiver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.broker_core.amqp import Accepted, Modified, Rejected, Released, Source
from penstock.broker_core.amqp.performatives import Attach, Close, Detach, Received
from penstock.broker_core.messages.annotations import REPORTS

from ..service.helpers import Clock, enqueue
from .frames import detach, flow, says, symbol
from .harness import Script, Stage, stage
from .logins import Site, log_in, user
from .scenarios_outgoing import filled, numbered
from .test_left_behind import ENDS
from .transacting import control, declare, within

FAILED = Modified(delivery_failed=True)
BEGUN = Received(section_number=0, section_offset=0)
COUNT = 6


def holding(s: Stage, a: Script, **fields: object) -> None:
    """Fill the queue with six messages, and deliver all of them to `a`."""
    filled(s, *numbered(COUNT))
    a.receiver(credit=COUNT, **fields)
    a.expect_messages(*[b"m%d" % number for number in range(COUNT)])


def are_back(s: Stage) -> dict[int, int]:
    """Check the attempts of the remaining messages, by sequence number."""
    s.until(lambda: "acquired" not in s.counts("q"), "its messages are back")
    return dict(s.messages("q"))


# --- the broker ends the link: no attempt is counted, with any default outcome, so `maxAttempts` of 1 makes no dead letter


def _stop(s: Stage) -> None:
    s.stop()


def _operator(s: Stage) -> None:
    [connection] = s.plane.connections()
    assert s.plane.close_connection(connection["id"], "enough")


DEFAULTS = {"none": None, "failed": FAILED, "rejected": Rejected(), "accepted": Accepted()}


@pytest.mark.parametrize("default", DEFAULTS)
@pytest.mark.parametrize("end", [_stop, _operator], ids=["SIGTERM", "operator"])
def test_c8_an_end_that_the_broker_causes_is_no_attempt(tmp_path: Path, end: Callable[[Stage], None], default: str) -> None:
    with stage(tmp_path) as s:
        s.declare("dead")
        s.declare("q", deadLetterQueue="dead", maxAttempts=1, rejected="return", defaultOutcomeCounts=True)
        a = s.script().usual()
        holding(s, a, source=Source(address="q", default_outcome=DEFAULTS[default]))
        a.send(says(Accepted(), 0))
        s.until(lambda: s.service.state.queues["q"].live == COUNT - 1, "one is accepted")
        end(s)
        a.expect(Close)
        assert are_back(s) == dict.fromkeys(range(1, COUNT), 0)
        assert s.counts("dead") == {}


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("end", [_stop, _operator], ids=["SIGTERM", "operator"])
def test_c8_an_open_transaction_that_the_broker_rolls_back_is_no_attempt(
    tmp_path: Path, end: Callable[[Stage], None], settled: bool
) -> None:
    """Messages with an outcome in it, and one that was acquired in it."""
    with stage(tmp_path) as s:
        s.declare("q", maxAttempts=1)
        a = s.script().usual()
        control(a)
        txn = declare(a, 0)
        filled(s, *numbered(COUNT))
        a.receiver(credit=COUNT - 1, source=Source(address="q", default_outcome=FAILED))
        a.expect_messages(*[b"m%d" % number for number in range(COUNT - 1)])
        a.send(says(within(txn, Accepted()), 0, 1, settled=settled))
        a.send(flow(0, 1, COUNT - 1, properties={symbol("txn-id"): txn}))
        a.expect_message(state=within(txn))
        end(s)
        assert are_back(s) == dict.fromkeys(range(COUNT), 0)


@pytest.mark.parametrize("withdrawn", ["login", "right"])
def test_c8_a_right_that_is_withdrawn_is_no_attempt(tmp_path: Path, withdrawn: str) -> None:
    both = {"q": "send,receive,browse"}
    site = Site(tmp_path, {"alice": user("secret")}, {"alice": both})
    with stage(tmp_path, access=site.access, fsync="never") as s:
        s.declare("q", maxAttempts=1)
        a = log_in(s, "alice").usual()
        s.service.submit(enqueue("q", *[b"m%d" % number for number in range(COUNT)]))
        a.receiver(credit=COUNT, source=Source(address="q", default_outcome=FAILED))
        a.expect_messages(*[b"m%d" % number for number in range(COUNT)])
        if withdrawn == "login":
            site.edit({"alice": user("another")}, {"alice": both})
        else:
            site.edit({"alice": user("secret")}, {"alice": {"q": "send"}})
        a.expect(Close if withdrawn == "login" else Detach)
        assert are_back(s) == dict.fromkeys(range(COUNT), 0)


def test_c8_detached_links_are_no_attempt_when_the_broker_stops(tmp_path: Path) -> None:
    with stage(tmp_path) as s:
        s.declare("q", maxAttempts=1)
        a = s.script(container_id="A").usual()
        holding(s, a, source=Source(address="q", expiry_policy=symbol("never"), timeout=60))
        a.send(detach(closed=False))
        a.expect(Detach)
        s.stop()
        assert are_back(s) == dict.fromkeys(range(COUNT), 0)


# --- the link is lost, or its client ends it: messages that the receiver has begun to work on count


#: The receiver's outcomes, and the attempts of the remaining messages.
SAYS: dict[str, tuple[list[object], dict[int, int]]] = {
    "nothing": ([], {0: 1, 1: 0, 2: 0, 3: 0, 4: 0, 5: 0}),
    "in order": ([says(Accepted(), 0, 1)], {2: 1, 3: 0, 4: 0, 5: 0}),
    "out of order": ([says(Accepted(), 3)], {0: 1, 1: 1, 2: 1, 4: 1, 5: 0}),
    "far, then near": ([says(Accepted(), 3), says(Accepted(), 1)], {0: 1, 2: 1, 4: 1, 5: 0}),
    "failed, in the middle": ([says(FAILED, 2)], {0: 1, 1: 1, 2: 1, 3: 1, 4: 0, 5: 0}),
    "gives prefetched ones back": ([says(Released(), 2, 4), says(Modified(), 5)], {0: 1, 1: 0, 2: 0, 3: 0, 4: 0, 5: 0}),
}


@pytest.mark.parametrize("case", SAYS)
@pytest.mark.parametrize("way", ENDS)
def test_c8_a_lost_link_counts_what_its_receiver_had_begun_with(tmp_path: Path, way: str, case: str) -> None:
    dispositions, attempts = SAYS[case]
    with stage(tmp_path) as s:
        s.declare("q")
        a = s.script().usual()
        holding(s, a)
        for disposition in dispositions:
            a.send(disposition)  # type: ignore[arg-type]
        s.settle()
        ENDS[way](a)
        assert are_back(s) == attempts


@pytest.mark.parametrize("way", ENDS)
def test_c8_lostcounts_false_counts_nothing(tmp_path: Path, way: str) -> None:
    with stage(tmp_path) as s:
        s.declare("q", lostCounts=False, maxAttempts=1)
        a = s.script().usual()
        holding(s, a)
        ENDS[way](a)
        assert are_back(s) == dict.fromkeys(range(COUNT), 0)


@pytest.mark.parametrize("reported", [0, 1, 3])
@pytest.mark.parametrize("way", ENDS)
def test_c7_of_a_receiver_that_reports_only_those_messages_count(tmp_path: Path, way: str, reported: int) -> None:
    with stage(tmp_path) as s:
        s.declare("q")
        a = s.script().usual()
        answer = a.receiver(properties={REPORTS: True})
        assert isinstance(answer, Attach)
        assert (answer.properties or {})[REPORTS] is True
        filled(s, *numbered(COUNT))
        a.send(flow(0, COUNT))
        a.expect_messages(*[b"m%d" % number for number in range(COUNT)])
        if reported:
            a.send(says(BEGUN, reported - 1, settled=False))
        ENDS[way](a)
        assert are_back(s) == {number: int(number < reported) for number in range(COUNT)}


def test_q13_a_message_that_crashes_its_consumer_becomes_a_dead_letter_alone(tmp_path: Path) -> None:
    """Each consumer prefetches all messages, and crashes at the first."""
    with stage(tmp_path) as s:
        s.declare("dead")
        s.declare("q", deadLetterQueue="dead", maxAttempts=3)
        filled(s, *numbered(COUNT))
        for _ in range(3):
            a = s.script().usual()
            a.receiver(credit=COUNT)
            a.expect_messages(*[b"m%d" % number for number in range(COUNT)])
            a.drop()
            are_back(s)
        assert s.messages("q") == [(number, 0) for number in range(1, COUNT)]
        assert s.counts("dead") == {"available": 1}


def test_c8_a_message_that_is_sent_in_part_has_no_attempt(tmp_path: Path) -> None:
    """Its receiver's window took one frame of several."""
    with stage(tmp_path) as s:
        s.declare("q", maxAttempts=1)
        s.service.submit(enqueue("q", b"x" * 2000))
        a = s.script(max_frame_size=512).usual()
        a.receiver()
        a.send(flow(0, 1, incoming_window=1))
        s.until(lambda: s.counts("q") == {"acquired": 1}, "it is on its way")
        s.settle()
        a.drop()
        assert are_back(s) == {0: 0}


def test_c8_a_lock_that_ends_counts_by_its_own_rule(tmp_path: Path) -> None:
    """Also if the link is lost later: it no longer holds the message."""
    with stage(tmp_path, clock=Clock()) as s:
        s.declare("q", lockTimeout=60_000)
        a = s.script().usual()
        holding(s, a)
        s.pass_time(61)
        assert are_back(s) == dict.fromkeys(range(COUNT), 1)
        a.drop()
        s.settle()
        assert are_back(s) == dict.fromkeys(range(COUNT), 1)
