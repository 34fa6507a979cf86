"""*Immediate* messages: a consumer acquires the message in the step that stores it, or the message is not stored.

The decision precedes the storing. It assigns messages to the links of the offers, and one event stores the assigned messages as
held by these links. A message that no link can take leaves no trace: it has no sequence number, no entry in the duplicate window,
no name of a group or key and no row in the archive. No ring drops a message for it, and it replaces no value.

A link takes an immediate message under the rules of any acquisition (see `search`). The message is due and not expired, the
link's selector matches, the group is free or belongs to the link, and no earlier message waits for a retry that the message must
not pass. Messages that wait in the queue for the link have precedence.
"""

from __future__ import annotations

import numpy as np

from .. import commands as c
from .. import events as e
from ..columns.attributes import Attributes, Coded
from ..columns.limits import NEVER
from ..columns.rowset import RowSet
from ..columns.series import Ints
from ..model.admission import NONE, admit, fresh
from ..model.consumers import may_take
from ..model.queue import Queue
from ..model.search import barrier, in_turn
from ..model.state import BrokerState
from .decision import Decision, need_queue
from .links import has_waiting


def enqueue_immediate(state: BrokerState, command: c.EnqueueImmediate, now: c.Now) -> Decision[c.Delivered]:
    """Store the messages that links of the offers take, within the queue's limits and without duplicates. Raises NotFound."""
    queue, attributes, wall = need_queue(state, command.queue), command.attributes, now.wall // 1000
    candidates = _deliverable(attributes, command.count, wall)
    new = np.ones(command.count, np.bool_)
    if attributes.ids is not None and queue.rules.duplicate_window:
        new = fresh(queue, attributes.ids, wall)
    taken = _Assignment(queue, attributes, candidates & new).by(command, now)
    rows = np.sort(np.concatenate([NONE, *(some for _, some in taken)]))
    refused = NONE
    if len(rows) and not queue.rules.unrestricted:
        sizes = command.sizes if isinstance(command.sizes, int) else command.sizes[rows]
        admitted = admit(queue, len(rows), sizes, attributes.take(rows), wall, held=True)
        refused = rows[admitted.refused]
        rows = rows if admitted.kept is None else rows[admitted.kept]
    undelivered = np.setdiff1d(np.flatnonzero(new), np.concatenate([rows, refused]))
    if attributes.ids is not None and not new.all():  # a duplicate of a message that is not stored is not stored either
        again = np.flatnonzero(~new)
        refused, undelivered = (
            np.sort(np.concatenate([some, again[np.isin(attributes.ids[again], attributes.ids[some])]]))
            for some in (refused, undelivered)
        )
    waits = not len(rows) or command.durable or queue.rules.durability == "all"
    decision = Decision([], c.Delivered((), undelivered.tolist(), refused.tolist()), waits)
    if len(rows):
        _add_event(state, decision, queue, command, now, taken, rows)
    return decision


def _deliverable(attributes: Attributes, count: int, wall: int) -> Ints:
    """By message, whether it may be delivered now: due, and not expired."""
    may = np.ones(count, np.bool_)
    if attributes.due is not None:
        may &= attributes.due <= wall
    if attributes.expiry is not None:
        may &= (attributes.expiry == 0) | (attributes.expiry > wall)
    return may


def _add_event(
    state: BrokerState,
    decision: Decision[c.Delivered],
    queue: Queue,
    command: c.EnqueueImmediate,
    now: c.Now,
    taken: list[tuple[int, Ints]],
    kept: Ints,
) -> None:
    """Add the event that stores the messages `kept` as held by the links that take them."""
    first, sizes = queue.next_sequence, command.sizes
    holders: list[tuple[int, RowSet]] = []
    for holder, some in taken:
        mine = np.searchsorted(kept, some[np.isin(some, kept)])
        if len(mine):
            holders.append((holder, RowSet.of_sequences(mine + first)))
    acquired = tuple(e.Acquired(queue.name, holder, held) for holder, held in holders)
    whole = len(kept) == command.count
    attributes = (command.attributes if whole else command.attributes.take(kept)).journaled()
    sizes = sizes if whole or isinstance(sizes, int) else sizes[kept]
    event = e.Enqueued(queue.name, first, len(kept), sizes, now.wall, attributes, None if whole else kept, acquired)
    decision.add(event, command.payload)
    if queue.rules.lock_timeout:
        until = state.uptime(now.up) + queue.rules.lock_timeout
        for _, held in holders:
            decision.add(e.Locked(queue.name, held, until))
    decision.reply = decision.reply._replace(taken=holders)


