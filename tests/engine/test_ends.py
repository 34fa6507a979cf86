"""Q12 Q13 C8: the fate of unprocessed messages by policy and cause, and the attributes that a dead letter keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes, Coded
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome, Reason, State
from penstock.broker_core.engine.model.batch_outcomes import RowsOutcome
from penstock.broker_core.engine.model.dispositions import DeliveryEnd

from .ends import DLQ, cell, fate, make, queue, survives, taken
from .harness import SECOND, START, Engine


# Ways to end a delivery, by cause.
def reject(engine: Engine, holder: int) -> None:
    engine.run(c.Settle("q", holder, RowSet.single(0), Outcome.REJECTED, "not JSON"))


def release(cause: Cause) -> Callable[[Engine, int], None]:
    return lambda engine, holder: engine.run(c.Release("q", holder, RowSet.single(0), cause))


def lose(engine: Engine, holder: int) -> None:
    engine.run(c.Unsubscribe("q", holder))


def default_rejected(engine: Engine, holder: int) -> None:
    engine.run(c.Unsubscribe("q", holder, outcome=Outcome.REJECTED))


def leave_modified(engine: Engine, holder: int) -> None:
    engine.run(c.Unsubscribe("q", holder, Cause.MODIFIED_BY_DEFAULT))


def leave_released(engine: Engine, holder: int) -> None:
    engine.run(c.Unsubscribe("q", holder, Cause.RELEASED))


def leave_prefetched(engine: Engine, holder: int) -> None:
    engine.run(c.Unsubscribe("q", holder, begun=RowSet()))


def leave_closed(engine: Engine, holder: int) -> None:
    engine.run(c.Unsubscribe("q", holder, Cause.LINK_CLOSED))


def restart(engine: Engine, holder: int) -> None:
    engine.run(c.StartBroker())


def lock_out(engine: Engine, holder: int) -> None:
    engine.pass_time(61)
    engine.run(c.Tick())


TABLE = [
    # the end of a message's first delivery, the queue's options, the fate of the message
    (reject, {}, "dead_lettered"),
    (reject, {"rejected": "archive"}, "rejected"),
    (reject, {"deadLetterQueue": None}, "rejected"),
    (reject, {"rejected": "return"}, "available"),
    (reject, {"rejected": "return", "maxAttempts": 1}, "dead_lettered"),
    (default_rejected, {}, "dead_lettered"),
    (default_rejected, {"rejected": "archive"}, "rejected"),
    (release(Cause.MODIFIED), {}, "available"),
    (release(Cause.MODIFIED), {"maxAttempts": 2}, "available"),
    (release(Cause.MODIFIED), {"maxAttempts": 1}, "dead_lettered"),
    (release(Cause.MODIFIED), {"maxAttempts": 1, "deadLetterQueue": None}, "dead_lettered"),
    (release(Cause.MODIFIED_UNCOUNTED), {"maxAttempts": 1}, "available"),
    (release(Cause.RELEASED), {"maxAttempts": 1}, "available"),
    (release(Cause.ROLLBACK), {"maxAttempts": 1}, "dead_lettered"),
    (lose, {"maxAttempts": 1}, "dead_lettered"),
    (lose, {"maxAttempts": 1, "lostCounts": False}, "available"),
    (leave_released, {"maxAttempts": 1}, "available"),
    (leave_modified, {"maxAttempts": 1}, "available"),
    (leave_modified, {"maxAttempts": 1, "lostCounts": False}, "available"),
    (leave_modified, {"maxAttempts": 1, "defaultOutcomeCounts": True}, "dead_lettered"),
    (leave_modified, {"maxAttempts": 1, "defaultOutcomeCounts": True, "lostCounts": False}, "dead_lettered"),
    (default_rejected, {"rejected": "return", "maxAttempts": 1}, "available"),
    (default_rejected, {"rejected": "return", "maxAttempts": 1, "defaultOutcomeCounts": True}, "dead_lettered"),
    (restart, {"maxAttempts": 1}, "available"),
    (restart, {"maxAttempts": 1, "lostCounts": True}, "available"),
    (leave_prefetched, {"maxAttempts": 1}, "available"),
    (leave_closed, {"maxAttempts": 1}, "available"),
    (lock_out, {"maxAttempts": 1, "lockTimeout": 60_000}, "dead_lettered"),
    (lock_out, {"maxAttempts": 1, "lockTimeout": 60_000, "lockCounts": False}, "available"),
    (lock_out, {"maxAttempts": 1}, "acquired"),
]


@pytest.mark.parametrize(("end", "options", "becomes"), TABLE)
def test_what_becomes_of_a_message_by_cause_and_policy(end: Any, options: dict[str, Any], becomes: str) -> None:
    """Q12 Q13 C8."""
    engine = make(1, **options)
    end(engine, taken(engine))
    assert fate(engine) == becomes
    arrived = 1 if becomes == "dead_lettered" and options.get("deadLetterQueue", "dead") else 0
    assert queue(engine, "dead").counts[State.AVAILABLE] == arrived
    assert queue(engine).stayed == (becomes == "dead_lettered" and not arrived)
    if arrived:
        reason = Reason.REJECTED if end in (reject, default_rejected) and options.get("rejected") != "return" else 2
        assert cell(engine, 0, "reason", "dead") == reason
        assert queue(engine, "dead").origins == ["q"]
        assert cell(engine, 0, "came_from", "dead") == 1
        assert cell(engine, 0, "attempts", "dead") == 0  # the count starts again there
    survives(engine)


@pytest.mark.parametrize(
    ("policy", "dlq", "becomes"), [("deadLetter", "dead", 1), ("archive", "dead", 0), ("deadLetter", None, 0)]
)
def test_what_expires_goes_by_policy_and_does_not_expire_again(policy: str, dlq: str | None, becomes: int) -> None:
    """Q9 Q13: also for a delayed message that expires before it is due."""
    expiry = np.array([START // 1000 + 5000] * 3)
    due = np.array([0, START // 1000 + 9000, 0])
    engine = make(3, attributes=Attributes(expiry=expiry, due=due), expired=policy, deadLetterQueue=dlq)
    engine.pass_time(6)
    engine.run(c.Tick())
    assert [fate(engine, row) for row in range(3)] == ["dead_lettered" if becomes else "expired"] * 3
    if becomes:
        engine.pass_time(1000)
        engine.run(c.Tick())
        assert len(engine.run(c.Acquire("dead", engine.run(c.Subscribe("dead")), 9)).rows) == 3
        assert cell(engine, 0, "reason", "dead") == Reason.EXPIRED
    survives(engine)


def test_every_failed_attempt_counts_until_the_last() -> None:
    """Q13 Q23: twenty by default. Each counted return is an attempt."""
    engine = make(1)
    for attempt in range(20):
        assert fate(engine) == "available"
        assert cell(engine, 0, "attempts") == attempt
        holder = taken(engine)
        engine.run(c.Unsubscribe("q", holder) if attempt % 2 else c.Release("q", holder, RowSet.single(0), Cause.MODIFIED))
    assert fate(engine) == "dead_lettered"
    assert cell(engine, 0, "attempts") == 20
    survives(engine)


def test_what_a_default_outcome_did_is_delivered_and_does_not_count_towards_the_limit_of_attempts() -> None:
    """Q13: the delivery count still rises (Q10). `maxAttempts` and an alteration of it compare only the other attempts.

    A block without default outcomes has no column for them.
    """
    engine = make(2, maxAttempts=3)
    engine.run(c.Release("q", taken(engine, 1), RowSet.single(0), Cause.MODIFIED))
    assert queue(engine).blocks[0].defaulted.values is None
    for end in (leave_modified, leave_modified, default_rejected, leave_modified):
        engine.run(c.AlterQueue("q", {"rejected": "return"}))
        end(engine, taken(engine))
    assert [cell(engine, row, "attempts") for row in range(2)] == [5, 4]
    assert [cell(engine, row, "defaulted") for row in range(2)] == [4, 4]
    assert [fate(survives(engine), row) for row in range(2)] == ["available", "available"]
    engine.run(c.Release("q", taken(engine, 1), RowSet.single(0), Cause.MODIFIED))
    assert (cell(engine, 0, "attempts"), fate(survives(engine))) == (6, "available")
    holder = taken(engine)
    engine.run(c.Release("q", holder, RowSet.single(0), Cause.MODIFIED), c.Release("q", holder, RowSet.single(1), Cause.MODIFIED))
    assert [fate(survives(engine), row) for row in range(2)] == ["dead_lettered", "available"]  # third and first counted attempt
    assert engine.run(c.AlterQueue("q", {"defaultOutcomeCounts": "true"})) is True
    leave_modified(engine, taken(engine))
    assert fate(survives(engine), 1) == "dead_lettered"


def test_a_redriven_message_has_had_no_attempts_of_any_kind() -> None:
    engine = make(1, maxAttempts=1, deadLetterQueue=None)
    leave_modified(engine, taken(engine))
    engine.run(c.Release("q", taken(engine), RowSet.single(0), Cause.MODIFIED))
    assert fate(engine) == "dead_lettered"
    assert engine.run(c.Redrive("q", 1)).messages == 1
    assert (cell(engine, 0, "attempts"), cell(engine, 0, "defaulted")) == (0, 0)
    survives(engine)


def test_a_limit_of_attempts_that_is_altered_is_asked_at_the_next_return() -> None:
    """Q13 Q21: messages at or above the new limit are delivered again, and so are messages that a link holds."""
    engine = make(2, maxAttempts=9)
    for _ in range(3):
        engine.run(c.Release("q", taken(engine), RowSet.range(0, 2), Cause.MODIFIED))
    holder = taken(engine, 1)
    assert engine.run(c.AlterQueue("q", {"maxAttempts": 2})) is True
    assert [fate(engine, row) for row in range(2)] == ["acquired", "available"]
    engine.run(c.Release("q", holder, RowSet.single(0), Cause.RELEASED))
    assert [fate(engine, row) for row in range(2)] == ["available", "available"]  # a release is not an attempt
    engine.run(c.Release("q", taken(survives(engine)), RowSet.range(0, 2), Cause.MODIFIED))
    assert [fate(engine, row) for row in range(2)] == ["dead_lettered", "dead_lettered"]
    survives(engine)


def test_what_an_operator_says_of_one_row_goes_by_policy_and_a_lost_batch_dead_letters_nothing() -> None:
    """Q13 S3: a batch fails as a whole, so its end raises the delivery count, but is never a message's last attempt. An outcome
    of a single message counts as before."""
    engine = make(4, maxAttempts=2)
    for round_ in range(1, 4):
        epoch, number = engine.advance("L", epoch=None, finished=round_ - 1, timeout=10 * SECOND, fail_on_data_loss=False)
        engine.read("L", epoch=epoch, batch=number)
        if round_ == 3:
            engine.run(c.SettleRow("L", 0, "rejected", "poison"), c.SettleRow("L", 1, "modified"))
        survives(engine).pass_time(20)
        engine.run(c.Tick())
    assert [fate(engine, row) for row in range(4)] == ["dead_lettered", "available", "available", "available"]
    assert queue(engine, "dead").blocks[0].errors == {0: "poison"}
    assert [cell(engine, row, "attempts") for row in range(1, 4)] == [3, 3, 3]
    assert [cell(engine, row, "leased") for row in range(1, 4)] == [2, 3, 3]
    engine.run(c.Release("q", taken(survives(engine)), RowSet.range(1, 4), Cause.MODIFIED))
    assert [fate(engine, row) for row in range(1, 4)] == ["dead_lettered", "available", "available"]
    assert cell(engine, 1, "reason", "dead") == Reason.DELIVERY_LIMIT
    survives(engine)


def test_a_dead_letter_takes_along_what_is_its_own() -> None:
    """Q13: size, priority, group, added annotations, and the payload by reference; not the delivery count."""
    attributes = Attributes(
        priority=np.array([0, 9, 5]), group=Coded(["g", "h"], np.array([1, 0, 2])), closes=np.array([0, 0, 1])
    )
    engine = make(3, attributes=attributes)
    holder = taken(engine)
    engine.run(c.Release("q", holder, RowSet.single(2), Cause.MODIFIED, annotations=b"note"))
    engine.run(c.Acquire("q", holder, 9))
    engine.run(c.Settle("q", holder, RowSet.of_sequences(np.array([0, 2])), Outcome.REJECTED, "why"))
    source, dead = queue(engine).blocks[0], queue(engine, "dead").blocks[0]
    for mine, theirs in ((0, 0), (1, 2)):
        assert dead.locations(slice(mine, mine + 1)).position == source.locations(slice(theirs, theirs + 1)).position
        assert dead.locations(slice(mine, mine + 1)).payload_row == theirs
    assert np.asarray(dead.sizes.get(slice(0, 2))).tolist() == [10, 12]
    assert queue(engine, "dead").bytes == 22
    assert np.asarray(dead.priority.get(slice(0, 2))).tolist() == [0, 5]
    codes = np.asarray(dead.group.get(slice(0, 2))).tolist()
    assert [queue(engine, "dead").group_names.name(code) for code in codes] == ["g", "h"]
    assert np.asarray(dead.closes.get(slice(0, 2))).tolist() == [0, 1]
    assert dead.overlays.among(slice(0, 2)) == {1: [b"note"]}
    assert dead.errors == {0: "why", 1: "why"}
    assert np.asarray(dead.came_from.get(slice(0, 2))).tolist() == [1, 3]
    assert not [name for name, _ in queue(engine).group_names.names()]  # the queue forgets these groups
    survives(engine)


def test_messages_of_several_blocks_go_in_order() -> None:
    engine = make(0)
    engine.run(c.Enqueue("q", 70_000, 10))
    holder = taken(engine, 70_000)
    rows = np.arange(0, 70_000, 3)
    engine.run(c.Settle("q", holder, RowSet.of_sequences(rows), Outcome.REJECTED))
    dead = queue(engine, "dead")
    assert dead.next_sequence == len(rows)
    assert np.array_equal(np.asarray(dead.blocks[0].came_from.get(slice(0, len(rows)))), rows + 1)
    assert np.array_equal(dead.blocks[0].locations(slice(0, len(rows))).payload_row, rows)
    survives(engine)


# Dead-letter queues that accept no dead letters. No message is lost, and no consumer is blocked.
def _missing(engine: Engine) -> None:
    engine.run(c.DeleteQueue("dead"))


def _itself(engine: Engine) -> None:
    engine.run(c.AlterQueue("q", {"deadLetterQueue": "q"}))


def _last_value(engine: Engine) -> None:
    engine.run(c.DeleteQueue("dead"), c.DeclareQueue("dead", "lastvalue", {"key": "subject"}))


@pytest.mark.parametrize("spoil", [_missing, _itself, _last_value])
def test_a_dead_letter_that_nobody_takes_stays_with_its_reason(spoil: Any) -> None:
    """Q13."""
    engine = make(2, attributes=Attributes(group=Coded(["g"], np.array([1, 0]))))
    spoil(engine)
    reject(engine, taken(engine))
    assert fate(engine) == "dead_lettered"
    assert queue(engine).stayed == 1
    assert queue(engine).blocks[0].errors == {0: "not JSON"}
    assert cell(engine, 0, "reason") == Reason.REJECTED
    survives(engine)
    # A redrive puts it back at its place, in its group, without attempts.
    assert engine.run(c.Redrive("q")) == (1, None, 0)
    assert fate(engine) == "available"
    assert queue(engine).stayed == 0
    assert cell(engine, 0, "attempts") == 0
    assert queue(engine).group_names.name(cell(engine, 0, "group")) == "g"
    assert queue(engine).ended[Outcome.DEAD_LETTERED] == 0
    survives(engine)
    assert engine.run(c.Acquire("q", engine.run(c.Subscribe("q")), 1)).rows == RowSet.single(0)


def test_a_full_dead_letter_queue_takes_what_fits() -> None:
    """Q13 Q15: also with overflow *ring*: dead letters do not replace existing messages."""
    for overflow in ("block", "reject", "ring"):
        engine = make(3, dead={"maxMessages": 2, "overflow": overflow})
        holder = taken(engine)
        engine.run(c.Settle("q", holder, RowSet.range(0, 3), Outcome.REJECTED))
        assert queue(engine, "dead").live == 2
        assert queue(engine).stayed == 1
        assert [fate(engine, row) for row in range(3)] == ["dead_lettered"] * 3
        assert cell(engine, 2, "stayed") == 1
        survives(engine)


@pytest.mark.parametrize("held", [True, False])
def test_what_dies_in_several_queues_at_once_shares_the_room(held: bool) -> None:
    """Q13 Q15: for locks that end and messages that expire."""
    mortal = Attributes(expiry=np.array([START // 1000 + 5000] * 3))
    options = {"maxAttempts": 1, "expired": "deadLetter", "lockTimeout": 5000}
    engine = make(3, dead={"maxMessages": 4}, attributes=mortal, **options)
    engine.run(c.DeclareQueue("r", options={**DLQ, **options}))
    engine.run(c.Enqueue("r", 3, 1, attributes=mortal))
    if held:
        taken(engine), taken(engine, name="r")
    engine.pass_time(8)
    engine.run(c.Tick())
    assert queue(engine, "dead").live == 4
    assert queue(engine).stayed + queue(engine, "r").stayed == 2
    survives(engine)


def transaction(engine: Engine, posted: int = 0, fail: bool = False) -> None:
    """Reject each message of `q` with another error, so that each is a part of the decision."""
    number, holder = engine.run(c.BeginTransaction(1)), taken(engine)
    if posted:
        engine.run(c.Post(number, "dead", posted, 10))
    for row in range(queue(engine).next_sequence):
        word = DeliveryEnd(Outcome.REJECTED, error=f"error {row}")
        engine.run(c.Retire(number, "q", holder, RowSet.single(row), word, word, settled=True))
    engine.run(c.DischargeTransaction(number, fail))


def batch(engine: Engine) -> None:
    """Publish outcomes of a query."""
    epoch, number = engine.advance("L", epoch=None, finished=0)
    rows = engine.read("L", epoch=epoch, batch=number)
    outcomes = [RowsOutcome("rejected", f"error {row}", RowSet.single(row)) for row in rows]
    engine.run(c.StageOutcomes("w", "L", number, epoch, outcomes), c.Publish(["w"]), c.FinishBatches("L", number))


def locks(engine: Engine) -> None:
    """Let the locks of two links end."""
    engine.run(c.AlterQueue("q", {"lockTimeout": 10_000}))
    for _ in range(2):
        taken(engine, 2)
    engine.pass_time(20)
    engine.run(c.Tick())


@pytest.mark.parametrize("overflow", ["block", "reject", "ring"])
@pytest.mark.parametrize(
    "end",
    [transaction, lambda engine: transaction(engine, fail=True), lambda engine: transaction(engine, posted=1), batch, locks],
    ids=["commit", "rollback", "commit of a message too", "outcomes of a batch", "locks that end"],
)
@pytest.mark.parametrize("limit", [{"maxMessages": 2}, {"maxBytes": 21}])
def test_what_dies_in_several_parts_of_one_decision_shares_the_room(end: Any, overflow: str, limit: dict[str, int]) -> None:
    """Q13 Q15 C11 S3"""
    engine = make(4, dead={**limit, "overflow": overflow}, maxAttempts=1)
    end(engine)
    assert queue(engine, "dead").live == 2
    assert queue(engine, "dead").bytes <= 21
    assert [fate(engine, row) for row in range(4)] == ["dead_lettered"] * 4
    died_there = np.count_nonzero(np.asarray(queue(engine, "dead").blocks[0].origin.get(slice(0, 2))))  # without posted messages
    assert queue(engine).stayed == 4 - died_there
    survives(engine)


def test_the_bytes_of_a_dead_letter_queue_are_limited_too() -> None:
    engine = make(3, dead={"maxBytes": 21, "overflow": "reject"})  # 10 + 11 fit, 12 more do not
    engine.run(c.Settle("q", taken(engine), RowSet.range(0, 3), Outcome.REJECTED))
    assert (queue(engine, "dead").bytes, queue(engine).stayed) == (21, 1)


def test_dead_letters_that_come_back_for_the_same_reason_end_there() -> None:
    """Q13: directly or through other queues. With another reason they continue: delayed retries depend on it."""
    engine = make(1, dead={"deadLetterQueue": "q"})
    reject(engine, taken(engine))
    engine.run(c.Settle("dead", taken(engine, name="dead"), RowSet.single(0), Outcome.REJECTED))
    assert fate(engine, 0, "dead") == "dead_lettered"
    assert queue(engine, "dead").stayed == 1
    assert queue(engine).live == 0
    survives(engine)
    # through other queues
    engine = Engine()
    for name, following in (("q", "b"), ("b", "c"), ("c", "q")):
        engine.run(c.DeclareQueue(name, options={"deadLetterQueue": following}))
    engine.run(c.Enqueue("q", 1, 1))
    for name in ("q", "b", "c"):
        engine.run(c.Settle(name, taken(engine, name=name), RowSet.single(0), Outcome.REJECTED))
    assert queue(engine, "c").stayed == 1
    assert queue(engine, "c").origins == ["q"]
    survives(engine)


def test_expired_messages_do_not_go_round_by_themselves() -> None:
    """Q13: such a cycle needs no consumer, so it would never end. A retry queue still works: rejected, then expired."""
    engine = Engine()
    for name, following in (("q", "b"), ("b", "q"), ("x", "q")):
        engine.run(c.DeclareQueue(name, options={"deadLetterQueue": following, "expired": "deadLetter", "messageTtl": 1000}))
    soon = Attributes(expiry=np.array([START // 1000 + 1000]))
    engine.run(c.Enqueue("x", 1, 1, attributes=soon), c.Enqueue("q", 1, 1, attributes=soon))
    for _ in range(5):
        engine.pass_time(2)
        engine.run(c.Tick())
        survives(engine)
    assert (queue(engine, "x").ended[Outcome.DEAD_LETTERED], queue(engine).stayed, queue(engine, "b").next_sequence) == (1, 2, 0)
    retry = Engine()
    retry.run(c.DeclareQueue("q", options={"deadLetterQueue": "wait"}))
    retry.run(c.DeclareQueue("wait", options={"deadLetterQueue": "q", "expired": "deadLetter", "messageTtl": 1000}))
    retry.run(c.Enqueue("q", 1, 1))
    for again in range(3):
        holder = taken(retry)
        retry.run(c.Settle("q", holder, RowSet.single(again), Outcome.REJECTED), c.Unsubscribe("q", holder))
        retry.pass_time(2)
        retry.run(c.Tick())
        assert queue(retry).next_sequence == again + 2
        survives(retry)


def test_what_every_link_has_refused_can_be_a_dead_letter() -> None:
    """Q12: when the last link refuses it, and when the only link ends that had not refused it."""
    engine = make(3, refusedByAll="deadLetter")
    a, b = taken(engine, 3), taken(engine, 0)
    refuse = c.Release("q", a, RowSet.range(0, 2), Cause.MODIFIED_UNCOUNTED, True)
    engine.run(refuse)
    assert [fate(engine, row) for row in range(3)] == ["available", "available", "acquired"]
    engine.run(c.Acquire("q", b, 1), c.Release("q", b, RowSet.single(0), Cause.MODIFIED_UNCOUNTED, True))
    assert [fate(engine, row) for row in range(3)] == ["dead_lettered", "available", "acquired"]
    engine.run(c.Acquire("q", b, 1), c.Unsubscribe("q", b))  # it held the second message, and returns it
    assert [fate(engine, row) for row in range(3)] == ["dead_lettered", "dead_lettered", "acquired"]
    assert [cell(engine, row, "reason", "dead") for row in range(2)] == [Reason.REFUSED] * 2
    survives(engine)
    default = make(1)
    default.run(c.Release("q", taken(default), RowSet.single(0), Cause.MODIFIED_UNCOUNTED, True))
    assert fate(default) == "available"
    assert default.run(c.Stat("q"))[0]["refused"] == 1


def test_a_queue_tells_how_many_of_its_messages_died() -> None:
    """S10."""
    engine = make(3)
    engine.run(c.Settle("q", taken(engine), RowSet.range(0, 2), Outcome.REJECTED))
    stat = engine.run(c.Stat("q"))[0]
    assert (stat["deadLettered"], stat["expired"], stat["stayed"]) == (2, 0, 0)
    assert engine.recovered().run(c.Stat("q"))[0]["deadLettered"] == 2


def test_what_is_said_of_many_messages_takes_space_once() -> None:
    """Q13: in its queue, the dead-letter queue, a snapshot and after a restart. Unused errors take no space."""
    engine, count = make(300), 300
    link = engine.run(c.Subscribe("q"))
    engine.run(c.Acquire("q", link, count))
    for row in range(count):
        text = f"{'x' * 900}, {row % 3}"  # a new object for each, as from a connection
        engine.run(c.Settle("q", link, RowSet.single(row), Outcome.REJECTED, text))
    assert [packed.count(b"xxx, ") for packed in engine.persisted()[1]] == [3, 3]
    for life in (engine, engine.from_snapshot(), engine.recovered()):
        for name in ("q", "dead"):
            block = queue(life, name).blocks[0]
            assert [text[-1] for _, text in sorted(block.errors.items())] == ["0", "1", "2"] * 100
            assert len({id(text) for text in block.errors.values()}) == 3
    block = queue(engine).blocks[0]
    for number in range(1000):
        block.note_errors({0: str(number)})
    assert len(block.texts) < 1000
