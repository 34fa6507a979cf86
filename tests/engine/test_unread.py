"""A query that finishes batches without reading them takes the same messages again, after longer and longer pauses."""

from __future__ import annotations

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.limits import SECOND, UNREAD_FREE, UNREAD_PAUSE, UNREAD_PAUSE_MOST
from penstock.broker_core.engine.columns.states import State

from .harness import Engine


def begun() -> Engine:
    engine = Engine()
    engine.run(c.StartBroker(), c.DeclareQueue("q"), c.Enqueue("q", 10, 1))
    return engine


def finished_unread(engine: Engine, times: int) -> int:
    """Finish batches one after another; return the number of the last one."""
    epoch, number = engine.advance("l", epoch=None, finished=0)
    for _ in range(times - 1):
        before = number
        _, number = engine.advance("l", epoch=epoch, finished=number)
        if number == before:
            engine.up = engine.state.leases["l"].waits_until
            _, number = engine.advance("l", epoch=epoch, finished=number)
        assert number == before + 1
    assert engine.advance("l", epoch=epoch, finished=number)[1] in (number, number + 1)
    return number


def test_the_first_ones_come_at_once_and_the_next_ones_later_and_later() -> None:
    engine = begun()
    epoch, number = engine.advance("l", epoch=None, finished=0)
    waits = []
    while len(waits) < UNREAD_FREE + 10:
        before, start = number, engine.up
        _, number = engine.advance("l", epoch=epoch, finished=number)
        if number == before:
            assert engine.state.queues["q"].counts[State.AVAILABLE] == 10, "other consumers can take them meanwhile"
            engine.up = engine.state.leases["l"].waits_until - 1
            assert engine.advance("l", epoch=epoch, finished=number)[1] == before
            engine.up += 1
            _, number = engine.advance("l", epoch=epoch, finished=number)
        assert number == before + 1
        waits.append(engine.up - start)
    expected = [0] * (UNREAD_FREE - 1) + [UNREAD_PAUSE << n for n in range(20)]
    assert waits == [min(wait, UNREAD_PAUSE_MOST) for wait in expected][: len(waits)]
    assert engine.state.leases["l"].unread == len(waits)


def test_who_reads_again_or_starts_again_goes_on_at_once() -> None:
    for again in ("reads", "starts"):
        engine = begun()
        number = finished_unread(engine, UNREAD_FREE + 3)
        engine.pass_time(UNREAD_PAUSE_MOST / SECOND)
        epoch, following = engine.advance("l", epoch=None if again == "starts" else 1, finished=number)
        assert following == number + 1
        if again == "reads":
            assert len(engine.read("l", epoch=epoch, batch=following)) == 10
            engine.run(c.Enqueue("q", 5, 1))
            assert engine.advance("l", epoch=epoch, finished=following) == (epoch, following + 1)
            following += 1
        assert engine.advance("l", epoch=epoch, finished=following) == (epoch, following + 1)


def test_an_available_now_run_goes_through_all_of_a_queue_without_a_pause() -> None:
    """The run takes no message twice, so it ends on its own."""
    engine = begun()
    epoch, number = engine.advance("l", epoch=None, finished=0, messages=1, exclude=True, until=10)
    for _ in range(9):
        before = number
        _, number = engine.advance("l", epoch=epoch, finished=number, messages=1, exclude=True, until=10)
        assert number == before + 1
    assert engine.advance("l", epoch=epoch, finished=number, messages=1, exclude=True, until=10) == (epoch, number)