class _Assignment:
    """Distribution of arriving messages among the links that are offered. `free`: by message, whether it is not assigned yet."""

    def __init__(self, queue: Queue, attributes: Attributes, free: Ints) -> None:
        self._queue = queue
        self._free = free
        self._levels = _levels(queue, attributes, len(free))
        self._groups = attributes.group if queue.grouping is not None else None
        self._owners = np.zeros(0, np.int64) if self._groups is None else self._look_up(self._groups)
        stopped = [level for level in range(queue.rules.levels) if barrier(queue, level) != NEVER]
        if stopped:  # a message waits for its retry, and everything behind it waits with it
            self._free = free & (self._levels > max(stopped))

    def _look_up(self, groups: Coded) -> Ints:
        """Return the owner of each group by its code among the arriving messages, and keep back those that wait for a retry."""
        assert self._queue.grouping is not None
        codes = np.array([0, *map(self._queue.groups.get, groups.names)])
        for waiting in in_turn(self._queue):
            self._free = self._free & ~np.isin(codes, waiting.groups)[groups.codes]
        return np.where(codes > 0, self._queue.grouping.owners(codes), 0)

    def by(self, command: c.EnqueueImmediate, now: c.Now) -> list[tuple[int, Ints]]:
        """Let the links take messages in the order of the offers. Returns holders and the messages of one level that each takes,
        ascending; higher levels first."""
        found: dict[tuple[int, int], list[Ints]] = {}
        budgets, ready = list(command.budgets), {}
        for offer in command.offers:
            if not self._free.any():
                break
            if offer.holder not in ready:
                ready[offer.holder] = self._is_ready(offer, now)
            left = min([offer.messages, *(budgets[index] for index in offer.budgets)])
            if not ready[offer.holder] or left <= 0:
                continue
            for level in reversed(range(self._queue.rules.levels)):
                rows = self._take(offer, level, left)
                if len(rows):
                    found.setdefault((level, offer.holder), []).append(rows)
                    left -= len(rows)
                    for index in offer.budgets:
                        budgets[index] -= len(rows)
        order = sorted(found, key=lambda key: -key[0])
        return [(holder, np.sort(np.concatenate(found[level, holder]))) for level, holder in order]

    def _is_ready(self, offer: c.Offer, now: c.Now) -> bool:
        """Say whether it is the link's turn, and nothing in the queue waits for it."""
        subscription = self._queue.subscriptions.get(offer.holder)
        if subscription is None or self._queue.paused or not may_take(self._queue, offer.holder):
            return False
        return not has_waiting(self._queue, subscription, offer.matching, now)

    def _take(self, offer: c.Offer, level: int, most: int) -> Ints:
        mine = self._free & (self._levels == level)
        if offer.matches is not None:
            mine &= offer.matches
        if self._groups is not None:
            owners = self._owners[self._groups.codes]
            mine &= (owners == 0) | (owners == offer.holder)
        rows = np.flatnonzero(mine)[:most]
        self._free[rows] = False
        if self._groups is not None:
            codes = self._groups.codes[rows]
            self._owners[codes[codes > 0]] = offer.holder
        return rows


def _levels(queue: Queue, attributes: Attributes, count: int) -> Ints:
    priority = np.zeros(count, np.int64) if attributes.priority is None else attributes.priority
    levels: Ints = queue.level_of(priority)
    return levels
