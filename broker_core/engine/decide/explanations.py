"""Explanations: why a consumer does not receive the next message, by the predicates and searches of `links` and `leases`.

Obstacles are checked in the order of a delivery: the queue, the consumer among others, the consumer itself, the messages. To find
the rules that exclude messages, the search is repeated with one more filter at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from ...errors import InUse
from .. import commands as c
from ..columns.limits import ALIVE, EXPLAINED_MESSAGES, NEVER
from ..columns.obstacles import Obstacle
from ..columns.rowset import BLOCK_BITS, BLOCK_ROWS, RowSet
from ..columns.states import ACQUIRED, AVAILABLE, DEFERRED, DELAYED
from ..model.groups import FreeGroup, OfGroup
from ..model.lease import Lease
from ..model.queue import Queue
from ..model.search import Filter, InTurn, Matching, Search, Unexpired, Without, barrier, find, open_levels
from ..model.state import BrokerState
from .decision import Decision, decides, need_lease, need_queue
from .leases import lease_filters, silence
from .links import lacks_group, link_filters, lowest_position_of, need_subscription

_EXCLUDED_BY: dict[type, Obstacle] = {
    Unexpired: Obstacle.EXPIRED,
    Without: Obstacle.REFUSED,
    OfGroup: Obstacle.OTHER_GROUP,
    FreeGroup: Obstacle.GROUP,
    InTurn: Obstacle.RETRY,
}
_AWAITS_MESSAGES = {Obstacle.EMPTY, Obstacle.DELAYED, Obstacle.DEFERRED}


@decides(c.DescribeConsumers)
def describe_consumers(state: BrokerState, command: c.DescribeConsumers, now: c.Now) -> Decision[c.QueueState]:
    queue = need_queue(state, command.queue)
    links = queue.consumers.subscriptions.values()
    leases = [lease for lease in state.leases.values() if lease.queue == queue.name]
    consumers = [
        c.ConsumerState(link.holder, None, link.taker, link.selector, link.priority, sum(link.held.values()))
        for link in islice(links, command.most)
    ]
    consumers += map(_described, leases[: command.most - len(consumers)])
    due = min((block.next_due for block in queue.blocks.values() if block.counts[DELAYED]), default=None)
    available, acquired, delayed, deferred = (queue.counts[code] for code in (AVAILABLE, ACQUIRED, DELAYED, DEFERRED))
    total = len(links) + len(leases)
    description = c.QueueState(queue.paused, available, acquired, delayed, deferred, due, tuple(consumers), total)
    return Decision([], description)


def _described(lease: Lease) -> c.ConsumerState:
    batch = lease.current
    holder, held = (0, 0) if batch is None else (batch.holder, batch.rows.count)
    return c.ConsumerState(holder, lease.name, lease.taker, lease.selector, held=held)


class _Seeker(NamedTuple):
    """A consumer's search. `position`: by level."""

    filters: list[Filter]
    matching: Matching | None
    position: Callable[[int], int]


@decides(c.Explain)
def explain(state: BrokerState, command: c.Explain, now: c.Now) -> Decision[c.Explained]:
    queue = need_queue(state, command.queue)
    hindrances = [c.Hindrance(Obstacle.PAUSED)] if queue.paused else []
    if not queue.consumers.may_take(command.holder):
        hindrances.append(c.Hindrance(Obstacle.INACTIVE, holder=queue.consumers.active))
    if command.obstacle is not None:
        hindrances.append(c.Hindrance(command.obstacle))
    if command.lease is None:
        subscription = need_subscription(queue, command.holder)
        if lacks_group(queue, subscription):
            hindrances.append(c.Hindrance(Obstacle.NO_GROUP))
        filters = link_filters(queue, subscription, now)
        seeker = _Seeker(filters, command.matching, lambda level: queue.position_of(subscription, level))
    else:
        lease = need_lease(state, command.lease)
        hindrances += _of_lease(queue, lease, now)
        # Only a run of `availableNow` passes over the excluded messages.
        seeker = _Seeker(lease_filters(state, queue, RowSet(), now), command.matching, lambda level: 0)
    if queue.paused:
        return Decision([], c.Explained(tuple(hindrances)))
    if not queue.counts[AVAILABLE]:
        otherwise = Obstacle.DEFERRED if queue.counts[DEFERRED] else Obstacle.EMPTY
        hindrances.append(c.Hindrance(Obstacle.DELAYED if queue.counts[DELAYED] else otherwise))
        return Decision([], c.Explained(tuple(hindrances)))
    following, ahead = _next(queue, seeker, command.behind)
    if following is not None:
        hindrances += ahead
        explained = c.Explained(tuple(hindrances), None if hindrances else following)
    else:
        passed_all = all(seeker.position(level) >= queue.next_sequence for level in open_levels(queue))
        excluded, looked = _excluded(queue, seeker)
        explained = c.Explained((*hindrances, *excluded), None, looked, passed_all)
    return Decision([], explained)


def _of_lease(queue: Queue, lease: Lease, now: c.Now) -> Iterator[c.Hindrance]:
    if lease.current is not None:
        yield c.Hindrance(Obstacle.BATCH)
        return
    try:
        queue.consumers.check_lease()
    except InUse:
        yield c.Hindrance(Obstacle.EXCLUSIVE)
    if now.up < lease.waits_until:
        yield c.Hindrance(Obstacle.UNREAD)
    silent = silence(lease, now)
    if silent is None or silent > ALIVE:
        yield c.Hindrance(Obstacle.SILENT)


