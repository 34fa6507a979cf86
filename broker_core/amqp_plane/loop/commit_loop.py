"""The commit loop: the order of lock, append, sync and reply.

The event loop serves every socket that is ready. Links hand in messages (`enqueue`), outcomes (`settle`), actions (`in_commit`),
and their capacity for more messages (`has_capacity`). Then one commit carries out all of them:

1. Without the broker's lock, the messages become columns, one batch for each queue.
2. Under the lock, in one turn, commands append to the log:
   - outcomes of limited queues, since they make capacity
   - messages, one Enqueue for each queue
   - the other outcomes, one Settle or Release for each link and outcome
   - actions, such as attaches and the ends of links
   - acquisitions for the links that wait
   - *immediate* messages, because the links must take waiting messages first
3. Each answer (a disposition, a transfer, an attach) is an *effect*. It waits with its log position, and overtakes no other.
4. The log is written and synced, by the loop itself if the commit is small and the disk is fast, else by the journal's thread.
5. Durable effects write frames into their protocol machines, and each transport sends its frames. For a small commit, the
   frames are encoded while the disk syncs.

A commit sorts by queue and link. It is in the log as a whole or not at all, and it contains all earlier requests of its
sessions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ... import errors
from ...amqp.deliveries import Delivery
from ...engine import commands as c
from ...engine.model.dispositions import DeliveryEnd
from ...service.broker import BrokerService
from ...service.turn import Turn
from .. import queue_reads
from . import exchanges, gate
from .acquisitions import Acquisitions
from .batch import LARGE_COMMIT, Action, CommitBatch, Dispositions, Messages
from .confirmations import EnqueueResult, Refused, confirm, kept_out
from .effects import Effect, EffectQueue, call
from .gate import Gate
from .offers import ImmediateMessages
from .parties import MessageSender, Parts, ReceiverLink
from .requests import Immediate, Posting, Retirement, Route, TransactionWork, Whole, node_of
from .syncs import Deadline, Syncs
from .transport import Transport

log = logging.getLogger("penstock.amqp")

LINGER_S = 0.001  # delayed outcomes are carried out after the next effects, or after this time


class CommitLoop:
    """Used in the loop's thread, except for `_on_arrival` and `_on_durable`.

    `has_run` is called after each turn of the broker's lock, which may have changed capacities.
    """

    def __init__(self, broker: BrokerService, loop: asyncio.AbstractEventLoop, has_run: Callable[[], None]) -> None:
        self._broker = broker
        self._loop = loop
        self._has_run = has_run
        self._gate = Gate(lambda: loop.call_soon(self._gate.happened, gate.RUN), self._run)
        self._batch = CommitBatch(broker, partial(self._gate.happened, gate.HOLD_UP))
        self._effects = EffectQueue()
        self._syncs = Syncs(broker.journal, loop)
        self._lingering = Deadline(loop, LINGER_S, self._catch_up)
        self.acquisitions = Acquisitions(broker, loop, self._gate, self._effects)
        self.want = self._gate.want
        self.has_capacity = self.acquisitions.has_capacity
        self.join, self.leave = self.acquisitions.join, self.acquisitions.leave
        self.when_durable = self._effects.when_durable
        self._immediate: list[ImmediateMessages] = []
        self._refused: dict[tuple[str, type[Exception]], tuple[Exception, int]] = {}  # by links: not counted yet
        self._to_send: dict[Transport, None] = {}
        # Other threads also write these attributes.
        self._news: dict[str, None] = {}  # queues in which messages became available, in order
        self._in_turn = False  # this thread has the broker's lock: the news is its own
        self._is_woken = self._is_notified = False  # a call of this loop is under way, for news; for the disk
        broker.arrivals.add(self._on_arrival)
        broker.journal.add_listener(self._on_durable)

    def close(self) -> None:
        self._broker.arrivals.remove(self._on_arrival)
        self.acquisitions.evaluation.close()

    @property
    def busy(self) -> bool:
        """False if only messages wait, for capacity of the journal."""
        wanted = self._gate.state in (gate.SCHEDULED, gate.READING_WANTED)
        return bool(wanted or not self._effects.idle or self._batch.has_delayed or self._news or self._is_woken)

    # --- requests of links

    def enqueue(self, route: Route, sender: MessageSender, deliveries: list[Delivery]) -> None:
        self._batch.add_messages(route, sender, deliveries)
        self.want()

    def settle(self, link: ReceiverLink, disposition: DeliveryEnd | Retirement, deliveries: list[Delivery]) -> None:
        if self._batch.add_outcome(link, disposition, deliveries):
            self.want()
        else:
            self._lingering.set()

    def in_commit(self, action: Action) -> None:
        """Carry out `action` under the lock in the next commit, after the outcomes and before acquisitions."""
        self._batch.actions.append(action)
        self.want()

    def count_refused(self, node: str, error: Exception, messages: int = 1) -> None:
        """Count messages that a link itself refuses. The next commit counts them together."""
        if not self._refused:
            self.in_commit(self._count_by_links)
        kind = node, type(error)
        first, count = self._refused.get(kind, (error, 0))
        self._refused[kind] = first, count + messages

    def _count_by_links(self, turn: Turn) -> None:
        refused, self._refused = self._refused, {}
        for (node, _), (error, messages) in refused.items():
            turn.execute(c.CountRefused(node, error, messages))

    def behind_all(self, turn: Turn, effect: Effect) -> None:
        """Run `effect` after all effects so far, when the requests of `turn` are durable."""
        self._effects.behind_all(turn.end, effect)

    def after_all(self, effect: Effect) -> None:
        """Run `effect` after the effects of all requests so far."""
        self.in_commit(lambda turn: self.behind_all(turn, effect))

    def send_soon(self, transport: Transport) -> None:
        """Send a transport's output at the end of the commit."""
        self._to_send[transport] = None
        self.want()

    def forget(self, transport: Transport) -> None:
        self._to_send.pop(transport, None)

    # --- when a commit runs

    def reading(self) -> None:
        """Note that the only ready socket is being read, until `read`."""
        self._gate.happened(gate.READ)

    def read(self) -> None:
        """Run the commit that the socket requires, without another round of the event loop."""
        try:
            self._gate.happened(gate.READ_OVER)
        except Exception as error:  # the socket did not cause it
            self._loop.call_exception_handler({"message": "a commit failed", "exception": error})

    # --- other threads

    def _on_arrival(self, queue: str) -> None:
        """Called under the broker's lock, by any thread."""
        self._news[queue] = None
        if not self._in_turn and not self._is_woken:
            self._is_woken = True
            call(self._loop, self._wake)

    def _on_durable(self, durable: int) -> None:
        """Called by the thread that has written more of the log."""
        if not self._is_notified and (self._effects or self._gate.waits):
            self._is_notified = True
            call(self._loop, partial(self._advance, news=True))

    def _wake(self) -> None:
        self._is_woken = False
        self.want()

    # --- a commit

    def _run(self) -> None:
        """Run a commit. A small one waits until the previous one is durable: no answer could leave earlier."""
        batch, effects, acquisitions = self._batch, self._effects, self.acquisitions
        if effects and batch.size < LARGE_COMMIT and effects.end > self._broker.journal.durable:
            self._gate.happened(gate.HOLD_UP)
            self._watch_outcomes()
            self._send()
            return
        handled, acquisitions.handled = batch.size, 0
        batch.size = 0
        messages = batch.take_messages()
        outcomes: Dispositions = {}
        actions: list[Action] = []
        if not batch.has_messages:  # otherwise the other requests may have come after the waiting messages
            batch.let_go_on()
            outcomes, actions = batch.take_rest(messages)
        if messages or outcomes or actions or acquisitions or self._news or self._immediate:
            self._immediate += self._immediate_of(messages)
            self._carry_out(messages, outcomes, actions)
        self._watch_outcomes()
        self._advance(handled + acquisitions.handled)

    def _immediate_of(self, messages: Messages) -> Iterator[ImmediateMessages]:
        """Yield the *immediate* messages. The selectors of waiting links are evaluated before the lock is taken."""
        for route, parts, arrived in messages:
            if isinstance(route, Immediate) and arrived.rows:
                waiting = ImmediateMessages(route.queue, parts, arrived)
                waiting.evaluate(self.acquisitions.selectors(route.queue))
                yield waiting

    def _watch_outcomes(self) -> None:
        if self._batch.has_delayed:
            self._lingering.set()
        else:
            self._lingering.cancel()

    def _catch_up(self) -> None:
        """Carry out the delayed outcomes, unless earlier requests wait."""
        if self._batch.is_wanted:
            return
        if outcomes := self._batch.take_delayed():
            self._lingering.cancel()
            with self._broker.turn(hurry=False) as turn:
                for (link, disposition), deliveries in outcomes.items():
                    link.settle(turn, disposition, deliveries)
            self._has_run()
            self._syncs.rest()

    def _carry_out(self, messages: Messages, outcomes: Dispositions, actions: list[Action]) -> None:
        batch = self._batch
        with self._broker.turn(hurry=False) as turn:
            self._in_turn = True
            try:
                if messages:
                    self._make_capacity(turn, outcomes)
                # A client that asks for messages may expect the messages that its delayed outcomes free.
                if self.acquisitions and not batch.has_messages:  # otherwise they may have come after the waiting messages
                    batch.bring(outcomes, lambda link: queue_reads.is_freed_by_outcomes(turn, link.queue))
                for route, parts, arrived in messages:
                    _count_refused(turn, route, arrived)
                    if isinstance(route, Immediate) and arrived.rows:
                        continue  # their turn comes after the acquisitions
                    result = self._enqueue(turn, route, arrived)
                    if isinstance(route, Posting):
                        _count(route.transaction, parts, result)
                    if result.error is not None:
                        _count_refused(turn, route, arrived, result.error)
                    self._confirm(parts, *result)
                for (link, disposition), deliveries in outcomes.items():
                    link.settle(turn, disposition, deliveries)
                for action in actions:
                    self._act(turn, action)
                self._acquire(turn)
            finally:
                self._in_turn = False
        self._has_run()

    def _make_capacity(self, turn: Turn, outcomes: Dispositions) -> None:
        """Carry out outcomes of limited queues first: new messages may need the capacity."""
        self._batch.bring(outcomes, lambda link: queue_reads.is_limited(turn, link.queue))
        for link, disposition in [key for key in outcomes if queue_reads.is_limited(turn, key[0].queue)]:
            link.settle(turn, disposition, outcomes.pop((link, disposition)))

    def _acquire(self, turn: Turn) -> None:
        news, self._news = self._news, {}
        for queue in news:
            self.acquisitions.news(turn, queue)
        self.acquisitions.carry_out(turn)
        waiting, self._immediate = self._immediate, []
        for batch in waiting:
            if self.acquisitions.exhaust(turn, batch.queue):
                self._confirm(batch.parts, *self.acquisitions.deliver(turn, batch))
            else:
                self._immediate.append(batch)
        if self._news:  # an acquisition made messages available elsewhere
            self.want()

    @staticmethod
    def _act(turn: Turn, action: Action) -> None:
        try:
            action(turn)
        except errors.StorageError:
            raise
        except Exception:  # a bug that concerns one link
            log.exception("an action of a commit failed; its connection may hang until it times out")

    def _enqueue(self, turn: Turn, route: Route, arrived: Any) -> EnqueueResult:
        if isinstance(arrived, exchanges.Exchanged):
            return exchanges.carry_out(turn, arrived)
        if not arrived.rows:  # no message is valid
            return EnqueueResult(arrived.refused, None, turn.end)
        queue, refused = route.route if isinstance(route, (Posting, Whole)) else route, arrived.refused
        assert isinstance(queue, str)
        if isinstance(route, Posting):  # its answer waits for no sync: a transaction may be larger than any credit
            _, error, end = turn.post(route.transaction.number, queue, arrived)
        else:
            placed, error, end = turn.enqueue(queue, arrived, whole=isinstance(route, Whole))
            if placed is not None and placed.refused:
                refused = kept_out(self._broker.nodes, queue, arrived, placed.refused)
        return EnqueueResult(refused, error, end)

    def _confirm(self, parts: Parts, refused: Refused, error: errors.PenstockError | None, end: int) -> None:
        self.when_durable(end, lambda: confirm(parts, refused, error))

    # --- answers

    def _advance(self, handled: int = LARGE_COMMIT, *, news: bool = False) -> None:
        """Run all effects that the disk allows, and send the result.

        `handled`: the deliveries of the last commit. `news`: more of the log is durable.
        """
        journal, effects = self._broker.journal, self._effects
        end, before = effects.end, journal.durable
        self._is_notified = True  # the loop's own writing is not news
        written = self._syncs.begin(end, handled, lambda: effects.happen(end))
        self._is_notified = False
        if written and journal.durable < end:  # the journal failed, so none of the prepared answers may leave
            for transport in self._to_send:
                transport.abort()
            return
        happened = effects.happen(journal.durable) or written  # read again: calls of `_on_durable` in between were ignored
        waited = self._gate.waits
        if news or journal.durable > before:
            self._gate.happened(gate.DISK)
        self._send()
        if happened and not effects and not waited:
            self._catch_up()
        self._syncs.rest()

    def _send(self) -> None:
        transports, self._to_send = self._to_send, {}
        for transport in transports:
            transport.send()


def _count(transaction: TransactionWork, parts: Parts, result: EnqueueResult) -> None:
    """Count messages of a transaction, or fail it, immediately: its discharge may come next in this commit."""
    if result.error is not None or result.refused:
        transaction.fail(result.error or result.refused[0][1])
    else:
        transaction.done += sum(len(deliveries) for _, deliveries in parts)


def _count_refused(turn: Turn, route: Route, arrived: Any, error: errors.PenstockError | None = None) -> None:
    """Count the invalid messages, or with an error all others."""
    messages = arrived.arrived if isinstance(arrived, exchanges.Exchanged) else arrived
    if error is not None:
        turn.execute(c.CountRefused(node_of(route), error, messages.rows))
    elif messages.refused:
        turn.execute(c.CountRefused(node_of(route), messages.refused[0][1], len(messages.refused)))
