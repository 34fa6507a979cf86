"""Replays with relative times: the first offset fixes them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from penstock.broker_core.errors import InvalidRequest, WrongOffset
from penstock.connector.task import archive

from .helpers import LIMIT
from .test_replay import Clock, Site, add, batch_of, clock, drained, reader

__all__ = ["clock"]


def test_a_relative_time_is_fixed_in_the_first_offset(tmp_path: Path, clock: Clock) -> None:
    """A restart three hours later plans the same batches, and continues with the rows since that time."""
    archive._unreachable.clear()
    with contextlib.closing(Site(tmp_path, clock)) as site:
        site.client.call("queue.declare", queue="q")
        for _ in range(4):  # messages 0, 1, 2 and 3, an hour after one another
            add(site, 1)
            clock.now += 3600
        window = {"startingTimestamp": "-150m", "endingTimestamp": "-30m"}  # messages 2 and 3
        settings = {"now": clock.date(), "maxMessagesPerTrigger": "1"}
        made = reader(site, **settings, **window)
        begin = made.initialOffset()
        first = made.latestOffset(begin, LIMIT)
        second = made.latestOffset(first, LIMIT)
        assert (batch_of(made, begin, first), batch_of(made, first, second)) == ([2], [3])
        clock.now += 3 * 3600
        settings["now"] = clock.date()
        again = reader(site, **settings, **window)
        assert batch_of(again, begin, first) == [2], "the batch of a driver that ended before the commit"
        assert again.latestOffset(first, LIMIT) == second
        assert drained(again, second)[0] == []
        absolute = reader(site, **settings, startingTimestamp="1970-01-01", endingTimestamp="1970-01-01T02:30")
        assert batch_of(absolute, begin, second) == [0, 1, 2], "an absolute time of the restart applies"
        assert drained(reader(site, **settings, **window))[0] == [], "a query with a new checkpoint has its own time"
        unbounded = reader(site, **settings).latestOffset(begin, LIMIT)
        with pytest.raises(WrongOffset, match="began without startingTimestamp: leave the option out, give a time such as"):
            drained(again, unbounded)


def test_a_window_that_is_empty_now_was_not_when_the_query_began(tmp_path: Path, clock: Clock) -> None:
    """An absolute end is before a relative begin after some hours, and the query still ends with the same rows."""
    archive._unreachable.clear()
    window = {"startingTimestamp": "-1h", "endingTimestamp": "1970-01-01T01:00", "maxMessagesPerTrigger": "1"}
    with contextlib.closing(Site(tmp_path, clock)) as site:
        site.client.call("queue.declare", queue="q")
        add(site, 2)
        made = reader(site, now=clock.date(), **window)
        first = made.latestOffset(made.initialOffset(), LIMIT)
        clock.now += 86400
        assert drained(reader(site, now=clock.date(), **window), first)[0] == [[1]]
        with pytest.raises(InvalidRequest, match="01T23:16:40Z, is not before endingTimestamp, 1970-01-01T01:00:00Z"):
            drained(reader(site, now=clock.date(), **window))


def test_later_recordings_come_since_the_time_of_the_begin(tmp_path: Path, clock: Clock) -> None:
    archive._unreachable.clear()
    with contextlib.closing(Site(tmp_path, clock)) as site:
        site.client.call("queue.declare", queue="q")
        site.send("q", body=[b"x"] * 3)
        site.settle("q", 1)
        site.record("q")
        clock.now += 1800
        batches, offset = drained(reader(site, now=clock.date(), startingTimestamp="-1h"))
        assert batches == [[0]]
        site.settle("q", 2)
        site.record("q")
        clock.now += 86400
        assert drained(reader(site, now=clock.date(), startingTimestamp="-1h"), offset)[0] == [[1, 2]]