def _window(queue: Queue, first: int, level: int) -> tuple[int, int] | None:
    """Return the bounds of the examined sequence numbers of a level, from `first` on."""
    number = next(queue.blocks_with_available(level, first >> BLOCK_BITS), None)
    if number is None:
        return None
    block = queue.blocks[number]
    start = max(first, block.base + block.low)
    return start, start + EXPLAINED_MESSAGES


def _next(queue: Queue, seeker: _Seeker, behind: tuple[int, ...]) -> tuple[int | None, list[c.Hindrance]]:
    """Find the next message as `acquire` does, and whether another consumer comes first."""
    for level in open_levels(queue):
        window = _window(queue, seeker.position(level), level)
        if window is None:
            continue
        search = Search(1, until=window[1], filters=seeker.filters, matching=seeker.matching)
        match = find(queue, window[0], search, level)
        if match.rows:
            is_ahead = behind and match.rows.first >= lowest_position_of(queue, behind, level)
            return match.rows.first, [c.Hindrance(Obstacle.PRIORITY, holder=behind[0])] if is_ahead else []
        if match.unknown is not None:
            break
    return None, []


def _excluded(queue: Queue, seeker: _Seeker) -> tuple[list[c.Hindrance], int]:
    """Return the rules that exclude the first AVAILABLE messages, with counts, and how many were examined."""
    hindrances: dict[Obstacle, c.Hindrance] = {}
    looked = 0

    def note(hindrance: c.Hindrance) -> None:
        before = hindrances.setdefault(hindrance.obstacle, hindrance._replace(messages=0))
        hindrances[hindrance.obstacle] = before._replace(messages=(before.messages or 0) + (hindrance.messages or 0))

    for level in open_levels(queue):
        window = _window(queue, 0, level)
        if window is not None and looked < EXPLAINED_MESSAGES:
            search = Search(EXPLAINED_MESSAGES, until=window[1])
            rows = find(queue, window[0], search, level).rows
            looked += rows.count
            for hindrance in _steps(queue, seeker, rows, window, level):
                note(hindrance)
        stop = barrier(queue, level)
        if stop != NEVER:
            note(c.Hindrance(Obstacle.RETRY, queue.counts[AVAILABLE] - looked, until=_due(queue, stop)))
    return list(hindrances.values()), looked


def _steps(queue: Queue, seeker: _Seeker, rows: RowSet, window: tuple[int, int], level: int) -> Iterator[c.Hindrance]:
    """Yield a hindrance for each rule that excludes messages that the earlier ones admit."""
    search = Search(EXPLAINED_MESSAGES, until=window[1], matching=seeker.matching)
    if seeker.matching is not None and rows:
        match = find(queue, window[0], search, level)
        unevaluated = 0 if match.unknown is None else rows.between(match.unknown, rows.last).count
        if unevaluated:
            yield c.Hindrance(Obstacle.UNEVALUATED, unevaluated)
        if unmatched := rows.count - unevaluated - match.rows.count:
            yield c.Hindrance(Obstacle.SELECTOR, unmatched)
        rows = match.rows
    for count, row_filter in enumerate(seeker.filters, 1):
        if not any(row_filter.concerns(queue.blocks[number]) for number, _ in rows.items()):
            continue
        left = find(queue, window[0], search._replace(filters=seeker.filters[:count]), level).rows
        excluded = rows.minus(left)
        if excluded:
            yield _by_filter(queue, row_filter, excluded)
        rows = left


def _by_filter(queue: Queue, row_filter: Filter, excluded: RowSet) -> c.Hindrance:
    hindrance = c.Hindrance(_EXCLUDED_BY[type(row_filter)], excluded.count)
    block = queue.blocks[excluded.first >> BLOCK_BITS]
    code = block.group.value(excluded.first % BLOCK_ROWS)
    if isinstance(row_filter, FreeGroup):
        holder, locks = int(row_filter.groups.holders(np.array([code]))[0]), row_filter.groups.locks
        group = row_filter.groups.names.name(code)
        return hindrance._replace(holder=holder, group=group, locked=holder in locks and locks[holder].group == group)
    if isinstance(row_filter, OfGroup) and row_filter.code:
        return hindrance._replace(group=queue.group_names.name(row_filter.code))
    if isinstance(row_filter, InTurn):
        first = int(row_filter.lowest[np.searchsorted(row_filter.groups, code)])
        return hindrance._replace(group=queue.group_names.name(code), until=_due(queue, first))
    return hindrance


def _due(queue: Queue, sequence: int) -> int | None:
    block = queue.blocks[sequence >> BLOCK_BITS]
    times = block.times(block.due, np.array([sequence % BLOCK_ROWS]))
    return None if times is None else int(times[0])


def ranked(consumers: Sequence[tuple[c.ConsumerState, c.Explained]]) -> list[c.Explained]:
    """Add the precedence by priority of links that would receive the same message."""
    first: dict[int | None, c.ConsumerState] = {}
    for consumer, explained in consumers:
        if _is_open(consumer, explained):
            known = first.setdefault(explained.next, consumer)
            first[explained.next] = max(known, consumer, key=lambda link: link.priority)
    return [
        explained
        if not _is_open(consumer, explained) or first[explained.next].priority <= consumer.priority
        else explained._replace(
            hindrances=(*explained.hindrances, c.Hindrance(Obstacle.PRIORITY, holder=first[explained.next].holder)), next=None
        )
        for consumer, explained in consumers
    ]


def _is_open(consumer: c.ConsumerState, explained: c.Explained) -> bool:
    """Return True if a link would receive a message, or its next one."""
    return consumer.lease is None and {hindrance.obstacle for hindrance in explained.hindrances} <= _AWAITS_MESSAGES
