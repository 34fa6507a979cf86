"""Q12 Q13 C8: messages of an ended link get its source's default outcome, for each end. Unread messages use no attempt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp import Accepted, Modified, Rejected, Released, Source
from penstock.broker_core.amqp.performatives import Close, Detach, End
from penstock.broker_core.amqp.types import Symbol
from penstock.broker_core.engine import commands as c

from .frames import detach, flow, says
from .harness import Script, Stage, stage
from .scenarios_outgoing import filled, numbered


def _detach(a: Script) -> None:
    a.send(detach())
    a.expect(Detach)


def _end(a: Script) -> None:
    a.send(End())
    a.expect(End)


def _close(a: Script) -> None:
    a.send(Close())
    a.expect(Close)


ENDS = {"detach": _detach, "end": _end, "close": _close, "lost": Script.drop}
BODIES = [b"m%d" % number for number in range(200)]
FAILED = Modified(delivery_failed=True)
# The source's default outcome, and how many of three messages have an attempt counted at the end of their link. Without a default
# outcome that is the first one: the others were prefetched.
DEFAULTS = {"released": (Released(), 0), "modified": (Modified(), 0), "failed": (FAILED, 3), "none": (None, 1)}


@pytest.mark.parametrize("default", DEFAULTS)
@pytest.mark.parametrize("way", ENDS)
def test_a_default_outcome_holds_whichever_way_the_link_ends(tmp_path: Path, way: str, default: str) -> None:
    outcome, counted = DEFAULTS[default]
    with stage(tmp_path) as s:
        s.declare("q")
        filled(s, *numbered(3))
        for again in (1, 2):
            a = s.script().usual()
            a.receiver(source=Source(address="q", default_outcome=outcome), credit=3)
            a.expect_messages(b"m0", b"m1", b"m2")
            ENDS[way](a)
            s.until(lambda: not s.service.state.queues["q"].consumers.subscriptions, "the link has ended")
            assert s.messages("q") == [(number, again * (number < counted)) for number in range(3)]
    with stage(tmp_path) as s:  # and after a restart
        assert s.messages("q") == [(number, 2 * (number < counted)) for number in range(3)]


@pytest.mark.parametrize("notes", [None, {"x-opt-why": "closed"}], ids=["plain", "with annotations"])
@pytest.mark.parametrize("way", ENDS)
def test_a_consumer_that_comes_and_goes_puts_nothing_it_has_not_read_into_the_dead_letters(
    tmp_path: Path, way: str, notes: Any
) -> None:
    """As qpid-jms does: it prefetches, processes one message, marks the rest as failed, and closes."""
    annotations = None if notes is None else {Symbol(name): value for name, value in notes.items()}
    default = Modified(delivery_failed=True, message_annotations=annotations)
    with stage(tmp_path) as s:
        s.declare("dead")
        s.declare("q", deadLetterQueue="dead", maxAttempts=2)
        filled(s, *numbered(200))
        for visit in range(4):
            a = s.script().usual()
            a.receiver(source=Source(address="q", default_outcome=default), credit=200)
            a.expect_messages(*BODIES[visit:])
            a.send(says(Accepted(), 0))
            s.until(lambda left=199 - visit: _live(s, "q") == left, "one is accepted")  # type: ignore[misc]
            ENDS[way](a)
            s.until(lambda: not s.service.state.queues["q"].consumers.subscriptions, "the link has ended")
        assert s.messages("q") == [(number, 4) for number in range(4, 200)]  # the delivery count is AMQP's
        assert s.counts("dead") == {}
        # A receiver that looks at one and reports it has an attempt of two.
        a = s.script().usual()
        a.receiver(credit=1)
        a.expect_messages(BODIES[4])
        a.send(says(FAILED, 0))
        s.until(lambda: (4, 5) in s.messages("q"), "the first attempt has failed")
        a.send(flow(0, 1, 1))
        a.expect_messages(BODIES[4])
        a.send(says(FAILED, 1))
        s.until(lambda: s.counts("dead") == {"available": 1}, "the second was the last")
        # An option of the queue makes it count.
        s.service.submit(c.AlterQueue("q", {"defaultOutcomeCounts": True}))
        a = s.script().usual()
        a.receiver(source=Source(address="q", default_outcome=default), credit=10)
        a.expect_messages(*BODIES[5:15])
        ENDS[way](a)
        s.until(lambda: s.counts("dead") == {"available": 11}, "they have had their attempts")


def _live(s: Stage, queue: str) -> int:
    return s.service.state.queues[queue].live


def test_a_default_outcome_that_rejects_counts_alike_where_rejected_messages_return(tmp_path: Path) -> None:
    with stage(tmp_path) as s:
        s.declare("q", maxAttempts=1, rejected="return")
        filled(s, *numbered(1))
        for attempt in (1, 2, 3):
            a = s.script().usual()
            a.receiver(source=Source(address="q", default_outcome=Rejected()), credit=1)
            a.expect_message()
            _close(a)
            s.until(lambda: not s.service.state.queues["q"].consumers.subscriptions, "the link has ended")
            assert s.messages("q") == [(0, attempt)]
