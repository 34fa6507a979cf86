"""Acquisitions: which links look for messages in a commit, and which messages each acquires.

A link takes one quantum at a time, so that much credit does not hold up others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from functools import partial

from ... import errors
from ...amqp import Condition
from ...engine.columns.rowset import RowSet
from ...reading.slices import BlockSlice
from ...selectors import Selector
from ...service.broker import BrokerService
from ...service.turn import Turn
from .. import queue_reads
from .confirmations import EnqueueResult, NoRoute, kept_out
from .effects import EffectQueue
from .evaluation import SelectorEvaluation
from .gate import Gate
from .interest import AWAITS, INTERESTED, NOTIFIED, RESTS, Interest
from .offers import QUANTUM_MESSAGES, ImmediateMessages, Offers
from .parties import ReceiverLink

log = logging.getLogger("penstock.amqp")

QUANTUM_BYTES = 1 << 20
LOOKS = 1000  # of one queue's links in one commit: about 50 ms under the broker's lock


class Acquisitions:
    """Links that acquire or browse, by queue. Used in the loop's thread; `carry_out` under the broker's lock."""

    def __init__(self, broker: BrokerService, loop: asyncio.AbstractEventLoop, gate: Gate, effects: EffectQueue) -> None:
        self._gate, self._effects, self._nodes = gate, effects, broker.nodes
        self.evaluation = SelectorEvaluation(broker.matching, loop, self._evaluated)
        self._queues: dict[str, Interest[ReceiverLink]] = {}
        self._looking: dict[str, bool] = {}  # queues with links that are to look; False: the last commit was too short for all
        self._browsers = 0
        self.handled = 0  # deliveries since the commit began

    def __bool__(self) -> bool:
        return bool(self._looking)

    # --- links

    def join(self, turn: Turn, link: ReceiverLink) -> None:
        if not link.acquires:
            self._browsers -= 1  # the engine does not know browsers
            link.holder = self._browsers
        interest = self._queues.setdefault(link.queue, Interest())
        interest.join(link.holder, link)
        interest.only(queue_reads.active_holder(turn, link.queue))
        link.interest = interest

    def leave(self, link: ReceiverLink) -> None:
        if link.interest is not None:
            link.interest.leave(link.holder)
            if not link.interest.members and self._queues.get(link.queue) is link.interest:
                del self._queues[link.queue]
            self._look_soon(link.queue)  # others may have been held back by it
            link.interest = None

    def has_capacity(self, link: ReceiverLink, *, anyway: bool = False) -> None:
        """Let a link look. `anyway`: also if it waits for news."""
        if (link.standing == RESTS or (anyway and link.standing == INTERESTED)) and link.capacity() > 0:
            assert link.interest is not None  # otherwise it has no capacity
            link.interest.wants(link, anyway=anyway)
            if link.standing == NOTIFIED:
                self._look_soon(link.queue)

    def _evaluated(self, links: Iterable[ReceiverLink], failure: errors.PenstockError | None) -> None:
        for link in links:
            interest = link.interest
            if failure is not None and not link.ended:
                link.fail(failure)
            elif interest is None or link.standing != AWAITS:
                self.has_capacity(link)
            else:
                if link.capacity() > 0:
                    interest.resumes(link)
                else:
                    interest.rests(link)
                self._look_soon(link.queue)
        self._gate.want()  # *immediate* messages may wait for this

    def _look_soon(self, queue: str) -> None:
        self._looking.setdefault(queue, True)
        self._gate.want()

    def consumers(self, queue: str, holders: Iterable[int]) -> Iterator[tuple[ReceiverLink, tuple[int, ...]]]:
        """Yield links by their numbers, each with the numbers of the links with precedence over it."""
        interest = self._queues.get(queue)
        if interest is not None:
            links = (interest.members[holder] for holder in holders if holder in interest.members)
            yield from ((link, interest.ahead_of(link)) for link in links)

    # --- a commit

    def news(self, turn: Turn, queue: str) -> None:
        """Note that messages of a queue became available, or that the queue is deleted."""
        interest = self._queues.get(queue)
        if interest is not None:
            interest.only(queue_reads.active_holder(turn, queue))
            interest.news()
            self._looking.setdefault(queue, True)

    def carry_out(self, turn: Turn) -> None:
        looking, self._looking = self._looking, {}
        for queue, is_new in looking.items():
            interest = self._queues.get(queue)
            if interest is None:
                continue
            if is_new:
                interest.begin_round()
            complete = self._look(turn, queue, interest)
            if not complete or interest.busy:
                self._looking[queue] = complete
        if self._looking:
            self._gate.want()

    def exhaust(self, turn: Turn, queue: str) -> bool:
        """Let the links take all that they can. Returns False if one awaits the evaluation of its selector."""
        interest = self._queues.get(queue)
        while interest is not None:
            before = self.handled
            interest.begin_round()
            complete = self._look(turn, queue, interest)
            if complete and self.handled == before:
                return not interest.is_awaiting
        return True

    def selectors(self, queue: str) -> set[Selector]:
        interest = self._queues.get(queue)
        levels = () if interest is None else interest.waiting()
        return {link.selector for links in levels for link in links if link.selector is not None}

    def deliver(self, turn: Turn, batch: ImmediateMessages) -> EnqueueResult:
        queue, arrived = batch.queue, batch.arrived
        offers = Offers(arrived.rows, batch.matches, grouped=queue_reads.is_grouped(turn, queue))
        interest = self._queues.get(queue)
        for links in () if interest is None else interest.waiting():
            offers.add(links)
        delivered, error, end = turn.enqueue_immediate(queue, arrived, offers.offers, offers.budgets)
        if error is not None:  # the queue was deleted
            return EnqueueResult(arrived.refused, error, end)
        for holder, rows in delivered.taken:
            link = offers.links[holder]
            self._deliver(link, rows, turn.slices(queue, rows), turn.end)
            assert link.interest is not None
            link.interest.waits(link)
        refused = kept_out(self._nodes, queue, arrived, delivered.refused)
        if delivered.undelivered:
            no_taker = NoRoute(Condition.NOT_FOUND, f"no consumer of {queue!r:.80} could take it immediately")
            numbers = arrived.numbers
            refused += [(numbers[row], no_taker) for row in delivered.undelivered]
        return EnqueueResult(refused, None, end)

    def _deliver(self, link: ReceiverLink, rows: RowSet, slices: list[BlockSlice], end: int) -> None:
        acquisition = link.taken(rows)
        self.handled += rows.count
        self._effects.when_durable(end, lambda: link.deliver(acquisition, slices))

    def _look(self, turn: Turn, queue: str, interest: Interest[ReceiverLink]) -> bool:
        """Let the queue's links look. Returns False if the commit is too short for all of them."""
        for _ in range(LOOKS):
            available = _has_messages(turn, queue)
            link = interest.next(available)
            if link is None:
                return True
            capacity = link.capacity()
            if capacity <= 0:
                interest.rests(link)
            elif available or link.looks_anyway:
                try:
                    self._acquire(turn, link, interest, capacity)
                except errors.StorageError:
                    raise
                except Exception:  # a bug that concerns one link
                    log.exception("%s could not acquire; its connection may hang until it times out", link)
                    interest.rests(link)
            else:
                interest.misses(link)
        return False

    def _acquire(self, turn: Turn, link: ReceiverLink, interest: Interest[ReceiverLink], capacity: int) -> None:
        behind = interest.ahead_of(link)
        try:
            rows, end = link.take(turn, min(capacity, QUANTUM_MESSAGES), QUANTUM_BYTES, behind)
            slices = turn.slices(link.queue, rows) if rows else []
        except errors.StorageError:
            raise
        except errors.PenstockError as error:
            interest.rests(link)
            self._effects.when_durable(turn.end, partial(link.fail, error))
            return
        if not rows and link.undecided is not None:
            interest.awaits(link)
            self.evaluation.look_further(link, link.undecided)
            return
        if not rows and behind and not queue_reads.has_passed_all(turn, link.queue, link.holder):
            interest.stands_back(link)
            return
        if not rows:
            interest.waits(link)
            if link.link.drain:
                self._effects.when_durable(end, link.found_nothing)
            return
        self._deliver(link, rows, slices, end)
        if rows.count >= capacity and link.capacity() <= 0:
            interest.rests(link)
        elif not link.looks_anyway and not queue_reads.available(turn, link.queue):
            interest.waits(link)  # no message is left: to look again would only delay the disk
        else:
            interest.stays(link)


def _has_messages(turn: Turn, queue: str) -> bool:
    try:
        return queue_reads.available(turn, queue) > 0
    except errors.NotFound:
        return True  # so that all links look, and find that the queue is deleted
