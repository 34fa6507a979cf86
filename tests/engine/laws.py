"""Laws of a queue's messages that hold for any combination of features, checked after each command."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.broker_core.engine.columns.blocks import Block
from penstock.broker_core.engine.columns.dictionary import Dictionary
from penstock.broker_core.engine.columns.states import Outcome, State
from penstock.broker_core.engine.model.queue import Queue

from .conservation import conserved
from .harness import Engine


def column(block: Block, name: str) -> Any:
    return np.broadcast_to(getattr(block, name).get(slice(0, block.filled)), block.filled).astype(np.int64)


def picture(engine: Engine) -> Any:
    """Return all state that an arrival may change except for the counts of refused messages: persisted state, the log, and
    derived state of each queue."""
    return engine.persisted(), len(engine.log), {name: _derived(queue) for name, queue in engine.state.queues.items()}


def _derived(queue: Queue) -> Any:
    owners = () if queue.groups is None else queue.groups.holders(np.arange(queue.group_names.size)).tolist()
    return (
        *(
            queue.counts[:],
            queue.bytes,
            queue.available_bytes,
            queue.staged.messages,
            queue.overlay_bytes,
            queue.stayed,
        ),
        *(len(queue.group_names), len(queue.keys), queue.newest()[: queue.keys.size].tolist(), owners, len(queue.remembered)),
        *([waiting.total for waiting in queue.waiting], [log.epoch for log in queue.returns]),
        {link.holder: (link.positions[:], link.epochs[:], dict(link.held)) for link in queue.consumers.subscriptions.values()},
        queue.totals.row(queue.next_sequence, queue.ended),
        {number: (block.filled, block.next_due, block.next_expiry, block.low) for number, block in queue.blocks.items()},
    )


class Watch:
    """Record of the messages of the queue `q`, all of which are in block 0. Call `look` after every command.

    - A message waits, is held by a holder that exists, or is settled with an outcome; exactly one of these.
    - An outcome is final, unless a dead letter is redriven.
    - At most one message of a key is AVAILABLE or waits for its retry.
    - A value is replaced only by a later message that consumers could take. So a key has a value until a consumer takes it,
      or it ends in another way.
    - A message that its sender delayed can be replaced once it is due, and not before.
    - No consumer gets a value after a newer value of its key was delivered.
    - No message is delivered before it is due.
    """

    def __init__(self) -> None:
        self.keys: list[str | None] = []
        self.due: list[int] = []
        self.outcomes: dict[int, int] = {}
        self.stayed: set[int] = set()
        self.was_there: set[int] = set()  # rows that were AVAILABLE or ACQUIRED at some time
        self.held: set[int] = set()
        self.delivered: dict[str, int] = {}  # by key, the last row that a consumer got
        self.edited: set[int] = set()  # rows that an operator replaced

    def look(self, engine: Engine) -> None:
        queue = engine.state.queues["q"]
        block = queue.blocks.get(0)
        if block is None:
            return
        states, outcomes = block.state[: block.filled].tolist(), column(block, "outcome").tolist()
        returned = column(block, "returned").tolist()
        now = max(engine.wall, engine.state.time) // 1000
        self._meet(queue, block, now)
        for row, state in enumerate(states):
            if state in (State.AVAILABLE, State.ACQUIRED):
                self.was_there.add(row)
                assert self.due[row] <= now, f"{row} is available before it is due"
        self._states_are_whole(engine, queue, block, states, outcomes)
        self._outcomes_are_final(states, outcomes, column(block, "stayed").tolist())
        self._keys_have_their_values(states, outcomes, returned, now)

    def _meet(self, queue: Queue, block: Block, now: int) -> None:
        """Record key and due time of new messages: the queue may forget their keys."""
        times = block.times(block.due, slice(0, block.filled))
        for row in range(len(self.keys), block.filled):
            code = int(column(block, "key")[row])
            self.keys.append(queue.keys.name(code) if code else None)
            self.due.append(0 if times is None else int(times[row]))
            if self.due[row] <= now:
                self.was_there.add(row)  # at least until the ring dropped it

    def _states_are_whole(self, engine: Engine, queue: Queue, block: Block, states: list[int], outcomes: list[int]) -> None:
        holders = queue.consumers.holders
        assert queue.next_sequence == len(states)
        for row, (state, holder) in enumerate(zip(states, column(block, "holder").tolist(), strict=True)):
            assert (outcomes[row] != Outcome.NONE) == (state == State.ARCHIVED), f"{row} is {state} with outcome {outcomes[row]}"
            if state == State.ACQUIRED and holder not in holders:
                assert row in engine.state.transactions.retired(holder).sequences(), f"{row} is held by {holder}, which is gone"

    def _outcomes_are_final(self, states: list[int], outcomes: list[int], stayed: list[int]) -> None:
        for row, outcome in self.outcomes.items():
            redriven = row in self.stayed and not stayed[row]
            assert redriven or (states[row], outcomes[row]) == (State.ARCHIVED, outcome), f"{row} has ended as {Outcome(outcome)}"
        self.outcomes = {row: outcomes[row] for row, state in enumerate(states) if state == State.ARCHIVED}
        self.stayed = {row for row, stays in enumerate(stayed) if stays}

    def _keys_have_their_values(self, states: list[int], outcomes: list[int], returned: list[int], now: int) -> None:
        for key in {key for key in self.keys if key is not None}:
            rows = [row for row, its in enumerate(self.keys) if its == key]
            present = [row for row in rows if states[row] == State.AVAILABLE or (states[row] == State.DELAYED and returned[row])]
            assert len(present) <= 1, f"{key!r} has the values {present}"
            for row in rows:
                if outcomes[row] == Outcome.REPLACED and row not in self.edited:
                    newer = [later for later in rows if later > row and later in self.was_there]
                    assert newer, f"{row} was replaced without a newer value of {key!r}"
                    assert row in self.was_there or self.due[row] <= now, f"{row} was replaced before it was due"
            held = [row for row in rows if states[row] == State.ACQUIRED]
            for row in held:
                before = self.delivered.get(key, 0)
                if row not in self.held:
                    assert row >= before, f"{row} of {key!r} was delivered after {before}"
                self.delivered[key] = max(before, row)
        self.held = {row for row, state in enumerate(states) if state == State.ACQUIRED}


def rows_in(block: Block, *states: State) -> Any:
    return np.flatnonzero(np.isin(block.state[: block.filled], states))


def nothing_is_lost(queue: Queue) -> None:
    """Check the conservation law: no message is lost or invented."""
    assert conserved(queue)


def bytes_add_up(queue: Queue) -> None:
    for block in queue.blocks.values():
        available = rows_in(block, State.AVAILABLE)
        live = rows_in(block, *(state for state in State if state is not State.ARCHIVED))
        assert queue.bytes == block.sizes.total(live, len(live))
        assert queue.available_bytes == block.sizes.total(available, len(available))


def names_add_up(queue: Queue) -> None:
    """Live rows and dead letters that stay keep their names."""
    for block in queue.blocks.values():
        named = (block.state[: block.filled] != State.ARCHIVED) | (column(block, "stayed") > 0)
        for name, names in (("group", queue.group_names), ("key", queue.keys)):
            counts = np.bincount(column(block, name)[named], minlength=names.size)
            assert counts[1:].tolist() == names.live(np.arange(1, names.size)).tolist(), name


def no_key_is_too_many(queue: Queue) -> None:
    assert len(queue.keys) <= queue.rules.max_keys


def a_group_has_one_holder(queue: Queue) -> None:
    """A group's holder holds a message of it, or has locked it. Only a sticky holder keeps another group without messages."""
    if queue.groups is not None and 0 in queue.blocks:
        block, codes = queue.blocks[0], np.arange(queue.group_names.size)
        groups, holders = column(block, "group"), column(block, "holder")
        held = [row for row in rows_in(block, State.ACQUIRED) if groups[row] and not column(block, "deferred")[row]]
        working = {(int(groups[row]), int(holders[row])) for row in held}
        owned = {(code, owner) for code, owner in enumerate(queue.groups.holders(codes).tolist()) if owner}
        working |= {(code, lock.holder) for lock in queue.groups.locks.values() if (code := queue.group_names.get(lock.group))}
        assert owned >= working if queue.rules.groups == "sticky" else owned == working


def a_start_finds_the_same(queue: Queue, started: Engine) -> None:
    """Compare derived state, which a start counts again. Codes of names may differ, and so may names that no row uses,
    only a sticky link."""
    restored = started.state.queues["q"]
    for name in ("counts", "bytes", "available_bytes", "stayed", "ended"):
        assert getattr(restored, name) == getattr(queue, name), name
    for number, block in queue.blocks.items():
        assert np.array_equal(restored.blocks[number].state[: block.filled], block.state[: block.filled])
        assert np.array_equal(restored.blocks[number].positions(slice(0, block.filled)), block.positions(slice(0, block.filled)))
    assert used(restored.group_names) == used(queue.group_names)
    assert used(restored.keys) == used(queue.keys)
    assert states(restored) == states(queue)


def states(queue: Queue) -> dict[str, Any]:
    return {group: queue.states.get(group) for group in queue.states.groups()}


def used(names: Dictionary) -> dict[str, int]:
    """Count the rows of each name."""
    return {name: rows for name, code in names.names() if (rows := int(names.live(np.array([code]))[0]))}
