"""A queue: its blocks, its consumers, and the indexes by which they find messages."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import IllegalTransition
from ..columns.attributes import NO_ATTRIBUTES, Attributes, Coded
from ..columns.blocks import Block
from ..columns.counters import add_to
from ..columns.dictionary import Dictionary, Names
from ..columns.group_states import GroupStates
from ..columns.limits import MAX_TAKERS, NEVER
from ..columns.losses import Losses
from ..columns.rowset import BLOCK_BITS, BLOCK_ROWS, RowSet, as_array, clip, row_count
from ..columns.runs import Run
from ..columns.series import Ints, Rows
from ..columns.states import ACQUIRED, ARCHIVED, AVAILABLE, DEFERRED, DELAYED, LEGAL, OUTCOME_CODES, STEPS, State, Step, Verb
from ..columns.timetable import Timetable
from ..columns.totals import Totals
from ..columns.waiting import FirstRetries, ReturnLog, Waiting
from .consumers import Consumers, Subscription
from .duplicates import DuplicateWindow
from .groups import GroupLock, Groups
from .options import checked, level_of_priority, rules
from .recordings import QueueRecordings


class Clocks(NamedTuple):
    """The timetables of the broker: `due` and `expiry` in milliseconds since 1970, locks in milliseconds of uptime."""

    due: Timetable
    expiry: Timetable
    lock: Timetable
    group: Timetable  # locks of groups, by holder instead of block


@dataclass
class PackedBlock:
    """A full block without a live row, which has left memory."""

    number: int
    position: int  # of the record with the packed columns
    highest_payload: int  # log position
    first_time: int  # microseconds since 1970 of the first arrival
    last_time: int
    outcomes: list[int]
    lowest_payload: int
    unrecorded: RowSet = field(default_factory=RowSet)
    unrecorded_bytes: int = 0
    recorded: int = 0  # as the block's column, for the rows that were unrecorded when the block was packed
    recorded_before: int = 0  # highest value in the column when the block was packed
    not_wanted: int = 0

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "unrecorded": self.unrecorded.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PackedBlock:
        return cls(**{**data, "unrecorded": RowSet.from_json(data["unrecorded"])})


@dataclass
class StagedContent:
    """Messages in stages for one queue. They count towards its limits."""

    messages: int = 0
    bytes: int = 0
    keys: Counter[str] = field(default_factory=Counter)  # of a last-value queue: parts by key

    def add(self, messages: int, size: int, keys: Iterable[str], sign: int) -> None:
        self.messages += sign * messages
        self.bytes += sign * size
        for key in keys:
            add_to(self.keys, key, sign)


class Queue:
    """After every command, `enqueued` equals delayed + available + acquired + deferred + archived."""

    def __init__(
        self, name: str, kind: str, options: dict[str, Any], clocks: Clocks | None = None, user: str | None = None
    ) -> None:
        # Persisted: the declaration
        self.id = 0  # unique, also among deleted queues
        self.name = name
        self.kind = kind
        self.options = options
        self.user = user  # whose link made it; None: it was declared by name
        self.paused = False
        # Persisted: the messages
        self.next_sequence = 0
        self.blocks: dict[int, Block] = {}
        self.packed: dict[int, PackedBlock] = {}
        self.packed_rows = 0
        self.recordings = QueueRecordings()
        self.remembered = DuplicateWindow()
        self.states = GroupStates()
        # Persisted: names that rows store as codes
        self.group_names = Dictionary()
        self.keys = Dictionary()
        self._newest: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        self.origins: list[str] = []
        self.takers = Names(MAX_TAKERS)
        # Persisted: counts
        self.ended = [0] * OUTCOME_CODES  # messages by outcome
        self.unread = 0  # messages of batches that returned unread
        self.malformed = 0

        # Derived from the options
        self.rules = rules(kind, options)
        self._level_of = level_of_priority(self.rules.levels)
        # Derived from the blocks in memory
        self.counts = [0] * len(State)
        self.bytes = 0  # stored bytes of live messages
        self.available_bytes = 0
        self.overlay_bytes = 0
        self.stayed = 0  # dead letters that no other queue could take
        self.waiting = [Waiting() for _ in range(self.rules.levels)]
        self.groups = self._make_groups()
        self.first_retries: FirstRetries | None = None  # None: unknown, because they have changed
        # Derived, and lost at a restart
        self.consumers = Consumers(name, self.rules.consumers)
        self.returns = [ReturnLog() for _ in range(self.rules.levels)]
        self.totals = Totals()
        self.losses = Losses()
        self.staged = StagedContent()
        self.changes = 0  # grows with every change that `service.queue_counts` shows
        self._clocks = clocks or Clocks(Timetable(), Timetable(), Timetable(), Timetable())

    @property
    def archived(self) -> int:
        return self.counts[ARCHIVED] + self.packed_rows

    @property
    def live(self) -> int:
        return self.counts[DELAYED] + self.counts[AVAILABLE] + self.counts[ACQUIRED] + self.counts[DEFERRED]

    @property
    def occupied(self) -> tuple[int, int]:
        """Messages and bytes that count towards the limits."""
        return self.live + self.staged.messages, self.bytes + self.staged.bytes

    def alter(self, options: dict[str, Any]) -> None:
        self.changes += 1
        self.options = checked(self.kind, {**self.options, **options})
        self.rules = rules(self.kind, self.options)
        self.consumers.rule = self.rules.consumers
        self.consumers.reconsider()

    def frees_others(self, holder: int) -> bool:
        """Return True if other consumers may take more when the holder's messages end."""
        return self.groups is not None or self.consumers.outlasts(holder)

    def append(self, sizes: int | Ints, runs: Sequence[Run], time: int, attributes: Attributes = NO_ATTRIBUTES) -> None:
        self.changes += 1
        count = sum(run.rows for run in runs)
        attributes = attributes if attributes is NO_ATTRIBUTES else self._coded(attributes)
        done, left = 0, deque(runs)
        while done < count:
            number, row = self.next_sequence >> BLOCK_BITS, self.next_sequence & (BLOCK_ROWS - 1)
            take = min(count - done, BLOCK_ROWS - row)
            block = self.blocks.get(number)
            if block is None:
                block = self.blocks[number] = Block(number)
            whole = take == count
            part = sizes if isinstance(sizes, int) or whole else sizes[done : done + take]
            mine = attributes if whole or attributes is NO_ATTRIBUTES else attributes.take(slice(done, done + take))
            delayed = block.fill(take, part, runs if whole else _first_runs(left, take), time, mine)
            self.bytes += part * take if isinstance(part, int) else int(part.sum(dtype=np.int64))
            waits = take if delayed is None else take - int(delayed.sum())
            self.counts[DELAYED] += take - waits
            self.counts[AVAILABLE] += waits
            rows = slice(row, row + take)
            waiting = rows if delayed is None else np.flatnonzero(~delayed) + row
            self.available_bytes += block.sizes.total(waiting, waits)
            self._set_level(block, rows)
            self._count_available(block, waiting, waits)
            if attributes is not NO_ATTRIBUTES:
                self.note_times(block)
            self.next_sequence += take
            done += take

    def _make_groups(self) -> Groups | None:
        return None if self.rules.groups == "none" else Groups(self.group_names, self.rules.groups == "sticky")

    def restore_names(self, groups: Sequence[str | None], keys: Sequence[str | None], newest: Sequence[int]) -> None:
        """Must run before the first block is adopted."""
        self.group_names, self.keys = Dictionary(groups), Dictionary(keys)
        self._newest = np.array([0, *newest], np.int64)
        self.groups = self._make_groups()

    def newest(self) -> npt.NDArray[np.int64]:
        """By key, the sequence number of its newest message plus one; 0: unknown."""
        if len(self._newest) < self.keys.size:
            more = max(self.keys.size, 2 * len(self._newest)) - len(self._newest)
            self._newest = np.concatenate([self._newest, np.zeros(more, np.int64)])
        return self._newest

    def note_times(self, block: Block) -> None:
        for clock, next_time, noted in (
            (self._clocks.due, block.next_due, "noted_due"),
            (self._clocks.expiry, block.next_expiry, "noted_expiry"),
            (self._clocks.lock, block.next_lock, "noted_lock"),
        ):
            if next_time < getattr(block, noted):
                clock.note(next_time, self.name, block.number)
                setattr(block, noted, next_time)

    def _coded(self, attributes: Attributes) -> Attributes:
        changed: dict[str, Any] = {}
        for name, dictionary in (("group", self.group_names), ("key", self.keys)):
            coded: Coded | None = getattr(attributes, name)
            if coded is not None:
                codes = dictionary.codes_of(coded)
                dictionary.came(codes)
                if name == "group" and self.groups is not None:
                    self.groups.arrived(coded.names)
                changed[name] = Coded([], codes)
        return replace(attributes, **changed) if changed else attributes

    def _set_level(self, block: Block, rows: slice) -> None:
        if self.rules.levels == 1:
            return
        if block.level is None or len(block.level) < len(block.state):
            grown = np.full(len(block.state), self._level_of[0], np.uint8)
            if block.level is not None:
                grown[: len(block.level)] = block.level
            block.level = grown
        block.level[rows] = self.level_of(block.priority.get(rows))

    def level_of(self, priority: Ints | int) -> npt.NDArray[np.uint8]:
        """`priority`: as in `Attributes`."""
        levels: npt.NDArray[np.uint8] = self._level_of[priority]
        return levels

    def move(self, block: Block, rows: Rows, verb: Verb) -> None:
        """Change the state of rows of one block. No other function does. Raises IllegalTransition, before any change, if the
        table lacks a transition."""
        count, states = row_count(rows), block.state[rows].tobytes()
        for step in STEPS[verb]:
            if states == step.alike[:count]:
                self._step(block, rows, count, step)
                return
        if len(states) < count or states.translate(None, LEGAL[verb]):
            raise self.illegal(verb, np.frombuffer(states, np.uint8))
        numbers, row_states = as_array(rows), np.frombuffer(states, np.uint8)
        for step in STEPS[verb]:
            some = numbers[row_states == step.source]
            if len(some):
                self._step(block, some, len(some), step)

    def illegal(self, verb: Verb, states: npt.NDArray[np.uint8]) -> IllegalTransition:
        names = ", ".join(State(state).name for state in np.unique(states)) or "nothing"
        return IllegalTransition(f"cannot {verb.name.lower()} messages of {self.name!r}: among them are some that are {names}")

    def select(self, rows: RowSet, test: Callable[[Block, Ints], Ints]) -> RowSet:
        """Keep the rows for which `test` is true. Rows of messages that are not in memory are left out."""
        blocks = ((self.blocks[number], part) for number, part in rows.items() if number in self.blocks)
        parts = ((block, as_array(clip(part, 0, block.filled))) for block, part in blocks)
        return RowSet.of((block.number, part[test(block, part)]) for block, part in parts)

    def allowed(self, rows: RowSet, verb: Verb) -> RowSet:
        legal = np.frombuffer(LEGAL[verb], np.uint8)
        return self.select(rows, lambda block, part: np.isin(block.state[part], legal))

    def _step(self, block: Block, rows: Rows, count: int, step: Step) -> None:
        self.changes += 1
        source, target = step.source, step.target
        block.move(rows, count, source, target)
        self.counts[source] -= count
        self.counts[target] += count
        size = block.sizes.total(rows, count)
        if DELAYED in (source, target):
            self.first_retries = None
        if source == AVAILABLE:
            self.available_bytes -= size
            self._count_available(block, rows, -count)
        elif source == DELAYED and self.groups is not None:
            self._freed(block.base + int(as_array(rows)[0]))  # later messages of its group may have waited
        elif source == ACQUIRED and self.groups is not None:
            self._freed(self.groups.let_go(block, block.in_order(rows)))
        if target == AVAILABLE:
            self.available_bytes += size
            self._count_available(block, rows, count)
        elif target == ARCHIVED:
            self.bytes -= size
            self._forget_names(block, rows)

    def _freed(self, first: int | None) -> None:
        """A group is free from sequence number `first` on: consumers search again."""
        if first is not None:
            for log in self.returns:
                log.add(first)

    def acquired(self, block: Block, rows: Rows, holder: int, *, chose: bool) -> None:
        """`chose`: the holder may have passed over earlier rows of its groups."""
        block.holder.set(rows, holder, len(block.state))
        if self.groups is not None:
            chose = chose or len(self.waiting) > 1
            self.groups.acquired(block, block.in_order(rows), holder, self.first_available() if chose else NEVER)

    def unsubscribe(self, holder: int) -> None:
        """The link holds no more messages, except those of its open transactions."""
        self.changes += 1
        self.consumers.unsubscribe(holder)
        if self.groups is not None:
            self._freed(self.groups.unlock(holder))
            self._freed(self.groups.left(holder))

    def lock_group(self, lock: GroupLock) -> None:
        """Lock a group for a link, or renew its lock."""
        assert self.groups is not None
        known = self.groups.locks.get(lock.holder)
        self.groups.lock(lock)
        if lock.until != NEVER and (known is None or lock.until < known.until):  # otherwise the earlier entry is checked first
            self._clocks.group.note(lock.until, self.name, lock.holder)

    def unlock_group(self, holder: int) -> None:
        assert self.groups is not None
        self._freed(self.groups.unlock(holder))
        link = self.consumers.subscriptions[holder]
        link.positions = [0] * len(link.positions)  # it has passed messages of other groups

    def first_available(self) -> int:
        """No message before this sequence number is AVAILABLE."""
        blocks = [number for waiting in self.waiting if (number := waiting.first) is not None]
        return self.blocks[min(blocks)].base + self.blocks[min(blocks)].low if blocks else self.next_sequence

    def _forget_names(self, block: Block, rows: Rows) -> None:
        codes = block.group.get(rows)
        if not isinstance(codes, int):
            gone = self.group_names.went(codes)
            if self.groups is None:
                self.group_names.forget(gone)
            else:
                self.groups.forget(gone)
        codes = block.key.get(rows)
        if not isinstance(codes, int):
            gone = self.keys.went(codes)
            self.newest()[gone] = 0
            self.keys.forget(gone)

    def held_by(self, holder: int, rows: RowSet) -> RowSet:
        return self.select(rows, lambda block, part: (block.state[part] == ACQUIRED) & (block.holder.array(part) == holder))

    def deferred_rows(self, rows: RowSet) -> RowSet:
        """Select the rows that are DEFERRED now. Sequence numbers without a message may be among `rows`."""
        known = [(self.blocks[number], part) for number, part in rows.items() if number in self.blocks]
        existing = [(block, as_array(clip(part, 0, block.filled))) for block, part in known]
        return RowSet.of((block.number, part[block.state[part] == DEFERRED]) for block, part in existing)

    def came_back(self, rows: RowSet) -> None:
        """Note rows that became AVAILABLE, so that consumers that have passed them search again."""
        if self.groups is not None:
            for number, part in rows.items():
                self.groups.came_back(self.blocks[number], part)
        if len(self.returns) == 1:
            self.returns[0].add(rows.first)
            return
        lowest: dict[int, int] = {}
        for number, part in rows.items():
            block = self.blocks[number]
            assert block.level is not None
            levels, firsts = np.unique(block.level[part], return_index=True)
            numbers = as_array(part)
            for level, first in zip(levels.tolist(), firsts.tolist(), strict=True):
                lowest.setdefault(level, block.base + int(numbers[first]))
        for level, sequence in lowest.items():
            self.returns[level].add(sequence)

    def adopt(self, block: Block) -> None:
        self.blocks[block.number] = block
        for state in State:
            self.counts[state] += block.counts[state]
        self._set_level(block, slice(0, block.filled))
        available = np.flatnonzero(block.state[: block.filled] == AVAILABLE)
        self._count_available(block, available, len(available))
        self.available_bytes += block.sizes.total(available, len(available))
        self.note_times(block)
        self.overlay_bytes += block.overlays.bytes
        self.recordings.adopt(block)
        live = np.flatnonzero(block.state[: block.filled] != ARCHIVED)
        self.bytes += block.sizes.total(live, len(live))
        self._keep_names(block, live)
        if self.groups is not None:
            held = as_array(block.in_order(np.flatnonzero(block.state[: block.filled] == ACQUIRED)))
            holders = block.holder.array(held)
            for holder in np.unique(holders).tolist():
                self.groups.acquired(block, held[holders == holder], holder, self.first_available())
        if block.stayed.values is not None:
            stayed = np.flatnonzero(block.stayed.values[: block.filled])
            self.stayed += len(stayed)
            self._keep_names(block, stayed)

    def _keep_names(self, block: Block, rows: Rows) -> None:
        for column, dictionary in ((block.group, self.group_names), (block.key, self.keys)):
            codes = column.get(rows)
            if not isinstance(codes, int):
                dictionary.came(codes)

    def keep_dead_letter(self, block: Block, rows: Rows, reason: int) -> None:
        """Note dead letters that stay here and are archived next. Their names are kept for a redrive."""
        block.stayed.set(rows, 1, len(block.state))
        block.reason.set(rows, reason, len(block.state))
        self.stayed += row_count(rows)
        self._keep_names(block, rows)

    def take_up(self, block: Block, rows: Rows) -> None:
        """Make archived rows AVAILABLE, without attempts."""
        self.recordings.revived(block, rows)
        self.move(block, rows, Verb.REDRIVE)
        self.bytes += block.sizes.total(rows, row_count(rows))
        self.stayed -= row_count(rows)
        ended = (block.stayed, block.outcome, block.settled, block.taker)
        for column in (*ended, block.attempts, block.defaulted, block.leased, block.returned, block.deferred):
            column.set(rows, 0, len(block.state))
        block.failures.clear(rows, len(block.state))
        numbers = as_array(rows)
        sent_here = numbers[block.origin.array(numbers) == 0]
        block.reason.set(sent_here, 0, len(block.state))
        for row in numbers.tolist() if block.errors else ():
            block.errors.pop(row, None)
        block.look_ahead()
        self.note_times(block)

    def drop(self, block: Block) -> None:
        self.changes += 1
        if block.stayed.values is not None:
            stayed = np.flatnonzero(block.stayed.values[: block.filled])
            self.stayed -= len(stayed)
            self._forget_names(block, stayed)
        self.packed_rows += block.counts[ARCHIVED]
        self.counts[ARCHIVED] -= block.counts[ARCHIVED]
        self.overlay_bytes -= block.overlays.bytes
        del self.blocks[block.number]

    def position_of(self, subscription: Subscription, level: int = 0) -> int:
        """An earlier position, if a message has returned there since."""
        lowest = self.returns[level].lowest_since(subscription.epochs[level])
        position = subscription.positions[level]
        return position if lowest is None else min(position, lowest)

    def blocks_with_available(self, level: int | None, first: int) -> Iterator[int]:
        """`level`: None for any level."""
        if level is None and len(self.waiting) > 1:
            numbers = heapq.merge(*(waiting.blocks(first) for waiting in self.waiting))
            return (number for number, _ in itertools.groupby(numbers))
        return self.waiting[level or 0].blocks(first)

    def _count_available(self, block: Block, rows: Rows, change: int) -> None:
        """`change`: the number of rows, negative for a decrease."""
        if not change:
            return
        if block.level is None:
            self.waiting[0].add(block.number, change)
            return
        sign, levels = 1 if change > 0 else -1, block.level[rows]
        if (levels == levels[0]).all():  # nearly always
            self.waiting[levels[0]].add(block.number, change)
            return
        for level, count in enumerate(np.bincount(levels, minlength=len(self.waiting)).tolist()):
            if count:
                self.waiting[level].add(block.number, sign * count)


def _first_runs(runs: deque[Run], count: int) -> list[Run]:
    first_runs = []
    while count:
        run = runs.popleft()
        if run.rows > count:
            runs.appendleft(Run(run.rows - count, run.position, run.skip + count))
            run = run._replace(rows=count)
        first_runs.append(run)
        count -= run.rows
    return first_runs
