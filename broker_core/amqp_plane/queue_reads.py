"""Reads of queues and exchanges within a turn: only this module of the plane looks at the engine's state.

A queue that is gone has no holder, no limit and no groups.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..engine.columns.group_states import GroupStates
from ..engine.columns.rowset import BLOCK_BITS, RowSet, as_array
from ..engine.columns.series import Rows
from ..engine.columns.states import ARCHIVED, AVAILABLE, DELAYED
from ..engine.decide.decision import need_queue
from ..engine.decide.groups import need_groups
from ..engine.model.bindings import Binding
from ..engine.model.groups import GroupLock, OfGroup
from ..engine.model.queue import Queue
from ..engine.model.search import within_bytes
from ..service.turn import Turn

LOOKED_AT_BLOCKS = 64  # of one queue in one commit: some milliseconds under the broker's lock


def find(turn: Turn, queue_name: str) -> Queue | None:
    """Return a queue, which callers only read; None if it is gone."""
    return turn.state.queues.get(queue_name)


def available(turn: Turn, queue_name: str) -> int:
    """Count the AVAILABLE messages. Raises NotFound."""
    return need_queue(turn.state, queue_name).counts[AVAILABLE]


def is_limited(turn: Turn, queue_name: str) -> bool:
    """Return True if messages in the queue may keep out new ones."""
    queue = find(turn, queue_name)
    return queue is not None and bool(queue.rules.max_messages or queue.rules.max_bytes or queue.rules.key)


def is_freed_by_outcomes(turn: Turn, queue_name: str) -> bool:
    """Return True if the end of a message may make a message available: the next of its group, or itself."""
    queue = find(turn, queue_name)
    return queue is not None and (queue.rules.groups != "none" or queue.rules.rejected == "return")


def lock_timeout(turn: Turn, queue_name: str) -> int:
    """In milliseconds, 0 without a limit."""
    queue = find(turn, queue_name)
    return 0 if queue is None else queue.rules.lock_timeout


class UnsettledMessages(NamedTuple):
    """Unsettled messages, and among them the ones that their sender delayed, and the deferred ones."""

    rows: RowSet
    delayed: RowSet
    deferred: RowSet
    bytes: int  # stored bytes of the rows
    next: int | None  # sequence number to continue from; None: a limit or the end of the queue is reached


def unsettled_from(
    turn: Turn, queue_name: str, first: int, messages: int, max_bytes: int, group: str | None = None
) -> UnsettledMessages:
    """Return the first unsettled messages from sequence number `first` on. A larger message is returned alone.

    `group`: None for messages of any group, or of none.
    """
    queue = need_queue(turn.state, queue_name)
    code = None if group is None else queue.group_names.get(group)
    rows, delayed, deferred = list[tuple[int, Rows]](), list[tuple[int, Rows]](), list[tuple[int, Rows]]()
    numbers = sorted(number for number in queue.blocks if number >= first >> BLOCK_BITS) if messages > 0 and code != 0 else []
    following = numbers[LOOKED_AT_BLOCKS] << BLOCK_BITS if len(numbers) > LOOKED_AT_BLOCKS else None
    left, room = messages, max_bytes
    for number in numbers[:LOOKED_AT_BLOCKS]:
        block = queue.blocks[number]
        start = max(0, first - block.base)
        wanted = block.state[start : block.filled] != ARCHIVED
        if code is not None:
            wanted &= block.group.get(slice(start, block.filled)) == code
        mine = as_array(np.flatnonzero(wanted)[:left] + start)
        if not len(mine):
            continue
        within, size = within_bytes(block, mine, room, alone=not rows)
        part = as_array(within)
        rows.append((number, part))
        delayed.append((number, part[(block.state[part] == DELAYED) & ~block.awaits_retry(part)]))
        deferred.append((number, block.deferred_among(part)))
        left, room = left - len(part), room - size
        if not left or len(part) < len(mine):
            following = None
            break
    return UnsettledMessages(RowSet.of(rows), RowSet.of(delayed), RowSet.of(deferred), max_bytes - room, following)


def deferred_of_group(turn: Turn, queue_name: str, rows: RowSet, group: str | None) -> RowSet:
    """Return the rows that are deferred and have this message group; None: any group. A queue without groups has none."""
    queue = need_queue(turn.state, queue_name)
    if queue.groups is None:
        return RowSet()
    in_group = OfGroup(None if group is None else queue.group_names.get(group))
    deferred = queue.deferred_rows(rows)
    return RowSet.of((number, in_group.keep(queue.blocks[number], part)) for number, part in deferred.items())


def group_states(turn: Turn, queue_name: str) -> GroupStates:
    return need_queue(turn.state, queue_name).states


def group_lock(turn: Turn, queue_name: str, holder: int) -> GroupLock | None:
    queue = find(turn, queue_name)
    return None if queue is None or queue.groups is None else queue.groups.locks.get(holder)


def group_names(turn: Turn, queue_name: str, skip: int, count: int) -> list[str]:
    """Return a page of the groups with unsettled messages or a state."""
    queue = need_queue(turn.state, queue_name)
    names = need_groups(queue).names
    has_messages = names.live(np.arange(names.size)) > 0
    has_messages[0] = False  # messages without a group
    codes = np.flatnonzero(has_messages)
    page = [name for code in codes[skip : skip + count].tolist() if (name := names.name(code)) is not None]
    if len(page) == count:
        return page
    others = [group for group in queue.states.groups() if not has_messages[names.get(group)]]
    return page + others[max(0, skip - len(codes)) :][: count - len(page)]


def is_grouped(turn: Turn, queue_name: str) -> bool:
    queue = find(turn, queue_name)
    return queue is not None and queue.groups is not None


def unlocked(turn: Turn, queue_name: str) -> int:
    """Count the messages that were returned because a lock expired."""
    queue = find(turn, queue_name)
    return 0 if queue is None else queue.totals.unlocked


def held(turn: Turn, queue_name: str, holder: int, rows: RowSet) -> RowSet:
    queue = find(turn, queue_name)
    return RowSet() if queue is None else queue.held_by(holder, rows)


def is_open(turn: Turn, queue_name: str, holder: int) -> bool:
    queue = find(turn, queue_name)
    return queue is not None and queue.consumers.link(holder) is not None


def active_holder(turn: Turn, queue_name: str) -> int | None:
    """Return the active holder, 0 without one; None if all holders receive, or if the queue is gone."""
    queue = find(turn, queue_name)
    return None if queue is None else queue.consumers.active


def has_passed_all(turn: Turn, queue_name: str, holder: int) -> bool:
    queue = find(turn, queue_name)
    link = None if queue is None else queue.consumers.subscriptions.get(holder)
    if queue is None or link is None:
        return True
    return all(queue.position_of(link, level) >= queue.next_sequence for level in range(queue.rules.levels))


def lifetime(turn: Turn, node: str) -> str:
    """Return the lifetime of a queue or exchange; `permanent` also for an unknown name."""
    queue, exchange = find(turn, node), turn.state.exchanges.by_name.get(node)
    if queue is not None:
        return queue.rules.lifetime
    return "permanent" if exchange is None else exchange.lifetime


def exchange_kind(turn: Turn, exchange_name: str) -> str | None:
    exchange = turn.state.exchanges.by_name.get(exchange_name)
    return None if exchange is None else exchange.kind


def rules(turn: Turn, exchange_name: str, queue_name: str) -> dict[int, Binding]:
    exchange = turn.state.exchanges.by_name.get(exchange_name)
    return {} if exchange is None else exchange.bindings_of(queue_name)


def bindings(turn: Turn, queue_name: str) -> list[tuple[str, Binding]]:
    exchanges = turn.state.exchanges
    leading = [(name, exchanges.by_name[name]) for name in exchanges.leading_to(queue_name)]
    return [(name, exchange.bindings[number]) for name, exchange in leading for number in exchange.numbers_of(queue_name, None)]
