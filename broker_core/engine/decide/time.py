"""Decisions by time: messages expire, and delays, locks, and abandoned leases and stages end.

A tick examines only the blocks that the timetables name. Searches skip expired messages also without a tick.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .. import commands as c
from .. import events as e
from ..columns.blocks import Block
from ..columns.limits import EXPIRY_PERIOD, MAX_EXPIRED, STAGE_AGE, STAGE_GRACE
from ..columns.rowset import RowSet
from ..columns.states import ACQUIRED, DELAYED, Cause, State
from ..model.capacity import first_of
from ..model.dispositions import DeliveryEnd
from ..model.queue import Queue
from ..model.state import LINK_HOLDER, BrokerState
from ..model.transaction import is_transactional
from . import dead_letters
from .decision import Basis, Decision, Holding, decides
from .groups import locks_that_end
from .leases import overdue
from .lifetimes import gone_at_start


@decides(c.Tick)
def tick(state: BrokerState, command: c.Tick, now: c.Now) -> Decision[None]:
    decision, basis = Decision([], None), Basis(state, now)
    decision.extend([*overdue(basis), *_abandoned(state, now)])
    wall, up, clocks = now.wall // 1000, state.uptime(now.up), state.clocks
    # Expired messages are not urgent: they are archived in larger portions.
    expiry = wall if wall - state.expired_at >= EXPIRY_PERIOD else 0
    left = MAX_EXPIRED
    for queue, blocks in _by_queue(state, clocks.expiry.due(expiry)):
        left -= _expire(basis, decision, queue, blocks, left)
    for queue, blocks in _by_queue(state, clocks.due.due(wall)):
        _come_due(decision, queue, blocks, now)
    for queue, blocks in _by_queue(state, clocks.lock.due(up)):
        _unlock(basis, decision, queue, blocks)
    decision.extend(locks_that_end(basis))
    if clocks.expiry.next <= expiry or clocks.due.next <= wall or min(clocks.lock.next, clocks.group.next) <= up:
        decision.add(e.TimePassed(wall, expiry, up))
    return decision


def _abandoned(state: BrokerState, now: c.Now) -> Iterator[e.Event]:
    """Writes without an addition for STAGE_AGE. Transactions have their own limit."""
    if now.up - max(state.started, now.resumed) <= STAGE_GRACE:
        return
    for name, write in state.writes.items():
        if now.wall - write.time > STAGE_AGE and not is_transactional(name):
            yield e.Discarded([], name)


def _by_queue(state: BrokerState, due: Iterable[tuple[str, int]]) -> Iterator[tuple[Queue, list[Block]]]:
    count: dict[str, list[int]] = {}
    for name, number in due:
        count.setdefault(name, []).append(number)
    for name, numbers in count.items():
        queue = state.queues.get(name)
        if queue is not None:
            yield queue, [queue.blocks[number] for number in sorted(numbers) if number in queue.blocks]


def _expire(basis: Basis, decision: Decision[None], queue: Queue, blocks: list[Block], most: int) -> int:
    """Return the number of dead letters, at most `most`: the next tick ends the others."""
    travel, count = queue.rules.expired == "deadLetter", 0
    wall = basis.now.wall // 1000
    parts = []
    for block in blocks:
        if travel and count >= most:
            break
        waits = block.state[: block.filled] <= State.AVAILABLE  # or DELAYED; DEFERRED messages expire when they are asked for
        parts.append((block.number, np.flatnonzero(waits & block.expired(slice(0, block.filled), wall))))
        count += len(parts[-1][1])
    rows = first_of(RowSet.of(parts), most) if travel else RowSet.of(parts)
    if rows:
        decision.extend(dead_letters.expire(basis, queue, rows))
    return rows.count if travel else 0


def _come_due(decision: Decision[None], queue: Queue, blocks: list[Block], now: c.Now) -> None:
    wall, parts = now.wall // 1000, []
    for block in blocks:
        delayed = block.state[: block.filled] == DELAYED
        rows = np.flatnonzero(delayed & block.is_due(slice(0, block.filled), wall))
        parts.append((block.number, rows[~block.expired(rows, wall)]))
    if came := RowSet.of(parts):
        decision.add(e.CameDue(queue.name, came, now.wall))


def _unlock(basis: Basis, decision: Decision[None], queue: Queue, blocks: list[Block]) -> None:
    held: dict[int, list[tuple[int, Any]]] = {}
    for block in blocks:
        rows = block.unlocked(basis.state.uptime(basis.now.up))
        holders = block.holder.array(rows)
        for holder in np.unique(holders).tolist():
            held.setdefault(holder, []).append((block.number, rows[holders == holder]))
    for holder, parts in held.items():
        holding = Holding(holder, basis.state.taker_of(queue, holder))
        late = DeliveryEnd(cause=Cause.LOCK_TIMED_OUT)
        decision.add(dead_letters.as_one(dead_letters.end(basis, queue, RowSet.of(parts), holding, late)))


@decides(c.StartBroker)
def start_broker(state: BrokerState, command: c.StartBroker, now: c.Now) -> Decision[dict[str, int]]:
    """Messages held by links return, transactions roll back, and nodes that only links kept alive end."""
    lost: dict[str, RowSet] = {}
    for queue in state.queues.values():
        if not queue.counts[State.ACQUIRED]:
            continue
        blocks = (block for _, block in sorted(queue.blocks.items()) if block.counts[State.ACQUIRED])
        if rows := RowSet.of((block.number, _held_by_links(block)) for block in blocks):
            lost[queue.name] = rows
    decision = Decision([], {name: rows.count for name, rows in lost.items()})
    if lost:  # this cause counts no attempt, so nothing follows
        decision.add(e.HoldersLost(lost, int(Cause.BROKER_LOST)))
    if left := [name for name in state.stages if is_transactional(name)]:
        decision.add(e.Discarded(left))
    decision.extend([e.ClockStarted(now.up, command.nonce), *gone_at_start(state, lost)])
    return decision


def _held_by_links(block: Block) -> Any:
    link = np.asarray(block.holder.get(slice(0, block.filled))) & 1 == LINK_HOLDER
    return np.flatnonzero((block.state[: block.filled] == ACQUIRED) & link)
