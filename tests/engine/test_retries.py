"""Q23: a failed message waits for its retry, then takes its own place, and keeps the order that the queue promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine import decide
from penstock.broker_core.engine import events as e
from penstock.broker_core.engine.columns.attributes import Attributes, Coded
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome, Reason, State
from penstock.broker_core.engine.events import codec
from penstock.broker_core.engine.model.dispositions import DeliveryEnd
from penstock.broker_core.quantities import MAX_MILLISECONDS

from .ends import cell, fate, make, queue, survives, taken
from .harness import SECOND, START, Engine


def fail(engine: Engine, holder: int, *rows: int, retry: c.Retry | None = None, cause: Cause = Cause.MODIFIED) -> None:
    engine.run(c.Release("q", holder, RowSet.of_sequences(np.array(rows or (0,))), cause, retry=retry))


def due(engine: Engine, row: int = 0) -> int:
    """Return the milliseconds until the message is due."""
    block = queue(engine).blocks[0]
    times = block.times(block.due, slice(row, row + 1))
    return 0 if times is None else int(times[0]) - engine.wall // 1000


def wait(engine: Engine, milliseconds: int) -> Engine:
    engine.pass_time(milliseconds / 1000)
    engine.run(c.Tick())
    return survives(engine)


def got(engine: Engine, holder: int, most: int = 9) -> list[int]:
    rows: list[int] = engine.run(c.Acquire("q", holder, most)).rows.sequences().tolist()
    return rows


def test_a_failed_message_waits_longer_each_time_and_takes_its_own_place_then() -> None:
    engine = make(3, retryDelay=1000, retryBackoff=3, maxRetryDelay=8000)
    holder = taken(engine, 1)
    for delay in (1000, 3000, 8000, 8000):
        fail(engine, holder)
        assert (fate(survives(engine)), due(engine)) == ("delayed", delay)
        assert engine.run(c.Stat("q"))[0]["delayed"] == 1
        wait(engine, delay - 1)
        assert fate(engine) == "delayed"
        wait(engine, 1)
        assert fate(engine) == "available"
        wall, engine = engine.wall, engine.recovered()
        engine.wall = wall
        holder = engine.run(c.Subscribe("q"))
        assert got(engine, holder, 1) == [0], "before everything that came later"
    assert cell(engine, 0, "attempts") == 4


def test_others_go_on_meanwhile_and_what_comes_back_is_offered_before_them() -> None:
    engine = make(4, retryDelay=1000)
    holder = taken(engine, 2)
    fail(engine, holder, 0)
    assert got(engine, holder, 1) == [2]
    wait(engine, 1000)
    assert got(engine, holder, 9) == [0, 3]


@pytest.mark.parametrize(
    ("rules", "attempts", "delay"),
    [
        ({"retryDelay": 7, "retryBackoff": 1}, 900_000, 7),
        ({"retryDelay": 7, "retryBackoff": 2}, 3, 56),
        ({"retryDelay": 1, "retryBackoff": 2}, 900_000, MAX_MILLISECONDS),
        ({"retryDelay": 5, "retryBackoff": 100, "maxRetryDelay": 6}, 1, 6),
        ({"retryDelay": 5, "maxRetryDelay": 3}, 0, 3),
    ],
)
def test_the_delay_by_the_number_of_failures_before(rules: dict[str, int], attempts: int, delay: int) -> None:
    engine = make(2, maxAttempts=0, **rules)
    queue(engine).blocks[0].attempts.set(slice(0, 1), attempts, 64)
    fail(engine, taken(engine), 0, 1)
    assert due(engine) == delay
    assert due(engine, 1) == min(rules["retryDelay"], delay), "each message by its own failures"


def leave(cause: Cause) -> Callable[[Engine, int], None]:
    return lambda engine, holder: engine.run(c.Unsubscribe("q", holder, cause))


def lock_out(engine: Engine, holder: int) -> None:
    engine.pass_time(61)
    engine.run(c.Tick())


def roll_back(engine: Engine, holder: int) -> None:
    number = engine.run(c.BeginTransaction(1))
    retired = c.Retire(number, "q", holder, RowSet.single(0), DeliveryEnd(Outcome.ACCEPTED))
    engine.run(retired, c.Unsubscribe("q", holder), c.DischargeTransaction(number, fail=True))


DELAY = {"retryDelay": 5000}
CAUSES = [
    # the end of a delivery, the queue's options, whether the message waits
    (lambda engine, holder: fail(engine, holder), {}, True),
    (lambda engine, holder: fail(engine, holder, cause=Cause.MODIFIED_UNCOUNTED), {}, False),
    (lambda engine, holder: fail(engine, holder, cause=Cause.RELEASED), {}, False),
    (lambda engine, holder: engine.run(c.Settle("q", holder, RowSet.single(0), Outcome.REJECTED)), {"rejected": "return"}, True),
    (leave(Cause.LINK_LOST), {}, True),
    (leave(Cause.LINK_LOST), {"lostCounts": False}, False),
    (leave(Cause.RELEASED), {}, False),
    (leave(Cause.MODIFIED_BY_DEFAULT), {}, False),
    (leave(Cause.MODIFIED_BY_DEFAULT), {"defaultOutcomeCounts": True}, True),
    (lock_out, {"lockTimeout": 60_000}, True),
    (lock_out, {"lockTimeout": 60_000, "lockCounts": False}, False),
    (lambda engine, holder: engine.run(c.StartBroker()), {}, False),
    (lambda engine, holder: engine.run(c.Unsubscribe("q", holder, begun=RowSet())), {}, False),
    (leave(Cause.LINK_CLOSED), {}, False),
    (roll_back, {}, True),
]


@pytest.mark.parametrize(("end", "options", "waits"), CAUSES)
def test_C8_which_deliveries_are_failed_attempts(
    end: Callable[[Engine, int], None], options: dict[str, Any], waits: bool
) -> None:
    engine = make(1, **DELAY, **options)
    end(engine, taken(engine))
    assert fate(survives(engine)) == ("delayed" if waits else "available")
    assert not waits or due(engine) == 5000
    without = make(1, **options)
    end(without, taken(without))
    assert fate(without) == "available", "by default no message waits"


def test_S1_a_batch_that_is_given_back_waits_and_never_uses_the_attempts_of_its_messages_up() -> None:
    """A query with a leaseTimeout is restarted 30 times. All its messages are still available, unchanged."""
    engine = make(3, deadLetterQueue=None, retryDelay=1000, retryBackoff=2, maxRetryDelay=60_000)
    for run in range(30):
        epoch, number = engine.advance("L", epoch=None, finished=run, timeout=10 * SECOND, fail_on_data_loss=False)
        assert number == run + 1
        engine.read("L", epoch=epoch, batch=number)
        engine.pass_time(20)
        engine.run(c.Tick())
        delay = min(1000 << run, 60_000)
        assert [(fate(engine, row), due(engine, row)) for row in range(3)] == [("delayed", delay)] * 3
        wait(engine, delay)
    assert [cell(engine, row, "attempts") for row in range(3)] == [30] * 3
    assert [fate(engine, row) for row in range(3)] == ["available"] * 3


def test_the_last_attempt_makes_a_dead_letter_and_the_others_wait() -> None:
    engine = make(2, maxAttempts=2, **DELAY)
    fail(engine, taken(engine, 1), 0)
    wait(engine, 5000)
    fail(engine, taken(engine), 0, 1)
    assert [fate(engine, row) for row in range(2)] == ["dead_lettered", "delayed"]
    assert cell(engine, 0, "reason", "dead") == Reason.DELIVERY_LIMIT
    survives(engine)


def test_Q13_without_a_dead_letter_queue_it_is_archived_after_twenty_attempts_with_its_reason() -> None:
    engine = make(1, deadLetterQueue=None)
    for _ in range(20):
        assert fate(engine) == "available"
        fail(engine, taken(engine))
    assert (fate(engine), cell(engine, 0, "reason")) == ("dead_lettered", Reason.DELIVERY_LIMIT)
    assert engine.run(c.Stat("q"))[0]["stayed"] == 1
    assert engine.run(c.Redrive("q", 1)).messages == 1
    assert fate(survives(engine)) == "available"


@pytest.mark.parametrize(
    ("retry", "options", "delay"),
    [
        (c.Retry(after=300), {}, 300),
        (c.Retry(after=300), DELAY, 300),
        (c.Retry(after=300, gives_way=True), {}, 300),
        (c.Retry(time=START // 1000 + 900), DELAY, 900),
        (c.Retry(after=9000), {"maxRetryDelay": 4000}, 4000),
        (c.Retry(after=1 << 60), {}, MAX_MILLISECONDS),
        (c.Retry(), DELAY, 0),
        (c.Retry(time=1), DELAY, 0),
    ],
)
@pytest.mark.parametrize("cause", [Cause.MODIFIED, Cause.MODIFIED_UNCOUNTED])
def test_a_consumer_says_when_it_wants_it_again(retry: c.Retry, options: dict[str, int], delay: int, cause: Cause) -> None:
    """The consumer's delay replaces the queue's, also if the attempt does not count. `maxRetryDelay` limits it."""
    engine = make(1, **options)
    fail(engine, taken(engine), retry=retry, cause=cause)
    assert fate(survives(engine)) == ("delayed" if delay else "available")
    assert not delay or due(engine) == delay
    assert cell(engine, 0, "attempts") == (cause == Cause.MODIFIED)


@pytest.mark.parametrize(("cause", "delay"), [(Cause.MODIFIED, 5000), (Cause.MODIFIED_UNCOUNTED, 0)])
def test_a_consumers_delay_that_gives_way_leaves_a_queue_its_own(cause: Cause, delay: int) -> None:
    """A failed callback suggests a delay; a delay of the queue takes precedence."""
    engine = make(1, **DELAY)
    fail(engine, taken(engine), retry=c.Retry(after=300, gives_way=True), cause=cause)
    assert due(engine) == delay


def test_a_delay_that_is_asked_for_in_a_transaction_begins_at_its_commit() -> None:
    engine = make(1)
    holder, number = taken(engine), engine.run(c.BeginTransaction(1))
    disposition = DeliveryEnd(cause=Cause.MODIFIED, retry=c.Retry(after=1000))
    engine.run(c.Retire(number, "q", holder, RowSet.single(0), disposition))
    engine.pass_time(5)
    engine.run(c.DischargeTransaction(number))
    assert (fate(survives(engine)), due(engine)) == ("delayed", 1000)


def test_what_expires_or_is_purged_while_it_waits_ends_so() -> None:
    expiry = np.array([START // 1000 + 3000, 0])
    engine = make(2, attributes=Attributes(expiry=expiry), **DELAY)
    fail(engine, taken(engine), 0, 1)
    wait(engine, 4000)
    assert [fate(engine, row) for row in range(2)] == ["expired", "delayed"]
    assert engine.run(c.Purge("q")) == 1
    assert fate(survives(engine), 1) == "purged"
    wait(engine, 9000)


def test_Q17_a_newer_value_replaces_one_that_waits_for_its_retry() -> None:
    """The newer value may arrive before the failure or after it."""
    key = Attributes(key=Coded(["k"], np.array([1])))
    for newer_first in (False, True):
        engine = Engine()
        engine.run(c.DeclareQueue("q", "lastvalue", {"key": "subject", **DELAY}), c.Enqueue("q", 1, 1, attributes=key))
        holder = taken(engine)
        for newer in (newer_first, not newer_first):
            if newer:
                engine.run(c.Enqueue("q", 1, 1, attributes=key))
            else:
                fail(engine, holder)
        assert [fate(engine, row) for row in range(2)] == ["replaced", "available"]
        wait(engine, 5000)


def grouped(count: int, **options: Any) -> Engine:
    """Create `count` messages of group a, then one of group b."""
    engine = Engine()
    engine.run(c.StartBroker(), c.DeclareQueue("q", options={"groups": "held", **DELAY, **options}))
    codes = np.array([1] * count + [2])
    engine.run(c.Enqueue("q", count + 1, 1, attributes=Attributes(group=Coded(["a", "b"], codes))))
    return engine


@pytest.mark.parametrize("groups", ["held", "sticky"])
@pytest.mark.parametrize("by_lease", [False, True])
def test_Q16_later_messages_of_a_group_wait_for_one_that_waits(groups: str, by_lease: bool) -> None:
    """For any consumer, also after a restart. Messages of other groups and earlier ones are not delayed."""
    engine = grouped(4, groups=groups)
    holder = taken(engine, 2)
    fail(engine, holder, 1)
    engine.run(c.Release("q", holder, RowSet.single(0)))
    engine.run(c.Unsubscribe("q", holder))
    engine = survives(engine).from_snapshot()
    engine.run(c.StartBroker())

    def takes() -> list[int]:
        if not by_lease:
            return got(engine, consumer)
        number = engine.advance("L", epoch=None, finished=0)[1]
        return [] if not number else engine.state.leases["L"].batches[number].rows.sequences().tolist()

    consumer = engine.run(c.Subscribe("q"))
    assert takes() == [0, 4]
    if not by_lease:
        assert got(engine, consumer) == []
        wait(engine, 5000)
        assert got(engine, consumer) == [1, 2, 3]


@pytest.mark.parametrize("end", ["purge", "move", "expire", "discard"])
def test_Q16_a_group_goes_on_when_what_it_waits_for_ends(end: str) -> None:
    """A link that found no message meanwhile is woken and gets the rest."""
    engine = grouped(3)
    holder = taken(engine, 1)
    fail(engine, holder, 0)
    assert got(engine, holder) == [3]
    assert got(engine, holder) == []
    ends: dict[str, c.Command[Any]] = {
        "purge": c.Purge("q", 1),
        "move": c.Move("q", "other", 1),
        "discard": c.DiscardMessages("q", 0, 0, "not wanted"),
        "expire": c.Tick(),
    }
    engine.run(c.DeclareQueue("other"))
    if end == "expire":
        block = queue(engine).blocks[0]
        block.expiry.set(slice(0, 1), 1, len(block.state))
        block.next_expiry = block.base_ms
        queue(engine).note_times(block)
        engine.pass_time(3)
    decision = decide(engine.state, ends[end], c.Now(engine.wall, engine.up))
    assert "q" in decision.effects.wakes
    engine.run(ends[end])
    assert got(engine, holder) == [1, 2]


@pytest.mark.parametrize("consumers", ["single", "exclusive"])
@pytest.mark.parametrize("by_lease", [False, True])
def test_Q22_a_queue_for_one_consumer_at_a_time_keeps_its_order(consumers: str, by_lease: bool) -> None:
    """No later message is delivered before the waiting one. The consumer keeps the messages that it holds."""
    engine = make(5, consumers=consumers, **DELAY)
    holder = taken(engine, 3)
    fail(engine, holder, 1)
    engine.run(c.Settle("q", holder, RowSet.single(2)))
    engine.run(c.Release("q", holder, RowSet.single(0)))
    if by_lease:
        engine.run(c.Unsubscribe("q", holder))
        assert engine.advance("L", epoch=None, finished=0)[1] == 1
        assert engine.state.leases["L"].batches[1].rows.sequences().tolist() == [0]
        return
    assert got(engine, holder) == [0]
    assert got(engine, holder) == []
    assert engine.run(c.Browse("q", 0, 9)).rows.sequences().tolist() == [3, 4], "a browser sees the available messages"
    wait(engine, 5000)
    assert got(engine, holder) == [1, 3, 4]


def test_Q22_the_order_of_a_priority_queue_goes_by_levels_first() -> None:
    engine = Engine()
    levels = Attributes(priority=np.array([10, 5, 5, 1]))  # the priorities plus one; the levels are 2, 1, 1, 0
    engine.run(c.DeclareQueue("q", "priority", {"levels": 3, "consumers": "single", **DELAY}))
    engine.run(c.Enqueue("q", 4, 1, attributes=levels))
    holder = taken(engine, 1)
    engine.run(c.Settle("q", holder, RowSet.single(0)))
    assert got(engine, holder, 1) == [1]
    fail(engine, holder, 1)
    assert got(engine, holder) == []
    engine.run(c.Enqueue("q", 1, 1, attributes=Attributes(priority=np.array([10]))))
    assert got(engine, holder) == [4], "a message of a higher level is delivered"
    wait(engine, 5000)
    assert [got(engine, holder), got(engine, holder)] == [[1, 2], [3]]


def test_Q22_who_waits_goes_on_when_the_queue_is_altered_or_the_message_ends() -> None:
    for change in (c.AlterQueue("q", {"consumers": "all"}), c.Purge("q", 1)):
        engine = make(3, consumers="single", **DELAY)
        holder = taken(engine, 1)
        fail(engine, holder)
        assert got(engine, holder) == []
        assert "q" in decide(engine.state, change, c.Now(engine.wall, engine.up)).effects.wakes
        engine.run(change)
        assert got(engine, holder) == [1, 2]


def test_Q18_a_message_that_its_sender_delays_keeps_nobody_waiting() -> None:
    """Also next to a message that was returned."""
    for options in ({"groups": "held"}, {"consumers": "single"}):
        engine = make(0, **options)
        group = Coded(["a"], np.array([1, 1, 1])) if "groups" in options else None
        later = Attributes(due=np.array([0, START // 1000 + 9000, 0]), group=group)
        engine.run(c.Enqueue("q", 3, 1, attributes=later))
        holder = taken(engine, 1)
        engine.run(c.Release("q", holder, RowSet.single(0)), c.Unsubscribe("q", holder))
        engine = survives(engine).from_snapshot()
        assert got(engine, engine.run(c.Subscribe("q"))) == [0, 2]


@pytest.mark.parametrize("options", [{"groups": "held"}, {"consumers": "single"}])
def test_the_first_of_several_that_wait_is_found_anew_as_they_come_and_go(options: dict[str, Any]) -> None:
    engine = grouped(5, **{"groups": "none", **options})
    holder = taken(engine, 4)
    fail(engine, holder, 3, retry=c.Retry(after=1000))
    assert got(engine, holder) == ([5] if "groups" in options else [])
    fail(engine, holder, 1, retry=c.Retry(after=3000))
    engine.run(c.Release("q", holder, RowSet.of_sequences(np.array([0, 2]))))
    assert got(engine, holder) == [0], "message 2 waits for message 1"
    wait(engine, 1000)
    assert got(engine, holder) == []
    fail(engine, holder, 0, retry=c.Retry(after=5000))
    wait(engine, 2000)
    assert got(engine, holder) == []
    wait(engine, 3000)
    assert got(engine, holder) == [0, 1, 2, 3, 4, 5][: 5 if "groups" in options else 6]


def test_a_moved_message_keeps_its_delay_and_is_no_retry_there() -> None:
    engine = make(1, **DELAY)
    engine.run(c.DeclareQueue("other", options={"consumers": "single"}))
    fail(engine, taken(engine))
    engine.run(c.Move("q", "other", 1), c.Enqueue("other", 1, 1))
    assert fate(engine, 0, "other") == "delayed"
    assert engine.run(c.Acquire("other", engine.run(c.Subscribe("other")), 9)).rows.sequences().tolist() == [1]


def test_the_clock_that_is_set_back_shortens_no_delay() -> None:
    engine = make(1, **DELAY)
    fail(engine, taken(engine))
    engine = engine.recovered()
    engine.wall = START - 3600 * SECOND
    engine.run(c.StartBroker(), c.Tick())
    assert fate(engine) == "delayed"
    assert engine.state.time >= START


def test_one_event_for_each_delay_however_many_messages() -> None:
    """A million returned messages need no event each."""
    engine = make(500, **DELAY)
    holder = taken(engine, 500)
    fail(engine, holder, *range(250))
    engine.run(c.Release("q", holder, RowSet.range(250, 500)))
    wait(engine, 5000)
    engine.run(c.AlterQueue("q", {"retryBackoff": 2}), c.Unsubscribe("q", taken(engine, 500)))
    together = codec.decode(engine.log[-1][0])
    assert isinstance(together, e.Together)
    delays = [(part.until - engine.wall // 1000, part.rows.count) for part in together.parts if isinstance(part, e.Delayed)]
    assert sorted(delays) == [(5000, 250), (10_000, 250)]
    assert queue(survives(engine)).counts[State.DELAYED] == 500
