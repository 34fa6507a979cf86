"""*Immediate* messages: a consumer acquires the message in the step that stores it, or the message is not stored.

Messages are first assigned to the links of the offers. One event then stores the assigned messages as held by these links. Other
messages leave no trace: they get no sequence numbers, are not remembered as duplicates, and a ring drops nothing for them.

The rules of any acquisition apply (see `search`). Messages that wait in the queue for the link come first.
"""

from __future__ import annotations

import numpy as np

from .. import commands as c
from .. import events as e
from ..columns.attributes import Attributes, Coded
from ..columns.limits import NEVER
from ..columns.losses import FULL, NO_CONSUMER
from ..columns.rowset import RowSet
from ..columns.series import Ints
from ..model.admission import NONE, admit, fresh
from ..model.queue import Queue
from ..model.search import barrier, in_turn
from ..model.state import BrokerState
from .decision import Decision, decides, need_queue
from .links import has_waiting, lacks_group, locked
from .losses import losses


@decides(c.EnqueueImmediate)
def enqueue_immediate(state: BrokerState, command: c.EnqueueImmediate, now: c.Now) -> Decision[c.ImmediateReply]:
    queue, attributes, wall = need_queue(state, command.queue), command.attributes, now.wall // 1000
    deliverable = _deliverable(attributes, command.count, wall)
    new = np.ones(command.count, np.bool_)
    if attributes.ids is not None and queue.rules.duplicate_window:
        new = fresh(queue, attributes.ids, wall)
    taken = _Assignment(queue, attributes, deliverable & new).by(command, now)
    rows = np.sort(np.concatenate([NONE, *(some for _, some in taken)]))
    refused = NONE
    if len(rows) and not queue.rules.unrestricted:
        admitted = admit(queue, command.candidates.take(rows), wall, held=True)
        refused = rows[admitted.refused]
        rows = rows if admitted.rows is None else rows[admitted.rows]
    undelivered = np.setdiff1d(np.flatnonzero(new), np.concatenate([rows, refused]))
    if attributes.ids is not None and not new.all():  # like its original, a duplicate may not be stored
        again = np.flatnonzero(~new)
        refused, undelivered = (
            np.sort(np.concatenate([some, again[np.isin(attributes.ids[again], attributes.ids[some])]]))
            for some in (refused, undelivered)
        )
    waits = not len(rows) or command.durable or queue.rules.durability == "all"
    decision = Decision([], c.ImmediateReply((), undelivered.tolist(), refused.tolist()), waits)
    if len(rows):
        held = _held(taken, rows, queue.next_sequence)
        decision.add(_enqueued(queue, command, now, rows, held), payload=command.payload)
        for holder, some in held:
            decision.extend(locked(state, queue, holder, some, now))
        decision.reply = decision.reply._replace(taken=held)
    decision.extend(losses(queue.name, {FULL: len(refused), NO_CONSUMER: len(undelivered)}))
    return decision


def _deliverable(attributes: Attributes, count: int, wall: int) -> Ints:
    may = np.ones(count, np.bool_)
    if attributes.due is not None:
        may &= attributes.due <= wall
    if attributes.expiry is not None:
        may &= (attributes.expiry == 0) | (attributes.expiry > wall)
    return may


def _held(taken: list[tuple[int, Ints]], stored: Ints, first: int) -> list[tuple[int, RowSet]]:
    held: list[tuple[int, RowSet]] = []
    for holder, rows in taken:
        places = np.searchsorted(stored, rows[np.isin(rows, stored)])
        if len(places):
            held.append((holder, RowSet.of_sequences(places + first)))
    return held


def _enqueued(queue: Queue, command: c.EnqueueImmediate, now: c.Now, rows: Ints, held: list[tuple[int, RowSet]]) -> e.Enqueued:
    payload_rows = None if len(rows) == command.count else rows
    candidates = command.candidates if payload_rows is None else command.candidates.take(rows)
    attributes = candidates.attributes.journaled()
    acquired = tuple(e.Acquired(queue.name, holder, some) for holder, some in held)
    first = queue.next_sequence
    return e.Enqueued(queue.name, first, len(rows), candidates.sizes, now.wall, attributes, payload_rows, acquired)


class _Assignment:
    """Assignment of arriving messages to links. `free`: by message, whether it is not assigned."""

    def __init__(self, queue: Queue, attributes: Attributes, free: Ints) -> None:
        self._queue = queue
        self._free = free
        priority = np.zeros(len(free), np.int64) if attributes.priority is None else attributes.priority
        self._levels: Ints = queue.level_of(priority)
        self._groups = attributes.group if queue.groups is not None else None
        self._owners = np.zeros(0, np.int64) if self._groups is None else self._look_up(self._groups)
        stopped = [level for level in range(queue.rules.levels) if barrier(queue, level) != NEVER]
        if stopped:  # messages wait behind a retry
            self._free = free & (self._levels > max(stopped))

    def _look_up(self, groups: Coded) -> Ints:
        """Return the owners of groups by their codes among the arriving messages. Groups that wait for a retry are not free."""
        assert self._queue.groups is not None
        codes = np.array([0, *map(self._queue.group_names.get, groups.names)])
        holders = np.array([0, *map(self._queue.groups.holder_of, groups.names)])
        for waiting in in_turn(self._queue):
            self._free = self._free & ~np.isin(codes, waiting.groups)[groups.codes]
        return holders

    def by(self, command: c.EnqueueImmediate, now: c.Now) -> list[tuple[int, Ints]]:
        """Return holders with the messages of one level that they take, ascending; higher levels first."""
        taken: dict[tuple[int, int], list[Ints]] = {}
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
                    taken.setdefault((level, offer.holder), []).append(rows)
                    left -= len(rows)
                    for index in offer.budgets:
                        budgets[index] -= len(rows)
        order = sorted(taken, key=lambda key: -key[0])
        return [(holder, np.sort(np.concatenate(taken[level, holder]))) for level, holder in order]

    def _is_ready(self, offer: c.Offer, now: c.Now) -> bool:
        """Return True if the link may take messages, and no message in the queue waits for it."""
        subscription = self._queue.consumers.subscriptions.get(offer.holder)
        if subscription is None or self._queue.paused or not self._queue.consumers.may_take(offer.holder):
            return False
        if lacks_group(self._queue, subscription):
            return False
        return not has_waiting(self._queue, subscription, offer.matching, now)

    def _take(self, offer: c.Offer, level: int, most: int) -> Ints:
        mine = self._free & (self._levels == level)
        if offer.matches is not None:
            mine &= offer.matches
        if self._groups is not None:
            owners = self._owners[self._groups.codes]
            is_open = not self._queue.consumers.subscriptions[offer.holder].one_group
            mine &= (owners == offer.holder) | ((owners == 0) & is_open)
        rows = np.flatnonzero(mine)[:most]
        self._free[rows] = False
        if self._groups is not None:
            codes = self._groups.codes[rows]
            self._owners[codes[codes > 0]] = offer.holder
        return rows
