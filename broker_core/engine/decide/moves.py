"""Messages that an operator moves or copies to another queue, redrives or replaces. A command examines a limited range
of a queue, and `Shifted.next` continues it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ... import errors
from .. import commands as c
from .. import events as e
from ..columns.blocks import Block
from ..columns.intervals import Intervals
from ..columns.limits import MAX_MOVED
from ..columns.rowset import BLOCK_BITS, BLOCK_ROWS, RowSet
from ..columns.series import Ints
from ..columns.states import ACQUIRED, ARCHIVED, AVAILABLE, DEFERRED, DELAYED, Outcome
from ..model.capacity import Coming, fitting
from ..model.names import taker_name
from ..model.queue import Queue
from ..model.retention import stayed
from ..model.state import BrokerState
from ..model.transfer import column
from .decision import Decision, decides, need_queue
from .queues import enqueue


@decides(c.Move)
def move(state: BrokerState, command: c.Move, now: c.Now) -> Decision[c.Shifted]:
    rows, shifted = _to_shift(state, command, now, "move")
    event = e.Moved(command.queue, rows, command.target, int(Outcome.MOVED), now.wall, taker=taker_name(None, command.user))
    return Decision([(event, None)] if rows else [], shifted)


@decides(c.Copy)
def copy(state: BrokerState, command: c.Copy, now: c.Now) -> Decision[c.Shifted]:
    rows, shifted = _to_shift(state, command, now, "copy")
    event = e.Copied(command.queue, rows, command.target, now.wall)
    return Decision([(event, None)] if rows else [], shifted)


@decides(c.Replace)
def replace(state: BrokerState, command: c.Replace, now: c.Now) -> Decision[int]:
    """The journal writes the records of a command together, so a crash leaves the original or its copy."""
    queue, sequence = need_queue(state, command.queue), command.sequence
    has_stayed = _check_waiting(state, queue, sequence)
    arrival = enqueue(state, command.copy, now)
    copy = arrival.reply.next - 1
    target = "" if command.copy.queue == queue.name else f" in {command.copy.queue}"
    why, taker = f"replaced by message {copy}{target}", taker_name(None, command.user)
    rows = RowSet.range(sequence, sequence + 1)
    ended = e.Purged(queue.name, rows, now.wall, why, taker, int(Outcome.REPLACED))
    revived: list[tuple[e.Event, Any]] = [(e.Redriven(queue.name, rows, now.wall, taker), None)] if has_stayed else []
    return Decision([*revived, (ended, None), *arrival.events], copy)


def _check_waiting(state: BrokerState, queue: Queue, sequence: int) -> bool:
    """Return True for a dead letter that has stayed. Raises MessageNotFound or InUse."""
    if not 0 <= sequence < queue.next_sequence:
        raise errors.MessageNotFound(f"queue {queue.name!r} has messages 0 to {queue.next_sequence - 1}, not {sequence}")
    block, row = queue.blocks.get(sequence >> BLOCK_BITS), sequence % BLOCK_ROWS
    subject = f"message {sequence} of queue {queue.name!r}"
    if block is not None and queue.rules.key is None and row in stayed(block, state.dropped):
        return True
    if block is None or block.state[row] == ARCHIVED:
        raise errors.MessageNotFound(f"{subject} has ended already{_end_of(queue, block, row)}: nothing was changed. Look again")
    if block.state[row] == ACQUIRED:
        holder = state.name_of(queue, block.holder.value(row))
        raise errors.InUse(f"{subject} is held by {holder}: nothing was changed. Try again when it is returned")
    return False


def _end_of(queue: Queue, block: Block | None, row: int) -> str:
    if block is None:
        return ""
    name, taker = Outcome(block.outcome.value(row)).name.lower().replace("_", "-"), block.taker.value(row)
    return f" ({name}{f' by {queue.takers.names[taker - 1]}' if taker else ''})"


def _to_shift(state: BrokerState, command: c.Move | c.Copy, now: c.Now, verb: str) -> tuple[RowSet, c.Shifted]:
    source, target = need_queue(state, command.queue), need_queue(state, command.target)
    if source is target:
        raise errors.InvalidRequest(f"cannot {verb} messages of {source.name!r} into the same queue: name another target")
    if target.rules.key is not None and target.rules.key != source.rules.key:
        raise errors.InvalidRequest(
            f"queue {target.name!r} keeps the last value by {target.rules.key}, which was not read of the messages of "
            f"{source.name!r} when they arrived: send them again instead, or name a target of another type"
        )
    wall = now.wall // 1000

    def waiting(block: Block) -> Ints:
        rows = block.waiting()
        if block.next_expiry > wall:
            return rows
        moves: Ints = rows[~block.expired(rows, wall) | (block.state[rows] == DEFERRED)]  # these do not expire here
        return moves

    waiting_rows, more = _look(source, command.first, command.last, command.messages, waiting)
    rows = fitting(target, source, waiting_rows, {})
    if waiting_rows and not rows:
        raise errors.ResourceLimit(
            f"queue {target.name!r} is full: nothing was changed. Drain it, or raise its limits (`penstock queue alter`)"
        )
    left = waiting_rows.count - rows.count
    return rows, c.Shifted(rows.count, waiting_rows.last + 1 if more and not left else None, left)


def _look(queue: Queue, first: int, last: int | None, limit: int, wanted: Any) -> tuple[RowSet, bool]:
    """Return the first messages from `first` to `last` that `wanted` selects, and whether there may be more."""
    limit, stop = min(limit, MAX_MOVED), queue.next_sequence - 1 if last is None else last
    parts, left = [], limit
    for number in sorted(queue.blocks):
        if number < first >> BLOCK_BITS or number > stop >> BLOCK_BITS or left <= 0:
            continue
        rows = wanted(queue.blocks[number])
        base = number << BLOCK_BITS
        rows = rows[(rows >= first - base) & (rows <= stop - base)][:left]
        parts.append((number, rows))
        left -= len(rows)
    return RowSet.of(parts), left <= 0


@decides(c.Redrive)
def redrive(state: BrokerState, command: c.Redrive, now: c.Now) -> Decision[c.Shifted]:
    queue = need_queue(state, command.queue)
    events: list[e.Redriven | e.Moved] = []
    coming: Coming = {}
    named = None if command.ranges is None else _sorted(command.ranges)

    def dead(block: Block) -> Ints:
        rows = redrivable(block, state.dropped)
        rows = rows if command.group is None else rows[_in_group(block, rows, command.group)]
        return rows if named is None else rows[_within(rows + block.base, *named)]

    dead_rows, more = _look(queue, command.first, command.last, command.messages, dead)
    here = queue.select(dead_rows, lambda block, rows: np.isin(rows, stayed(block, state.dropped)))
    taker = taker_name(None, command.user)
    if back := fitting(queue, queue, here, coming):
        events.append(e.Redriven(queue.name, back, now.wall, taker))
    for name, rows in _by_origin(queue, dead_rows.minus(here)).items():
        origin = state.queues.get(name)
        if origin is None or origin is queue:
            continue
        if going := fitting(origin, queue, _newest(queue, origin, rows), coming):
            events.append(e.Moved(queue.name, going, name, int(Outcome.MOVED), now.wall, redriven=True, taker=taker))
    moved = sum(event.rows.count for event in events)
    shifted = c.Shifted(moved, dead_rows.last + 1 if more and dead_rows else None, dead_rows.count - moved)
    return Decision([(event, None) for event in events], shifted)


def _sorted(ranges: tuple[int, ...]) -> tuple[Ints, Ints]:
    """Return the begins of the ranges, ascending, and the highest end up to each."""
    firsts, lasts = np.array(ranges, np.int64).reshape(-1, 2).T
    order = np.argsort(firsts)
    return firsts[order], np.maximum.accumulate(lasts[order])


def _within(sequences: Ints, firsts: Ints, reach: Ints) -> npt.NDArray[np.bool_]:
    before = np.searchsorted(firsts, sequences, side="right")
    return sequences <= np.concatenate([[-1], reach])[before]


def _in_group(block: Block, rows: Ints, group: c.DeathGroup) -> npt.NDArray[np.bool_]:
    has_reason: npt.NDArray[np.bool_] = block.reason.array(rows) == group.reason
    if group.error is None:
        return has_reason
    has_reason &= np.fromiter((block.errors.get(row, "") == group.error for row in rows.tolist()), np.bool_, len(rows))
    return has_reason


def redrivable(block: Block, dropped: Intervals) -> Ints:
    """Return dead letters of other queues, and own ones that stayed here."""
    here = stayed(block, dropped)
    if block.origin.values is None:
        return here
    states = block.state[: block.filled]
    away = ((states == AVAILABLE) | (states == DEFERRED)) & (block.origin.values[: block.filled] > 0)
    return np.sort(np.concatenate([np.flatnonzero(away), here]))


def _by_origin(queue: Queue, rows: RowSet) -> dict[str, RowSet]:
    codes = column(queue, rows, "origin")
    if codes is None:
        return {}
    sequences = rows.sequences()
    return {
        queue.origins[code - 1]: RowSet.of_sequences(sequences[codes == code]) for code in np.unique(codes[codes > 0]).tolist()
    }


def _latest(queue: Queue) -> npt.NDArray[np.int64]:
    """As `Queue.newest`, delayed messages included."""
    latest = queue.newest()
    for block in queue.blocks.values() if queue.counts[DELAYED] else ():
        codes = block.key.get(slice(0, block.filled))
        if block.counts[DELAYED] and not isinstance(codes, int):
            delayed = np.flatnonzero(block.state[: block.filled] == DELAYED)
            latest = latest.copy()
            np.maximum.at(latest, codes[delayed], delayed + block.base + 1)
    return latest


def _newest(queue: Queue, origin: Queue, rows: RowSet) -> RowSet:
    """Keep the dead letters of a last-value queue that are still the last of their keys."""
    keys, came_from = column(queue, rows, "key"), column(queue, rows, "came_from")
    if origin.rules.key is None or keys is None or came_from is None:
        return rows
    sequences, origins = rows.sequences(), came_from.astype(np.int64)
    latest = _latest(origin)
    newest = np.ones(len(sequences), np.bool_)
    for code in np.unique(keys[keys > 0]).tolist():
        of_key = keys == code
        known = origin.keys.get(queue.keys.name(code) or "")
        newest[of_key & (origins < max(origins[of_key].max(), latest[known] if known else 0))] = False
    return RowSet.of_sequences(sequences[newest])
