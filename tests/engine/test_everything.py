"""Q1 Q2 Q7 Q8 Q9 Q12 to Q18 Q20 to Q23 C8 C11 D1 D3: random histories of one queue with all its features.

The other machines in this folder check single features. This test checks the laws of any combination. After every command:

- No message is lost or invented. Bytes and names match the rows.
- The keys are within their limit, and a group has one holder.
- A restart finds the same state.

A consumer acquires exactly the first eligible messages. The test finds them by a look at every row.

A failure prints its seed and its history. There is one selector: it matches messages at odd places.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.broker_core import errors
from penstock.broker_core.engine import BrokerState, apply
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes, Coded
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome, State
from penstock.broker_core.engine.events import codec
from penstock.broker_core.engine.model.dispositions import DeliveryEnd
from penstock.broker_core.engine.model.queue import Queue
from penstock.broker_core.engine.model.retention import Keeping

from .harness import SECOND, START, Engine
from .laws import (
    Watch,
    a_group_has_one_holder,
    a_start_finds_the_same,
    bytes_add_up,
    column,
    names_add_up,
    no_key_is_too_many,
    nothing_is_lost,
    picture,
    rows_in,
)

COMMANDS = 60  # in a history. All messages fit into block 0
NAMES = ["a", "b", "c"]  # of groups, of keys
ENDS = [Outcome.ACCEPTED, Outcome.REJECTED]
REFUSALS = (errors.InUse, errors.ResourceLimit, errors.TransactionRolledBack)
OPTIONS: dict[str, list[Any]] = {  # values for declarations and alterations
    "deadLetterQueue": ["dead", "dead", "missing", None],
    "rejected": ["deadLetter", "deadLetter", "archive", "return"],
    "expired": ["archive", "deadLetter"],
    "refusedByAll": ["keep", "deadLetter"],
    "maxAttempts": [0, 2, 3],
    "retryDelay": [0, 0, 700, 1500],
    "retryBackoff": [1, 3],
    "maxRetryDelay": [0, 2000],
    "lostCounts": [True, False],
    "lockTimeout": [0, 0, 3000],
    "messageTtl": [0, 0, 5000],
    "consumers": ["all", "all", "all", "single", "exclusive"],
    "maxMessages": [0, 0, 6, 9],
    "overflow": ["ring", "reject", "block"],
    "archive": [True, True, False],
}
KINDS: dict[str, dict[str, Any]] = {"fifo": {}, "priority": {"levels": 3}, "lastvalue": {"key": "subject", "maxKeys": 2}}


class Odd:  # the selector, evaluated for all rows
    def known(self, queue: Queue, block: int) -> Any:
        return np.arange(queue.blocks[block].filled) % 2 == 1


class History:
    """One queue `q` with its links, at most one lease and one transaction; `dead` gets dead letters and moved messages."""

    length = COMMANDS

    def __init__(self, seed: int | str) -> None:
        self.seed, self.random = seed, random.Random(seed)
        self.engine = Engine()
        self.watch = Watch()
        self.posted = 0  # messages of the open transaction, one byte each
        self.stored: set[bytes] = set()  # message ids of confirmed messages
        self.links: dict[int, str | None] = {}  # their selectors
        self.transaction: int | None = None
        kind, its_own = self.random.choice(list(KINDS.items()))
        options = {name: self.random.choice(values) for name, values in OPTIONS.items()}
        options |= {"groups": self.random.choice(["none", "held", "held", "sticky"]), **its_own}
        options["duplicateWindow"] = self.random.choice([0, 0, 1000])
        self.declare(kind, options)

    def declare(self, kind: str, options: dict[str, Any]) -> None:
        print(f"seed {self.seed}: {kind} {options}")
        self.engine.run(c.StartBroker(), c.DeclareQueue("dead"), c.DeclareQueue("q", kind, options))

    @property
    def queue(self) -> Queue:
        return self.engine.state.queues["q"]

    def commands(self) -> list[Callable[[], None]]:
        """Return the commands of a history; their repetitions are weights."""
        return [
            *3 * [self.a_link_comes, self.discharge, self.time_passes],
            *2 * [self.refuse, self.a_link_goes, self.a_lease_acquires, self.a_lease_is_released, self.retire],
            *[self.redrive, self.move, self.alter, self.pause, self.restart, self.record, self.clean],
            *[self.discard, self.cancel, *2 * [self.edit, self.defer, self.ask], *4 * [self.explain]],
            *[*15 * [self.acquire], *6 * [self.send], *6 * [self.settle, self.give_back, self.resume], *2 * [self.publish]],
            *[*5 * [self.send_immediate], self.post],
        ]

    def promises(self) -> None:
        """Check further promises after every command."""

    def play(self) -> None:
        commands = self.commands()
        for number, command in enumerate([self.a_link_comes, self.send, *self.random.choices(commands, k=self.length)]):
            if number == self.length // 3:
                meta, blocks, logged = *self.engine.persisted(), len(self.engine.log)
            try:
                command()
                print(command.__name__)
            except REFUSALS as refusal:
                print(command.__name__, "→", refusal)
            for holds in (nothing_is_lost, bytes_add_up, names_add_up, no_key_is_too_many, a_group_has_one_holder):
                holds(self.queue)
            self.watch.look(self.engine)
            assert self.queue.staged.messages == self.queue.staged.bytes == self.posted
            self.promises()
            a_start_finds_the_same(self.queue, self.engine.from_snapshot())
        a_start_finds_the_same(self.queue, self.engine.recovered())
        state = BrokerState.restore(meta.encode(), blocks)  # a snapshot and the log after it
        for event, position in self.engine.log[logged:]:
            apply(state, codec.decode(event), position)
        a_start_finds_the_same(self.queue, Engine(state, self.engine.log))

    def eligible(self, holder: int, selector: str | None) -> list[int]:
        """Return the rows that a link or a lease (0) may acquire now, the highest level first."""
        queue, block = self.queue, self.queue.blocks.get(0)
        if block is None or queue.paused or queue.consumers.active not in (None, holder):
            return []
        may = (block.state[: block.filled] == State.AVAILABLE) & ~block.expired(slice(0, block.filled), self.now)
        if selector is not None:
            may &= np.arange(block.filled) % 2 == 1
        if holder and (refused := queue.consumers.subscriptions[holder].excluded.rows(0)) is not None:
            may[refused] = False
        if queue.groups is not None:
            may &= np.isin(queue.groups.holders(column(block, "group")), (0, holder))
        return self.in_turn(sorted(np.flatnonzero(may).tolist(), key=self.level, reverse=True))

    def in_turn(self, rows: list[int]) -> list[int]:
        """Remove rows that would overtake a message that waits for its retry: rows of its group, or all rows if the queue has
        one consumer at a time."""
        queue, block = self.queue, self.queue.blocks[0]
        waiting = [row for row in rows_in(block, State.DELAYED).tolist() if column(block, "returned")[row]]
        groups = column(block, "group") if queue.groups is not None else np.zeros(block.filled)

        def overtakes(row: int, delayed: int) -> bool:
            first = (-self.level(delayed), delayed) < (-self.level(row), row)
            return (first and queue.rules.consumers != "all") or (0 < groups[row] == groups[delayed] and delayed < row)

        return [row for row in rows if not any(overtakes(row, delayed) for delayed in waiting)]

    def level(self, row: int) -> int:
        levels = self.queue.blocks[0].level
        return 0 if levels is None else int(levels[row])

    @property
    def now(self) -> int:
        """Milliseconds since 1970. The value never decreases, even if the machine's clock is set back."""
        return max(self.engine.wall, self.engine.state.time) // 1000

    def held(self, link: int) -> list[int]:
        """Return the rows that a link holds, except rows that a transaction ends."""
        places, retired = np.arange(self.queue.next_sequence), self.engine.state.transactions.retired(link)
        rows: list[int] = self.queue.held_by(link, RowSet.of_sequences(places)).minus(retired).sequences().tolist()
        return rows

    def some_held(self) -> tuple[int, RowSet]:
        """Return a link and some of its rows; link 0 without rows if no link holds a message."""
        link = self.random.choice([link for link in self.links if self.held(link)] or [0])
        rows = self.held(link)
        some = self.random.sample(rows, self.random.randint(1, len(rows))) if rows else []
        return link, RowSet.of_sequences(np.array(sorted(some), np.int64))

    def messages(self) -> tuple[int, Attributes]:
        count, rules = self.random.randint(1, 3), self.queue.rules

        def drawn(*values: int) -> Any:
            return np.array([self.random.choice(values) for _ in range(count)])

        group = Coded(NAMES, drawn(0, 1, 1, 2)) if rules.groups != "none" else None
        key = Coded(NAMES, drawn(0, 1, 2, 3)) if rules.key else None
        due, expiry = drawn(0, 0, self.now + 1000), drawn(0, 0, 0, self.now + 9000)
        ids = np.array([b"%d" % number if number else b"" for number in drawn(*range(40)).tolist()], "S16")
        return count, Attributes(
            drawn(*range(11)), expiry, due, group, drawn(0, 0, 1) if group else None, key, ids if rules.duplicate_window else None
        )

    def send(self) -> None:
        count, attributes = self.messages()
        placed = self.engine.run(c.Enqueue("q", count, np.arange(count) + 1, attributes=attributes))
        self.no_id_is_stored_twice(attributes, range(count) if placed.stored is None else placed.stored)

    def no_id_is_stored_twice(self, attributes: Attributes, rows: Iterable[int]) -> None:
        ids = [] if attributes.ids is None else [message_id for row in rows if (message_id := attributes.ids[row])]
        assert not self.stored & {*ids}
        assert len({*ids}) == len(ids)
        self.stored |= {*ids}

    def send_immediate(self) -> None:
        """Offer messages to links. Links without waiting messages take as many as they can; other messages leave no trace."""
        count, attributes = self.messages()
        offers = [
            c.Offer(link, self.random.randint(0, 2), (), Odd() if selector else None, self.matches(count) if selector else None)
            for link, selector in self.random.sample(list(self.links.items()), len(self.links))
        ]
        ready = {offer.holder for offer in offers if self.may_take(offer.holder, self.links[offer.holder])}
        before, first = picture(self.engine), self.queue.next_sequence
        sizes = np.arange(count) + 1
        delivered = self.engine.run(c.EnqueueImmediate("q", count, sizes, attributes=attributes, offers=offers))
        stored = self.queue.next_sequence - first
        if not stored:
            assert picture(self.engine) == before
        taken = Counter(dict.fromkeys(ready, 0))
        for holder, rows in delivered.taken:
            assert holder in ready
            assert self.queue.held_by(holder, rows).count == rows.count
            taken[holder] += rows.count
        assert sum(taken.values()) == stored
        out = {*delivered.undelivered, *delivered.refused}
        again = self.known_ids(attributes, out)
        assert stored + len(out) + len(again) == count
        self.no_id_is_stored_twice(attributes, [row for row in range(count) if row not in out and row not in again])
        for offer in offers:
            if offer.holder in ready and taken[offer.holder] < offer.messages and not delivered.refused:  # these used credit
                left = [row for row in delivered.undelivered if self.could_have(offer, attributes, row)]
                assert not left, f"link {offer.holder} could have taken {left}"

    def matches(self, count: int) -> Any:
        return np.array([self.random.choice([True, False]) for _ in range(count)])

    def may_take(self, link: int, selector: str | None) -> bool:
        """Say whether the link may consume, and no message waits for it."""
        return not self.queue.paused and self.queue.consumers.active in (None, link) and not self.eligible(link, selector)

    def known_ids(self, attributes: Attributes, out: set[int]) -> set[int]:
        """Find the messages whose ids were stored before, or belong to earlier messages of this command."""
        known, again = {*self.stored}, set()
        for row, message_id in enumerate(() if attributes.ids is None else attributes.ids.tolist()):
            if row not in out and message_id:
                again |= {row} & ({row} if message_id in known else set())
                known.add(message_id)
        return again

    def could_have(self, offer: c.Offer, attributes: Attributes, row: int) -> bool:
        """Say whether the link could have taken a message that was not stored, if its credit allowed it."""
        queue = self.queue
        if attributes.due is not None and attributes.due[row] > self.now:
            return False
        if offer.matches is not None and not offer.matches[row]:
            return False
        if attributes.ids is not None and attributes.ids[row] and (attributes.ids == attributes.ids[row]).sum() > 1:
            return False  # a duplicate has the fate of the first message with its id
        block = queue.blocks.get(0)
        waiting = [] if block is None else [r for r in rows_in(block, State.DELAYED).tolist() if column(block, "returned")[r]]
        level = int(queue.level_of(int(attributes.priority[row]))) if attributes.priority is not None else 0
        if queue.rules.consumers != "all" and any(self.level(delayed) >= level for delayed in waiting):
            return False
        if attributes.group is None or not attributes.group.codes[row] or queue.groups is None:
            return True
        code = queue.group_names.get(NAMES[attributes.group.codes[row] - 1])
        if block is not None and any(column(block, "group")[delayed] == code > 0 for delayed in waiting):
            return False
        return queue.groups.holder_of(NAMES[attributes.group.codes[row] - 1]) in (0, offer.holder)

    def post(self) -> None:
        """Send messages in a transaction, which a discharge ends."""
        if self.transaction is None:
            self.transaction = self.engine.run(c.BeginTransaction(1))
        count, attributes = self.messages()
        self.engine.run(c.Post(self.transaction, "q", count, 1, attributes=replace(attributes, ids=None)))
        self.posted += count

    def publish(self) -> None:
        count, attributes = self.messages()
        self.engine.run(c.StageMessages("stage", "q", count, 1, attributes=attributes), c.Publish(["stage"]))
        self.stored |= {*filter(None, () if attributes.ids is None else attributes.ids.tolist())}

    def a_link_comes(self) -> None:
        if len(self.links) < 3:
            selector, priority = self.random.choice([None, None, "odd"]), self.random.choice([0, 0, 5])
            self.links[self.engine.run(c.Subscribe("q", priority, selector=selector))] = selector

    def a_link_goes(self) -> None:
        if len(self.links) > 1:
            link = self.random.choice(list(self.links))
            del self.links[link]
            self.engine.run(c.Unsubscribe("q", link))

    def acquire(self) -> None:
        """Acquire the eligible messages, in order, of one level at a time, and no others."""
        if self.links:
            (link, selector), most = self.random.choice(list(self.links.items())), self.random.randint(1, 3)
            eligible = self.eligible(link, selector)
            expected = [row for row in eligible if self.level(row) == self.level(eligible[0])][:most]
            rows = self.engine.run(c.Acquire("q", link, most, matching=Odd() if selector else None)).rows
            assert rows.sequences().tolist() == expected

    def settle(self) -> None:
        self.engine.run(c.Settle("q", *self.some_held(), self.random.choice(ENDS)))

    def give_back(self) -> None:
        cause, annotations = self.random.choice([Cause.RELEASED, Cause.MODIFIED]), self.random.choice([None, b"x"])
        retry = self.random.choice(
            [None, None, c.Retry(), c.Retry(after=1200), c.Retry(after=1200, gives_way=True), c.Retry(time=self.now + 2500)]
        )
        self.engine.run(c.Release("q", *self.some_held(), cause, annotations=annotations, retry=retry))

    def refuse(self) -> None:
        self.engine.run(c.Release("q", *self.some_held(), Cause.MODIFIED_UNCOUNTED, exclude=True))

    def defer(self) -> None:
        self.engine.run(c.Release("q", *self.some_held(), Cause.DEFERRED))

    def ask(self) -> None:
        """Get deferred messages by their numbers, except expired ones, and end them, lose their link, or keep them."""
        block = self.queue.blocks.get(0)
        deferred = [] if block is None else rows_in(block, State.DEFERRED).tolist()
        if block is None or not deferred:
            return
        some = self.random.sample(deferred, self.random.randint(1, len(deferred)))
        rows, link = RowSet.of_sequences(np.array(sorted(some))), self.engine.run(c.Subscribe("q", by_number=True))
        expired = rows.sequences()[block.expired(rows.sequences(), self.now)].tolist()
        missing = self.engine.run(c.AcquireDeferred("q", link, rows))
        assert missing.sequences().tolist() == expired
        if not missing:
            cause = self.random.choice([Cause.RELEASED, Cause.MODIFIED, Cause.DEFERRED])
            lost, settled = c.Unsubscribe("q", link), c.Settle("q", link, rows, self.random.choice(ENDS))
            self.engine.run(self.random.choice([lost, settled, c.Release("q", link, rows, cause), c.Tick()]))

    def explain(self) -> None:
        """Compare the explanation of a link with the message that it would acquire next."""
        if self.links:
            link, selector = self.random.choice(list(self.links.items()))
            following = self.eligible(link, selector)
            answer = self.engine.run(c.Explain("q", link, matching=Odd() if selector else None))
            assert answer.next == (following[0] if following else None), answer
            assert bool(answer.hindrances) == (not following), answer

    def some_row(self, *states: State, stayed: bool = False) -> int | None:
        """Return a row in one of these states, or a dead letter that stayed."""
        block = self.queue.blocks.get(0)
        rows = [] if block is None else rows_in(block, *states).tolist()
        if block is not None and stayed and self.queue.rules.key is None:
            rows += np.flatnonzero(column(block, "stayed")).tolist()
        return self.random.choice(rows) if rows else None

    def edit(self) -> None:
        """Replace a message without a holder, or a dead letter that stayed, by a copy. A refused copy changes nothing."""
        row = self.some_row(State.DELAYED, State.AVAILABLE, State.DEFERRED, stayed=True)
        if row is None:
            return
        before, following, attributes = picture(self.engine), self.queue.next_sequence, self.messages()[1].take(np.array([0]))
        try:
            copy = c.Enqueue("q", 1, 1, attributes=replace(attributes, ids=None), whole=True)
            assert self.engine.run(c.Replace("q", row, copy)) == following
        except errors.ResourceLimit:
            assert picture(self.engine) == before
            raise
        self.watch.edited.add(row)
        assert self.queue.blocks[0].state[row] == State.ARCHIVED

    def discard(self) -> None:
        """End messages in any state."""
        row = self.some_row(*State)
        if row is not None:
            self.engine.run(c.DiscardMessages("q", row, min(row + 1, self.queue.next_sequence - 1), "why"))

    def cancel(self) -> None:
        """Cancel a message that its sender delayed. A message that waits for its retry stays."""
        row = self.some_row(State.DELAYED)
        if row is None:
            return
        if column(self.queue.blocks[0], "returned")[row]:
            with pytest.raises(errors.IllegalTransition):
                self.engine.run(c.CancelDelayed("q", RowSet.single(row)))
        else:
            self.engine.run(c.CancelDelayed("q", RowSet.single(row)))
            assert self.queue.blocks[0].state[row] == State.ARCHIVED

    def time_passes(self) -> None:
        self.engine.pass_time(self.random.choice([1, 2, 3]))
        self.engine.run(c.Tick())

    def a_lease_acquires(self) -> None:
        """Acquire as a link without refused messages does, but from all levels together."""
        if not self.engine.state.leases:
            selector, most = self.random.choice([None, "odd"]), self.random.randint(1, 3)
            expected = self.eligible(0, selector)[:most]
            self.engine.run(c.EnterLease("q", "lease", "r", None, True, selector=selector))
            self.engine.run(c.AcquireBatch("q", "lease", "r", 0, most, selector=selector, matching=Odd() if selector else None))
            rows = [batch.rows for lease in self.engine.state.leases.values() for batch in lease.batches.values()]
            assert [row for some in rows for row in some.sequences().tolist()] == sorted(expected)

    def a_lease_is_released(self) -> None:
        for lease in list(self.engine.state.leases.values()):
            if self.random.choice([True, False]):
                self.engine.read("lease", epoch=lease.epoch, batch=1)
            self.engine.run(c.ReleaseLease("lease", settle=self.random.choice([True, False])), c.DeleteLease("lease"))

    def pause(self) -> None:
        self.engine.run(c.PauseQueue("q"))

    def resume(self) -> None:
        self.engine.run(c.PauseQueue("q", paused=False))

    def redrive(self) -> None:
        self.engine.run(c.Redrive("q"), c.Redrive("dead"))

    def move(self) -> None:
        self.engine.run(c.Move("q", "dead", self.random.randint(1, 2)))

    def retire(self) -> None:
        """Settle messages in a transaction; its discharge applies the outcome."""
        if self.transaction is None:
            self.transaction = self.engine.run(c.BeginTransaction(1))
        disposition, settled = (
            DeliveryEnd(self.random.choice([Outcome.ACCEPTED, Outcome.REJECTED])),
            self.random.choice([True, False]),
        )
        self.engine.run(c.Retire(self.transaction, "q", *self.some_held(), disposition, settled=settled))

    def discharge(self) -> None:
        if self.transaction is not None:
            transaction, self.transaction, self.posted = self.transaction, None, 0
            self.engine.run(c.DischargeTransaction(transaction, fail=self.random.choice([True, False])))

    def record(self) -> None:
        """Begin a recording, or end the current one."""
        number = self.queue.id
        current = self.engine.run(c.BeginRecording(number, self.random.randint(1, 9), 1 << 40))
        if current is not None and self.random.choice([True, False]):
            self.engine.run(c.EndRecording(number, current.number, 0))

    def clean(self) -> None:
        """Copy the payloads of some messages, and drop an unneeded part of the log."""
        for its in self.engine.state.queues.values():
            for number, block in its.blocks.items():
                rows = np.flatnonzero([self.random.choice([True, False]) for _ in range(block.filled)])
                if len(rows):
                    locations = block.locations(rows)
                    copied = c.RelocatedRows(its.id, RowSet.of([(number, rows)]), locations.positions(), locations.payload_rows())
                    assert self.engine.run(c.Relocate([copied], b"")) == len(rows)
        self.engine.run(c.Drop([[0, 8 * self.random.randint(1, len(self.engine.log))]], Keeping()))

    def alter(self) -> None:
        option = self.random.choice(list(OPTIONS))
        self.engine.run(c.AlterQueue("q", {option: self.random.choice(OPTIONS[option])}))

    def restart(self) -> None:
        """Restart from the journal or a snapshot. Leases survive, links and transactions end. The clock may be set back."""
        wall = self.random.choice([self.engine.wall, START]) + SECOND
        restarted = self.random.choice([Engine.recovered, Engine.from_snapshot])(self.engine)
        a_start_finds_the_same(self.queue, restarted)
        self.engine = restarted
        self.engine.wall, self.links, self.transaction, self.posted = wall, {}, None, 0
        self.engine.run(c.StartBroker())


@pytest.mark.parametrize("seed", range(110))
def test_whatever_meets_in_one_queue_its_promises_hold(seed: int) -> None:
    History(seed).play()
