"""Passes of the loop: what all sockets brought becomes few commands, one journal write, and effects that wait for the disk.

The links hand in what came (`enqueue`, `settle`, `in_pass`, `has_capacity`): that is the *batch*. When the loop has served
every socket that was ready, a pass carries it all out in one turn of the broker's lock: one Enqueue per queue, one Settle or
Release per link and outcome, then acquisitions for the links that wait. Each command's *effect* (dispositions, transfers, an
answer to an attach) stands with its log position in one line, and leaves when the journal's writer says that the log is durable
up to there. For a small pass the frames are encoded while the disk syncs. The *gate* says when a pass runs.

What a session says is durable in the order in which it was said, though a pass sorts it by queue and link: a pass is in the log
as a whole or not at all, and carries all that its sessions have said before. So messages for which the journal has no capacity
keep back whatever came with them or behind them, and an outcome that nobody waits for goes with what its session says next.

`acquiring` says who acquires what. *Immediate* messages come last: what links can still take when they have taken all that waits
decides which of these messages are stored (see `immediate`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ... import errors
from ...amqp.deliveries import Delivery
from ...engine.model.dispositions import Disposition
from ...messages.encoding.arriving import ArrivedMessages
from ...service.broker import BrokerService
from ...service.turn import Turn
from . import exchanges, gate
from .acquisitions import Acquisitions
from .batch import LARGE_PASS, Action, CommitBatch, Dispositions, Messages
from .confirmations import EnqueueResult, Refused, confirm, kept_out
from .effects import Effect, EffectQueue
from .gate import Gate
from .offers import ImmediateMessages
from .parties import MessageReceiver, MessageSender, Parts
from .requests import ExchangeRoute, Immediate, Posting, Retirement, Route
from .syncs import Deadline, Syncs
from .transport import Transport

log = logging.getLogger("penstock.amqp")

LINGER_S = 0.001  # outcomes that nobody waits for are carried out when everybody has been told, or after so long


class CommitLoop:
    """Everything between the links and the broker. Used in the loop's thread, but for what `_on_…` says."""

    def __init__(self, broker: BrokerService, loop: asyncio.AbstractEventLoop, has_run: Callable[[], None]) -> None:
        """`has_run` is called behind each turn of the broker's lock, when its messages and outcomes have changed capacities."""
        self._broker = broker
        self._loop = loop
        self._has_run = has_run
        self._gate = Gate(lambda: loop.call_soon(self._called), self._run)
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
        self._to_send: dict[Transport, None] = {}
        # Written by other threads as well:
        self._news: dict[str, None] = {}  # queues in which something became available, in that order
        self._in_turn = False  # this thread has the broker's lock: the news is its own
        self._woken = self._told = False  # a call is under way because of news; because of the disk
        broker.add_arrival_listener(self._on_arrival)
        broker.journal.add_listener(self._on_durable)

    def close(self) -> None:
        """Hear no more news, and evaluate nothing any more."""
        self._broker.remove_arrival_listener(self._on_arrival)
        self.acquisitions.evaluation.close()

    @property
    def busy(self) -> bool:
        """Say whether anything is still to be done without anybody's help, but for what waits for capacity of the journal."""
        wanted = self._gate.state in (gate.SCHEDULED, gate.AT_ONCE)
        return bool(wanted or not self._effects.idle or self._batch.stands_back or self._news or self._woken)

    # --- what the links hand in

    def enqueue(self, route: Route, sender: MessageSender, deliveries: list[Delivery]) -> None:
        """Carry out complete deliveries in the next commit. `sender.confirmed` or `sender.refused` reports the result."""
        self._batch.add_messages(route, sender, deliveries)
        self.want()

    def settle(self, link: MessageReceiver, disposition: Disposition | Retirement, deliveries: list[Delivery]) -> None:
        """Carry out the receiver's outcome for deliveries. `link.settled` is told when it holds, if the receiver waits for that;
        if nobody does, it may share a later pass."""
        if self._batch.add_outcome(link, disposition, deliveries):
            self.want()
        else:
            self._lingering.set()

    def in_pass(self, action: Action) -> None:
        """Carry out `action` under the lock in the next pass, after the outcomes and before anybody acquires."""
        self._batch.add_action(action)
        self.want()

    def behind_all(self, turn: Turn, effect: Effect) -> None:
        """Let `effect` happen behind every effect so far and all that `turn` has executed: it must not overtake anything."""
        self._effects.behind_all(turn.end, effect)

    def after_all(self, effect: Effect) -> None:
        """Let `effect` happen behind all that has been handed in."""
        self.in_pass(lambda turn: self.behind_all(turn, effect))

    def send_soon(self, transport: Transport) -> None:
        """Send what the protocol machine of a transport has to say, at the end of the pass."""
        self._to_send[transport] = None
        self.want()

    def forget(self, transport: Transport) -> None:
        """Send nothing more: the connection has gone."""
        self._to_send.pop(transport, None)

    # --- when a pass runs

    def reading(self) -> None:
        """Note that the only socket that was ready is read from here on, until `read`."""
        self._gate.happened(gate.READ)

    def read(self) -> None:
        """Run the pass that the socket made necessary: nothing else comes into it, so another round of the loop is not needed."""
        try:
            self._gate.happened(gate.READ_OVER)
        except Exception as error:  # as for what the loop calls itself: it is not the socket's fault
            self._loop.call_exception_handler({"message": "a pass failed", "exception": error})

    def _called(self) -> None:
        self._gate.happened(gate.RUN)

    # --- other threads

    def _on_arrival(self, queue: str) -> None:
        """Note that something became available. Called under the broker's lock by whoever made it so."""
        self._news[queue] = None
        if not self._in_turn and not self._woken:
            self._woken = True
            self._call(self._wake)

    def _on_durable(self, durable: int) -> None:
        """Note that more of the log is durable. Called by the thread that has written it."""
        if not self._told and (self._effects or self._gate.waits):
            self._told = True
            self._call(partial(self._advance, news=True))

    def _call(self, function: Effect) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:  # the loop is closed: the plane has stopped
            log.debug("news after the loop has closed")

    def _wake(self) -> None:
        self._woken = False
        self.want()

    # --- a pass

    def _run(self) -> None:
        """Run a pass, unless it is small and the disk is still at work on the one before: nothing could be told any earlier, and
        what comes meanwhile makes one larger pass of it. A client that sends frame by frame would else make a pass of each.
        """
        batch, effects, acquisitions = self._batch, self._effects, self.acquisitions
        if effects and batch.size < LARGE_PASS and effects.end > self._broker.journal.durable:
            self._gate.happened(gate.HOLD_UP)
            self._watch_outcomes()
            self._send()
            return
        handled, acquisitions.handled = batch.size, 0
        batch.size = 0
        messages = batch.take_messages()
        outcomes: Dispositions = {}
        actions: list[Action] = []
        if not batch.has_messages:  # else the rest may have been said behind what waits there
            batch.let_go_on()
            outcomes, actions = batch.take_rest(messages)
        if messages or outcomes or actions or acquisitions or self._news or self._immediate:
            self._immediate += self._immediate_of(messages)
            self._carry_out(messages, outcomes, actions)
        self._watch_outcomes()
        self._advance(handled + acquisitions.handled)

    def _immediate_of(self, messages: Messages) -> Iterator[ImmediateMessages]:
        """Yield the *immediate* messages, with the selectors evaluated that links wait with; without the broker's lock."""
        for destination, parts, found in messages:
            if isinstance(destination, Immediate) and found.rows:
                waiting = ImmediateMessages(destination.queue, parts, found)
                waiting.evaluate(self.acquisitions.selectors(destination.queue))
                yield waiting

    def _watch_outcomes(self) -> None:
        """See to it that outcomes that nobody waits for do not wait for ever."""
        if self._batch.stands_back:
            self._lingering.set()
        else:
            self._lingering.cancel()

    def _catch_up(self) -> None:
        """Carry out the outcomes that nobody waits for, unless something is to be carried out that was said before them."""
        if self._batch.is_wanted:
            return
        if outcomes := self._batch.take_standing_back():
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
                # Who asks for messages may have said these just before, and asks for what they free, too.
                if self.acquisitions and not batch.has_messages:  # else this may have been said behind what waits there
                    batch.bring(outcomes, turn.view.is_freed_by_outcomes)
                for destination, parts, found in messages:
                    if isinstance(destination, Posting):
                        self._confirm(parts, *self._post(turn, destination, parts, found))
                    elif isinstance(destination, ExchangeRoute):
                        self._confirm(parts, *exchanges.carry_out(turn, found))
                    elif isinstance(destination, str) or not found.rows:
                        self._confirm(parts, *self._enqueue(turn, destination, found))
                for (link, disposition), deliveries in outcomes.items():
                    link.settle(turn, disposition, deliveries)
                for action in actions:
                    self._act(turn, action)
                self._acquire(turn)
            finally:
                self._in_turn = False
        self._has_run()

    def _make_capacity(self, turn: Turn, outcomes: Dispositions) -> None:
        """Carry out outcomes of queues that are limited, and take them out of `outcomes`: what comes may need the capacity that
        they make, and who sends it may have said them just before."""
        self._batch.bring(outcomes, turn.view.is_limited)
        for link, disposition in [key for key in outcomes if turn.view.is_limited(key[0].queue)]:
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
        if self._news:  # an acquisition made something AVAILABLE elsewhere
            self.want()

    @staticmethod
    def _act(turn: Turn, action: Action) -> None:
        try:
            action(turn)
        except errors.StorageError:
            raise
        except Exception:  # a mistake of ours: it concerns one link, and everybody else is served
            log.exception("something of a pass failed; the connection it belongs to may hang until it times out")

    def _enqueue(self, turn: Turn, to: str | Immediate, arrived: ArrivedMessages) -> EnqueueResult:
        if isinstance(to, Immediate) or not arrived.rows:  # no message is among them
            return EnqueueResult(arrived.refused, None, turn.end)
        placed, error, end = turn.enqueue(to, arrived)
        refused = arrived.refused
        if placed is not None and placed.refused:
            refused = kept_out(self._broker.nodes, to, arrived, placed.refused)
        return EnqueueResult(refused, error, end)

    @staticmethod
    def _post(turn: Turn, posting: Posting, parts: Parts, found: Any) -> EnqueueResult:
        """Stage messages of a transaction. Their senders' credit is renewed now: a transaction may be larger than any credit."""
        transaction = posting.transaction
        if isinstance(posting.route, ExchangeRoute):
            confirmation = exchanges.carry_out(turn, found)
        elif found.rows:
            _, error, end = turn.post(transaction.number, posting.route, found)
            confirmation = EnqueueResult(found.refused, error, end)
        else:
            confirmation = EnqueueResult(found.refused, None, turn.end)
        refused, error, _ = confirmation
        if error is not None or refused:
            transaction.fail(refused[0][1] if error is None else error)  # now: its discharge may stand behind this
        else:
            transaction.done += sum(len(deliveries) for _, deliveries in parts)
        return confirmation

    def _confirm(self, parts: Parts, refused: Refused, error: errors.PenstockError | None, end: int) -> None:
        self.when_durable(end, lambda: confirm(parts, refused, error))

    # --- what leaves

    def _advance(self, handled: int = LARGE_PASS, *, news: bool = False) -> None:
        """Let all happen that the disk allows, and send what comes of it.

        `handled`: the deliveries of a pass just done. `news`: more of the log is durable; what becomes so meanwhile is news, too.
        Without any, a pass that waits for the disk goes on waiting.
        """
        journal, effects = self._broker.journal, self._effects
        end, before = effects.end, journal.durable
        self._told = True  # what the loop writes itself is no news
        written = self._syncs.begin(end, handled, lambda: effects.happen(end))
        self._told = False
        if written and journal.durable < end:
            self._fall_silent()
            return
        happened = effects.happen(journal.durable) or written  # now: what was told in between was told in vain
        waited = self._gate.waits
        if news or journal.durable > before:
            self._gate.happened(gate.DISK)
        self._send()
        if happened and not effects and not waited:
            self._catch_up()
        self._syncs.rest()

    def _fall_silent(self) -> None:
        """Cut off everybody: the journal failed when all had been made ready to be told, and nobody may hear of it."""
        for transport in self._to_send:
            transport.abort()

    def _send(self) -> None:
        transports, self._to_send = self._to_send, {}
        for transport in transports:
            transport.send()
