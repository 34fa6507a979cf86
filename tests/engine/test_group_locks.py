"""Q16: links that lock one group, and states of groups: random histories against a model, and tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.broker_core import errors
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes, Coded
from penstock.broker_core.engine.columns.limits import GROUP_STATE_BYTES, MAX_GROUP_STATE
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome, State
from penstock.broker_core.engine.decide import groups as decisions
from penstock.broker_core.engine.model.dispositions import DeliveryEnd

from .harness import SECOND, Engine
from .laws import column, rows_in, states
from .test_everything import NAMES, History

# ---- histories


class LockHistory(History):
    """Some links take the messages of one group. `locks`: by link, the group and the uptime at which its lock ends."""

    def __init__(self, seed: int) -> None:
        self.locks: dict[int, tuple[str, int | None]] = {}
        self.states: dict[str, bytes] = {}
        super().__init__(seed)

    def declare(self, kind: str, options: dict[str, Any]) -> None:
        locks = {"groups": self.random.choice(["held", "held", "sticky"]), "lockTimeout": self.random.choice([0, 3000, 3000])}
        super().declare(kind, {**options, **locks})

    def commands(self) -> list[Callable[[], None]]:
        return [
            *super().commands(),
            *[*9 * [self.lock_a_group], *4 * [self.a_link_for_one_group_comes], *4 * [self.time_passes]],
            *[*2 * [self.renew], *3 * [self.set_state], *4 * [self.ask_through_a_lock]],
        ]

    def promises(self) -> None:
        queue = self.queue
        assert queue.groups is not None
        assert {link: lock.group for link, lock in queue.groups.locks.items()} == {
            link: group for link, (group, _) in self.locks.items()
        }
        assert {group: state.octets for group, state in states(queue).items()} == self.states
        for link in self.seekers():
            group = self.group_of(link)
            assert all(self.name_of(row) == group for row in self.held(link)), f"{link} holds messages of other groups"
        block = queue.blocks.get(0)
        for row in np.flatnonzero(block.state[: block.filled] == State.ACQUIRED).tolist() if block is not None else ():
            owner = [link for link, (group, _) in self.locks.items() if group == self.name_of(row)]
            assert owner in ([], [int(column(block, "holder")[row])]), f"{row} of a locked group is held by another consumer"

    # --- the model

    def seekers(self) -> list[int]:
        return [link for link in self.links if self.queue.consumers.subscriptions[link].one_group]

    def group_of(self, link: int) -> str | None:
        return self.locks.get(link, (None, None))[0]

    def name_of(self, row: int) -> str | None:
        return self.queue.group_names.name(int(column(self.queue.blocks[0], "group")[row]))

    def end_of_lock(self) -> int | None:
        timeout = self.queue.rules.lock_timeout
        return self.engine.state.uptime(self.engine.up) + timeout if timeout else None

    def eligible(self, holder: int, selector: str | None) -> list[int]:
        rows = super().eligible(holder, selector)
        if holder not in self.seekers():
            return rows
        return [row for row in rows if self.group_of(holder) is not None and self.name_of(row) == self.group_of(holder)]

    def may_take(self, link: int, selector: str | None) -> bool:
        return super().may_take(link, selector) and (link not in self.seekers() or link in self.locks)

    def could_have(self, offer: c.Offer, attributes: Attributes, row: int) -> bool:
        if offer.holder in self.seekers():
            code = 0 if attributes.group is None else int(attributes.group.codes[row])
            if not code or NAMES[code - 1] != self.group_of(offer.holder):
                return False
        return super().could_have(offer, attributes, row)

    # --- commands

    def a_link_for_one_group_comes(self) -> None:
        if len(self.links) < 4:
            self.links[self.engine.run(c.Subscribe("q", one_group=True))] = None

    def a_link_goes(self) -> None:
        super().a_link_goes()
        self.locks = {link: lock for link, lock in self.locks.items() if link in self.links}

    def lock_a_group(self) -> None:
        waiting = [link for link in self.seekers() if link not in self.locks]
        if not waiting:
            return
        link, asked = self.random.choice(waiting), self.random.choice([None, None, None, *NAMES, "no messages"])
        free = [row for row in super().eligible(link, None) if self.name_of(row) is not None]
        group = asked if asked is not None else self.name_of(free[0]) if free else None
        rivals = [rival for rival, (locked, _) in self.locks.items() if locked == asked]
        try:
            assert self.engine.run(c.LockGroup("q", link, asked)) == group
        except errors.InUse:
            assert self.queue.groups is not None
            assert asked is not None
            is_active = self.queue.consumers.may_take(link)
            assert rivals or self.queue.groups.holder_of(asked) or not is_active
            return
        assert not rivals
        if group is not None:
            self.locks[link] = group, self.end_of_lock()

    def renew(self) -> None:
        if seekers := self.seekers():
            link = self.random.choice(seekers)
            if link not in self.locks:
                with pytest.raises(errors.Fenced):
                    self.engine.run(c.RenewGroupLock("q", link))
                return
            self.engine.run(c.RenewGroupLock("q", link))
            self.locks[link] = self.locks[link][0], self.end_of_lock()

    def ask_through_a_lock(self) -> None:
        """Get the deferred messages of a group with the link that has locked it. They have no locks of their own."""
        block = self.queue.blocks.get(0)
        if block is None:
            return
        for link, (group, _) in self.locks.items():
            rows = np.array([row for row in rows_in(block, State.DEFERRED).tolist() if self.name_of(row) == group], np.int64)
            expired = rows[block.expired(rows, self.now)].tolist()
            assert self.engine.run(c.AcquireDeferred("q", link, RowSet.of_sequences(rows))).sequences().tolist() == expired
            assert expired or not column(block, "lock")[rows].any()

    def set_state(self) -> None:
        if seekers := self.seekers():
            link, state = self.random.choice(seekers), self.random.choice([None, b"", b"\0\xff", b"long" * 9])
            if link not in self.locks:
                with pytest.raises(errors.Fenced):
                    self.engine.run(c.SetGroupState("q", link, state))
                return
            self.engine.run(c.SetGroupState("q", link, state))
            self.states.pop(self.locks[link][0], None)
            if state is not None:
                self.states[self.locks[link][0]] = state

    def time_passes(self) -> None:
        super().time_passes()
        up = self.engine.state.uptime(self.engine.up)
        ended = [link for link, (_, until) in self.locks.items() if until is not None and until <= up]
        for link in ended:
            del self.locks[link]
            assert self.held(link) == [], "messages outlive the lock of their group"

    def restart(self) -> None:
        self.locks = {}
        super().restart()


@pytest.mark.parametrize("seed", range(60))
def test_a_locked_group_has_one_consumer_whatever_meets_in_its_queue(seed: int) -> None:
    LockHistory(seed).play()


# ---- tables


def made(*groups: str, **options: Any) -> Engine:
    engine = Engine()
    engine.run(c.StartBroker(), c.DeclareQueue("q", options={"groups": "held", **options}))
    send(engine, *groups)
    return engine


def send(engine: Engine, *groups: str) -> None:
    """Send a message of each group; "": without a group."""
    for group in groups:
        coded = Coded([group], np.array([1])) if group else Coded([], np.array([0]))
        engine.run(c.Enqueue("q", 1, 1, attributes=Attributes(group=coded)))


def locking(engine: Engine, group: str | None = None) -> tuple[int, str | None]:
    """A link for one group, and the group that it locks."""
    link = engine.run(c.Subscribe("q", one_group=True))
    return link, engine.run(c.LockGroup("q", link, group))


def taken(engine: Engine, link: int, most: int = 9) -> list[int]:
    rows: list[int] = engine.run(c.Acquire("q", link, most)).rows.sequences().tolist()
    return rows


def test_each_link_gets_the_next_free_group_and_its_messages_in_order() -> None:
    engine = made("", "a", "b", "a", "c", "b")
    (one, first), (two, second) = locking(engine), locking(engine)
    assert (first, second) == ("a", "b")
    assert (taken(engine, two), taken(engine, one)) == ([2, 5], [1, 3])
    plain = engine.run(c.Subscribe("q"))
    assert taken(engine, plain) == [0, 4], "messages without a group, and of free groups"
    assert locking(engine)[1] is None
    send(engine, "a")
    assert (taken(engine, plain), taken(engine, one)) == ([], [6])


def test_a_locked_group_without_messages_waits_for_its_link() -> None:
    engine = made()
    link, _ = locking(engine, "a")
    plain = engine.run(c.Subscribe("q"))
    send(engine, "a", "a")
    assert (taken(engine, plain), taken(engine, link, 1)) == ([], [0])
    engine.run(c.Settle("q", link, engine.state.queues["q"].held_by(link, _row(0))))
    assert taken(engine, plain) == [], "a group stays locked between two messages"
    engine.run(c.Unsubscribe("q", link))
    assert taken(engine, plain) == [1]


def _row(*rows: int) -> Any:
    return RowSet.of_sequences(np.array(rows))


def test_consumers_that_have_passed_a_locked_group_come_back_to_it() -> None:
    engine = made("a", "b", "a", lockTimeout=5000)
    plain = engine.run(c.Subscribe("q"))
    ends: list[Callable[[int], c.Command[Any]]] = [lambda link: c.Unsubscribe("q", link), lambda _: c.Tick()]
    for row, end in zip((1, 3), ends, strict=True):
        link, _ = locking(engine, "a")
        assert taken(engine, plain) == [row], "it has passed the first message"
        engine.run(c.Settle("q", plain, _row(row)))
        engine.pass_time(5)
        engine.run(end(link))
        assert taken(engine, plain) == [0, 2]
        engine.run(c.Release("q", plain, _row(0, 2)))
        send(engine, "b")


def test_a_link_whose_lock_has_ended_finds_the_groups_that_it_has_passed() -> None:
    for group in (None, "a"):
        engine = made("a", "b", lockTimeout=5000)
        plain = engine.run(c.Subscribe("q"))
        assert taken(engine, plain, 1) == [0]
        link, locked = locking(engine)
        assert (locked, taken(engine, link)) == ("b", [1])
        engine.run(c.Unsubscribe("q", plain, Cause.RELEASED))
        assert taken(engine, link) == [], "it has passed the first message, which belongs to another group"
        engine.run(c.Settle("q", link, _row(1)))
        engine.pass_time(5)
        engine.run(c.Tick())
        assert (engine.run(c.LockGroup("q", link, group)), taken(engine, link)) == ("a", [0])


def test_a_message_that_its_link_has_refused_is_left_to_others_after_the_next_lock() -> None:
    engine = made("a", "a", lockTimeout=5000)
    link, _ = locking(engine)
    assert taken(engine, link, 1) == [0]
    engine.run(c.Release("q", link, _row(0), exclude=True))
    engine.pass_time(5)
    engine.run(c.Tick(), c.LockGroup("q", link))
    plain = engine.run(c.Subscribe("q"))
    assert taken(engine, plain) == []
    engine.run(c.Unsubscribe("q", link))
    assert taken(engine, plain) == [0, 1]


def test_a_closed_group_that_was_locked_leaves_no_mark_on_the_next_group() -> None:
    """A later group may get the code of one that has ended."""
    engine = made(groups="sticky")
    link, _ = locking(engine, "a")
    closing = Attributes(group=Coded(["a"], np.array([1])), closes=np.array([1]))
    engine.run(c.Enqueue("q", 1, 1, attributes=closing))
    assert taken(engine, link) == [0]
    engine.run(c.Settle("q", link, _row(0)), c.Unsubscribe("q", link))
    send(engine, "b", "b")
    owner = engine.run(c.Subscribe("q"))
    assert taken(engine, owner, 1) == [1]
    engine.run(c.Settle("q", owner, _row(1)))
    assert taken(engine, engine.run(c.Subscribe("q"))) == [], "its group is sticky"


def test_an_inactive_link_locks_no_group() -> None:
    """The active consumer could not take the messages of the group, and the link would receive none."""
    engine = made("a", consumers="single")
    active = engine.run(c.Subscribe("q"))
    link = engine.run(c.Subscribe("q", one_group=True))
    with pytest.raises(errors.InUse, match="single active consumer"):
        engine.run(c.LockGroup("q", link, "a"))
    assert engine.run(c.LockGroup("q", link)) is None
    assert taken(engine, active) == [0]
    engine.run(c.Unsubscribe("q", active))
    assert (engine.run(c.LockGroup("q", link, "a")), taken(engine, link)) == ("a", [0])


@pytest.mark.parametrize("groups", ["held", "sticky"])
def test_the_end_of_a_link_or_of_its_lock_frees_the_group(groups: str) -> None:
    engine = made("a", "a", "b", groups=groups, lockTimeout=5000)
    link, _ = locking(engine)
    assert taken(engine, link, 1) == [0]
    other, second = locking(engine)
    assert second == "b"
    engine.run(c.Unsubscribe("q", link, Cause.RELEASED))
    third, group = locking(engine)
    assert (group, taken(engine, third)) == ("a", [0, 1])
    engine.pass_time(5)
    engine.run(c.Tick())
    assert engine.state.queues["q"].counts[State.ACQUIRED] == 0
    assert taken(engine, third) == taken(engine, other) == [], "a link whose lock has ended takes nothing"
    assert taken(engine, engine.run(c.Subscribe("q"))) == [0, 1, 2]


def test_the_messages_of_a_locked_group_return_with_its_lock_and_count_an_attempt() -> None:
    engine = made("a", "a", lockTimeout=5000, maxAttempts=2)
    link, _ = locking(engine)
    assert taken(engine, link, 1) == [0]
    engine.pass_time(4)
    engine.run(c.RenewGroupLock("q", link), c.Tick())
    engine.pass_time(4)
    engine.run(c.Tick())
    assert taken(engine, link) == [1], "the lock was renewed, for all messages of its group"
    engine.pass_time(1)
    engine.run(c.Tick())
    queue = engine.state.queues["q"]
    assert queue.counts[State.AVAILABLE] == 2
    assert queue.blocks[0].attempts.get(slice(0, 2)).tolist() == [1, 1]
    with pytest.raises(errors.Fenced):
        engine.run(c.RenewGroupLock("q", link))
    again, _ = locking(engine)
    taken(engine, again)
    engine.pass_time(6)
    engine.run(c.Tick())
    assert queue.stayed == 2, "the second attempt was the last one"


def test_a_lock_that_is_renewed_often_has_one_entry_in_the_timetable() -> None:
    engine = made("a", lockTimeout=5000)
    link, _ = locking(engine)
    for _ in range(100):
        engine.pass_time(1)
        engine.run(c.RenewGroupLock("q", link), c.Tick())
    assert len(engine.state.clocks.group) == 1
    engine.run(c.AlterQueue("q", {"lockTimeout": 1000}), c.RenewGroupLock("q", link))
    engine.pass_time(1)
    engine.run(c.Tick())
    assert locking(engine, "a")[1] == "a", "a shorter lock ends earlier"


@pytest.mark.parametrize("lock_timeout", [0, 5000])
def test_a_group_that_another_consumer_holds_cannot_be_locked(lock_timeout: int) -> None:
    engine = made("a", "b", "c", lockTimeout=lock_timeout)
    plain = engine.run(c.Subscribe("q"))
    assert taken(engine, plain, 1) == [0]
    engine.advance("lease", epoch=None, finished=0, messages=1)
    for group in ("a", "b"):
        with pytest.raises(errors.InUse):
            locking(engine, group)
    link, group = locking(engine)
    assert group == "c"
    with pytest.raises(errors.InUse):
        locking(engine, "c")
    with pytest.raises(errors.InvalidRequest):
        engine.run(c.LockGroup("q", link, "d"))
    engine.run(c.ReleaseLease("lease", settle=False))
    engine.advance("other", epoch=None, finished=0)
    (rows,) = [batch.rows for batch in engine.state.leases["other"].batches.values()]
    assert rows.sequences().tolist() == [1], "a lease does not take messages of a locked group"


def test_a_link_for_one_group_needs_groups_and_no_selector() -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("plain"), c.DeclareQueue("q", options={"groups": "held"}))
    with pytest.raises(errors.InvalidRequest, match="groups=held"):
        engine.run(c.Subscribe("plain", one_group=True))
    with pytest.raises(errors.InvalidRequest, match="selector"):
        engine.run(c.Subscribe("q", selector="a = 1", one_group=True))
    plain = engine.run(c.Subscribe("q"))
    with pytest.raises(errors.InvalidRequest):
        engine.run(c.LockGroup("q", plain))


def test_a_transaction_of_a_link_whose_lock_ends_fails() -> None:
    engine = made("a", lockTimeout=5000)
    link, _ = locking(engine)
    taken(engine, link)
    transaction = engine.run(c.BeginTransaction(1))
    engine.run(c.Retire(transaction, "q", link, _row(0), DeliveryEnd(Outcome.ACCEPTED), settled=True))
    engine.pass_time(5)
    engine.run(c.Tick())
    assert isinstance(engine.run(c.DischargeTransaction(transaction, fail=False)), errors.TransactionRolledBack)
    assert locking(engine)[1] == "a"


# ---- states


def state_of(engine: Engine, group: str) -> bytes | None:
    state = engine.state.queues["q"].states.get(group)
    return None if state is None else state.octets


def test_a_state_outlives_its_messages_its_link_and_the_broker() -> None:
    engine = made("a")
    link, _ = locking(engine)
    engine.run(c.SetGroupState("q", link, b"halfway\0"))
    engine.run(c.Settle("q", link, engine.run(c.Acquire("q", link, 1)).rows), c.Unsubscribe("q", link), c.Purge("q"))
    assert len(engine.state.queues["q"].group_names) == 0
    for later in (engine, engine.recovered(), engine.from_snapshot()):
        assert state_of(later, "a") == b"halfway\0"
        assert later.persisted() == engine.persisted()
    link, _ = locking(engine, "a")
    engine.run(c.SetGroupState("q", link, None))
    assert state_of(engine, "a") is state_of(engine.recovered(), "a") is None
    logged = len(engine.log)
    engine.run(c.SetGroupState("q", link, None))
    assert len(engine.log) == logged, "a state that is not set cannot be removed"


def test_a_deleted_queue_has_no_states() -> None:
    engine = made("a")
    engine.state.records = True
    link, _ = locking(engine)
    engine.run(c.SetGroupState("q", link, b"old"), c.DeleteQueue("q", force=True), c.DeclareQueue("q"))
    assert state_of(engine, "a") is state_of(engine.from_snapshot(), "a") is state_of(engine.recovered(), "a") is None


def test_states_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = made()
    link, _ = locking(engine, "a")
    engine.run(c.SetGroupState("q", link, bytes(MAX_GROUP_STATE)))
    with pytest.raises(errors.ResourceLimit, match="262,145 bytes"):
        engine.run(c.SetGroupState("q", link, bytes(MAX_GROUP_STATE + 1)))
    with pytest.raises(errors.ResourceLimit):
        engine.run(c.SetGroupState("q", link, bytes(1 << 20)))
    assert state_of(engine, "a") == bytes(MAX_GROUP_STATE), "a refused state changes nothing"
    monkeypatch.setattr(decisions, "MAX_GROUP_STATES", 3 * (GROUP_STATE_BYTES + 11))
    engine.run(c.SetGroupState("q", link, bytes(10)))
    for group in ("b", "c"):
        link, _ = locking(engine, group)
        engine.run(c.SetGroupState("q", link, bytes(10)))
    (stat,) = engine.run(c.Stat("q"))
    assert (stat["groupStates"], stat["groupStateBytes"]) == (3, 3 * (GROUP_STATE_BYTES + 11))
    with pytest.raises(errors.ResourceLimit):
        engine.run(c.SetGroupState("q", link, bytes(11)))
    link, _ = locking(engine, "d")
    with pytest.raises(errors.ResourceLimit):
        engine.run(c.SetGroupState("q", link, b""))
    assert engine.from_snapshot().state.queues["q"].states.bytes == engine.state.queues["q"].states.bytes


def test_groups_by_the_time_of_their_state() -> None:
    engine = made()
    for group in ("a", "b"):
        link, _ = locking(engine, group)
        engine.run(c.SetGroupState("q", link, b"x"))
        engine.pass_time(1)
    states_of = engine.state.queues["q"].states
    assert states_of.groups() == ["a", "b"]
    assert states_of.groups(engine.wall - 2 * SECOND) == ["b"]
