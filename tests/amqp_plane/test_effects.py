"""EffectQueue for the disk, in order; deadlines, until they are reached or their reason is gone."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker_core.amqp_plane.loop.effects import EffectQueue
from penstock.broker_core.amqp_plane.loop.syncs import Deadline


def test_an_effect_happens_when_the_disk_has_it_and_overtakes_none() -> None:
    effects, happened = EffectQueue(), list[str]()
    effects.when_durable(20, lambda: happened.append("an accepted message"))
    effects.when_durable(10, lambda: happened.append("one with an earlier position, added later"))
    effects.behind_all(0, lambda: happened.append("an attach that put nothing into the log"))
    effects.when_durable(30, lambda: happened.append("another message"))
    assert (effects.happen(19), happened, effects.end) == (False, [], 30)
    assert effects.happen(20)
    assert happened == [
        "an accepted message",
        "one with an earlier position, added later",
        "an attach that put nothing into the log",
    ]
    assert effects
    assert effects.happen(30)
    assert (len(happened), bool(effects), effects.idle, effects.end) == (4, False, True, 0)


def test_what_need_not_survive_a_crash_waits_for_nothing() -> None:
    effects, happened = EffectQueue(), list[str]()
    effects.when_durable(10, lambda: happened.append("durable"))
    effects.when_durable(0, lambda: happened.append("not durable"))
    assert effects.happen(0)
    assert (happened, bool(effects)) == (["not durable"], True)


def test_an_effect_that_fails_concerns_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    effects, happened = EffectQueue(), list[str]()
    effects.when_durable(1, lambda: happened.extend(1))  # type: ignore[arg-type]
    effects.when_durable(1, lambda: happened.append("the next"))
    assert effects.happen(1)
    assert happened == ["the next"]
    assert "an effect failed" in caplog.text


def test_a_deadline_is_reached_once_and_not_when_its_reason_is_gone() -> None:
    """Timers fire in the order of their times, so the timer that stops the loop comes last."""
    loop, reached = asyncio.new_event_loop(), list[str]()
    lasting = Deadline(loop, 0.0, lambda: reached.append("lasting"))
    gone = Deadline(loop, 0.0, lambda: reached.append("gone"))
    again = Deadline(loop, 0.0, lambda: reached.append("again"))
    try:
        for deadline in (lasting, lasting, gone, again):
            deadline.set()
        gone.cancel()
        again.cancel()
        again.set()
        loop.call_later(0.001, loop.stop)
        loop.run_forever()
        assert reached == ["lasting", "again"]
        lasting.cancel()  # it does not run: nothing happens
        lasting.set()
        loop.call_later(0.001, loop.stop)
        loop.run_forever()
    finally:
        loop.close()
    assert reached == ["lasting", "again", "lasting"]
