"""A link that acquires messages, and holds them until the receiver settles them or the link ends.

At its end, messages that have not left (`_unsent`, `_backlog`) go back without an attempt.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from ... import errors
from ...amqp import Condition, Modified, Released, Sender, TransactionalState
from ...amqp.deliveries import Delivery
from ...amqp.performatives import SND_UNSETTLED, TERMINAL, Attach, DeliveryState, Received, in_short
from ...amqp.resume import offset_of
from ...amqp.types import Value
from ...engine import commands as c
from ...engine.columns.rowset import RowSet
from ...engine.columns.states import Cause
from ...engine.model.dispositions import ROLLED_BACK, DeliveryEnd
from ...reading.slices import BlockSlice
from ...security.rights import Right
from ...service.turn import Turn
from .. import queue_reads
from ..conditions import Refusal, as_error
from ..connections.peer import Peer
from ..loop.requests import Retirement
from ..transactions.acquisition import Acquisition
from ..transactions.outcomes import retire, still_open
from ..transactions.registry import ConnectionTransactions
from .dispositions import ACCEPTED, NOT_HERE, NUMBER, RETURNED, disposition_of, left_behind, rows_of, rows_of_tags, tags_of
from .endpoint import Resumable, Unsettled
from .outgoing_link import OutgoingLink
from .resumptions import START, ReceiverProgress, Resumptions
from .termini import SourceTerminus

log = logging.getLogger("penstock.amqp")


class ConsumerLink(OutgoingLink, Resumable):
    """`holder` is the number of the link in the engine."""

    right = Right.RECEIVE
    successor: ConsumerLink | None

    def __init__(
        self,
        peer: Peer,
        transactions: ConnectionTransactions,
        link: Sender,
        terminus: SourceTerminus,
        default: DeliveryState | None,
        *,
        presettled: bool,
    ) -> None:
        super().__init__(peer, link, terminus, presettled=presettled)
        self.transactions = transactions
        self.default = disposition_of(default, None, peer.context.wall_ms())
        self._locks_ended = 0  # in the queue, at the last check
        self.acquisition = Acquisition(self)
        self.resumptions = Resumptions()  # deliveries of the former link
        self.progress = ReceiverProgress(reports=terminus.options.reports)
        self._lapsed: dict[int, set[bytes]] = {}  # by acquisition: messages whose lock has ended since

    @property
    def current(self) -> ConsumerLink:
        return self if self.successor is None else self.successor.current

    def begin(self, turn: Turn) -> None:
        self.holder, _ = turn.execute(self.terminus.subscribe())
        self.priority = self.terminus.options.priority
        self._locks_ended = queue_reads.unlocked(turn, self.queue)
        super().begin(turn)

    # --- parts that a dialect replaces

    #: The state of a delivery whose lock has ended.
    _lost_state: DeliveryState = Modified(delivery_failed=True)

    def _end_of(self, state: DeliveryState | None, settled: bool) -> DeliveryEnd | None:
        """Return the end of deliveries that the receiver gives this state. Raises InvalidRequest."""
        return disposition_of(state, (self.default or RETURNED) if settled else None, self.context.wall_ms())

    def _answer_to(self, state: DeliveryState | None) -> Any:
        return in_short(state) if isinstance(state, TERMINAL) else Released()

    def answer_in(self, state: TransactionalState) -> Any:
        """Return the state that answers an outcome when its transaction is committed."""
        return state.outcome

    def retired(self, turn: Turn, deliveries: list[Delivery], error: errors.PenstockError | None) -> None:
        """Note that outcomes are carried out in an open transaction, or why not. Their answer follows the discharge (4.4.2)."""

    def refuse_outcomes(self, deliveries: list[Delivery], error: errors.PenstockError, *, in_transaction: bool = False) -> None:
        """End the link, since its receiver gave deliveries an outcome that cannot be carried out: AMQP refuses no outcome."""
        if isinstance(error, errors.ResourceLimit):
            self.fail(error)
        else:
            self.peer.detach(self, as_error(error))

    # --- acquiring

    def take(self, turn: Turn, messages: int, max_bytes: int, behind: tuple[int, ...] = ()) -> tuple[RowSet, int]:
        """Acquire the next messages. Resumed deliveries come first."""
        self._look_at_locks(turn)
        while self.resumptions.waiting:
            resumed = self.resumptions.take(messages)
            rows = queue_reads.held(turn, self.queue, self.holder, rows_of_tags(list(resumed)))
            if rows:
                self.resumptions.underway |= resumed
                return rows, turn.end
        if self.incomplete:
            return RowSet(), turn.end
        taken, end = turn.execute(c.Acquire(self.queue, self.holder, messages, max_bytes, self.known_matches(), behind))
        self.undecided = taken.unevaluated
        return taken.rows, end

    def _look_at_locks(self, turn: Turn) -> None:
        """Drop messages whose lock has ended: others may hold them by now (Q14).

        Their deliveries end first, so that a message that comes again finds its tag free.
        """
        before, self._locks_ended = self._locks_ended, queue_reads.unlocked(turn, self.queue)
        if self._locks_ended == before:
            return
        open_ones = [d for d in self.link.unsettled.values() if not isinstance(d.state, TERMINAL)]
        self._end_lost(self._divided(turn, open_ones)[1])
        if self._backlog:
            self._keep_ready(self._still_held(turn, [tag for tag, _ in self._backlog]))
        for acquisition, rows in self._unsent.items():
            if lost := rows.minus(queue_reads.held(turn, self.queue, self.holder, rows)):
                self._lapsed.setdefault(acquisition, set()).update(tags_of(lost))

    def _still_held(self, turn: Turn, tags: list[bytes]) -> set[bytes]:
        numbers = set(tags_of(queue_reads.held(turn, self.queue, self.holder, rows_of_tags(tags))))
        return {tag for tag in tags if tag[:NUMBER] in numbers}

    def _divided(self, turn: Turn, deliveries: list[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        held = self._still_held(turn, [delivery.tag for delivery in deliveries])
        return [d for d in deliveries if d.tag in held], [d for d in deliveries if d.tag not in held]

    def _end_lost(self, lost: list[Delivery]) -> None:
        """End deliveries whose lock has ended, and report it to a receiver that has not settled them."""
        for delivery in lost:
            delivery.state = self._lost_state
        waiting = [delivery for delivery in lost if not delivery.settled and not delivery.remote_settled]
        self.session.lost.add(delivery.id for delivery in waiting)
        if waiting and self.may_tell:
            self.peer.log(f"{self}: {len(waiting)} deliveries were not settled before their lock ended")
        self.settled(waiting)

    @property
    def looks_anyway(self) -> bool:
        """True if it looks although no message is available: resumed deliveries are acquired already."""
        return self.link.drain or bool(self.resumptions.waiting)

    @property
    def _sends_again(self) -> bool:
        return bool(self.resumptions.waiting)

    @property
    def _is_ready(self) -> bool:
        return bool(self._backlog or self.resumptions.outcomes)

    # --- sending

    @property
    def _state(self) -> TransactionalState | None:
        return self.acquisition.state

    def _make_ready(self, acquisition: int, slices: Sequence[BlockSlice]) -> None:
        lapsed = self._lapsed.pop(acquisition, None)
        super()._make_ready(acquisition, slices)
        if lapsed is not None:
            self._keep_ready({tag for tag, _ in self._backlog if tag[:NUMBER] not in lapsed})

    def pump(self) -> None:
        self._tell_outcomes()
        super().pump()

    def _send_some(self, gone: list[bytes]) -> None:
        if self._backlog[0][0] in self.resumptions.underway:
            self._send_resumed(*self._backlog.popleft())
        else:
            super()._send_some(gone)

    def _send_resumed(self, tag: bytes, message: bytes) -> None:
        """Send the rest of a delivery that the receiver has in part."""
        position, state = self.resumptions.underway.pop(tag)
        if 0 < self.link.max_message_size < len(message):
            self._leave_to_others(tag)
            return
        self._add_underway(-1)
        rest = message[offset_of(message, position) :]
        received = None if position == START else Received(section_number=position[0], section_offset=position[1])
        delivery = self.link.send(tag, rest, settled=self._presettled, state=received, resume=True)
        transaction = self.transactions.get(state)
        if transaction is not None:  # its outcome in the transaction holds
            delivery.state = state
            transaction.waiting.setdefault(self, {})[delivery] = None
        if self._presettled:
            self._release(rows_of_tags([tag]), ACCEPTED)

    def _tell_outcomes(self) -> None:
        """Confirm outcomes that the receiver set before it came back. Both ends then forget the deliveries."""
        outcomes = self.resumptions.outcomes
        while outcomes and self._can_send:
            tag = next(iter(outcomes))
            state = outcomes.pop(tag)
            settled = self.link.snd_settle_mode != SND_UNSETTLED
            self.link.send(tag, b"", settled=settled, state=state, resume=True)

    def _have_left(self, deliveries: Sequence[Delivery]) -> None:
        if not self._presettled and self.acquisition.transaction is not None:
            self.acquisition.sent(deliveries)

    def _leave_to_others(self, tag: bytes) -> None:
        super()._leave_to_others(tag)
        self._release(rows_of_tags([tag]), NOT_HERE)

    def _settle_sent(self, tags: list[bytes]) -> None:
        if self.acquisition.transaction is not None:
            self.acquisition.sent_settled(tags)
        else:  # settled only after they have left, so that none is lost on our side
            self._release(rows_of_tags(tags), ACCEPTED)

    # --- giving back

    def give_back(self) -> None:
        self.resumptions.begin_again()
        new = [tag for tag, _ in self._backlog if tag not in self.resumptions.waiting]
        if new:
            self._release(rows_of_tags(new), RETURNED)
        self._forget_backlog()

    def return_unsent(self) -> None:
        several = list(self._unsent.values())
        self._lapsed.clear()
        for rows in several:
            self._release(rows, RETURNED)
        self._forget_unsent()
        if self._backlog:
            self.give_back()
        if several:
            self.loop.has_capacity(self)

    def _keep_ready(self, held: set[bytes]) -> None:
        ready_messages = deque(ready for ready in self._backlog if ready[0] in held)
        self._add_underway(len(ready_messages) - len(self._backlog))
        self._backlog = ready_messages
        self.peer.capacity.gained(self.session)

    def _release(self, rows: RowSet, disposition: DeliveryEnd) -> None:
        self.loop.in_commit(lambda turn: self._dispose(turn, disposition, rows))

    def _dispose(self, turn: Turn, disposition: DeliveryEnd, rows: RowSet) -> None:
        self.execute(turn, c.command_of(disposition, self.queue, self.holder, rows))

    # --- frames of the receiver

    def acquire_in(self, txn_id: Value) -> None:
        try:
            if txn_id is not None and not isinstance(txn_id, bytes):
                raise Refusal(Condition.INVALID_FIELD, f"a transaction id is binary, not {txn_id!r:.80}")
            self.acquisition.begin(None if txn_id is None else self.transactions.find(txn_id))
        except Refusal as error:
            self.peer.detach(self, as_error(error))

    def disposed(self, deliveries: list[Delivery], state: DeliveryState | None, settled: bool) -> None:
        self.progress.reach(deliveries, state)
        if isinstance(state, TransactionalState):
            retire(self, deliveries, state, settled)
            return
        try:
            disposition = self._end_of(state, settled)
        except errors.InvalidRequest as error:
            self.refuse_outcomes(_undecided(deliveries), error)
            return
        if disposition is None:
            return
        fresh = _undecided(deliveries)
        if self.acquisition.deliveries:
            fresh = self.acquisition.without_strays(fresh)
        if self.transactions:
            fresh = still_open(self, fresh, state, settled)
        its = self._answer_to(state)
        for delivery in fresh:
            delivery.state = its
        if fresh:
            self.loop.settle(self, disposition, fresh)
        if settled:
            self.gained_capacity()

    def settle(self, turn: Turn, disposition: DeliveryEnd | Retirement, deliveries: list[Delivery]) -> None:
        rows = rows_of(deliveries)
        if isinstance(disposition, Retirement):
            transaction, default = disposition.transaction, disposition.default or ROLLED_BACK
            retire = c.Retire(
                transaction.number, self.queue, self.holder, rows, disposition.disposition, default, disposition.settled
            )
            error = turn.carry_out(retire).error
            if error is None:
                transaction.done += len(deliveries)
            else:
                transaction.fail(error)
            self.retired(turn, deliveries, error)
            return
        _, error, end = turn.carry_out(c.command_of(disposition, self.queue, self.holder, rows))
        if isinstance(error, errors.ResourceLimit):
            self.loop.when_durable(end, partial(self.refuse_outcomes, deliveries, error))
        elif error is not None:
            # A lock has ended, or the link, or the queue was deleted.
            log.info("%s: an outcome came too late: %s", self, error)
            held, late = self._divided(turn, deliveries)
            if held and late:
                self.settle(turn, disposition, held)
            self._end_lost(late)  # a transaction with such an outcome cannot be committed
        elif not all(delivery.remote_settled for delivery in deliveries):  # otherwise no answer is due
            self.loop.when_durable(end, lambda: self.settled(deliveries))

    def settled(self, deliveries: list[Delivery]) -> None:
        """Report the state of deliveries to a receiver that waits for it, and use the freed capacity."""
        waiting = [d for d in deliveries if not d.settled and not d.remote_settled]
        if waiting and self.may_tell:
            self.session.dispose(waiting, waiting[0].state)
            self.peer.send_soon()
        self.gained_capacity()

    def gained_capacity(self) -> None:
        if self.successor is not None:
            self.successor.gained_capacity()
            return
        if self.detached:
            self.peer.registry.look(self)
        super().gained_capacity()

    # --- the end

    def end(self, turn: Turn) -> None:
        """End the link: its messages go back, by the source's default outcome or as lost with their link.

        If the broker ends it for its own reasons, the default outcome does not apply.
        """
        if self.ended:
            return
        self.acquisition.end(turn)
        self.ended = True
        self._leave()
        if not self.holder:
            return
        self._return_unsent(turn)
        if self.end_cause is not Cause.LINK_LOST:
            self.execute(turn, c.Unsubscribe(self.queue, self.holder, self.end_cause))
            return
        default = left_behind(self.default)
        if default.annotations:
            decided = (*TERMINAL, TransactionalState)
            left = [tag for tag, delivery in self.link.unsettled.items() if not isinstance(delivery.state, decided)]
            self._dispose(turn, default, rows_of_tags(left))
        cause = Cause.LINK_LOST if default.cause is None else default.cause
        begun = self.begun() if cause is Cause.LINK_LOST else None
        self.execute(turn, c.Unsubscribe(self.queue, self.holder, cause, default.outcome, begun))

    def begun(self) -> RowSet:
        return rows_of(self.progress.begun(self.link))

    def _return_unsent(self, turn: Turn) -> None:
        """Give back acquired messages that have not left. Resumed ones have left before."""
        self.resumptions.begin_again()
        resumed = rows_of_tags(list(self.resumptions.waiting))
        damaged = queue_reads.held(turn, self.queue, self.holder, self._damaged)  # an operator may have discarded some
        self._damaged = RowSet()
        for rows in [*self._unsent.values(), rows_of_tags([tag for tag, _ in self._backlog]), damaged]:
            if new := rows.minus(resumed):
                self._dispose(turn, RETURNED, new)
        self._lapsed.clear()
        self._forget_unsent()
        self._forget_backlog()

    # --- without a link

    @property
    def unsettled(self) -> int:
        return len(self.link.unsettled) + len(self.resumptions)

    @property
    def keeps(self) -> bool:
        """False if it acquired in a transaction, which ends with the link."""
        return not (self.acquisition.transaction or self.acquisition.deliveries)

    def is_there(self, turn: Turn) -> bool:
        """Return False if its queue was deleted; another one may have its name."""
        return queue_reads.is_open(turn, self.queue, self.holder)

    def suspend(self, turn: Turn) -> None:
        self._leave()
        self._return_unsent(turn)
        half = self.link.incomplete
        if half is not None and half.tag in self.link.unsettled:  # the receiver has only a part of it
            self.session.settle([half], self.link.role)
            self.peer.capacity.gained(self.session)
            self._dispose(turn, RETURNED, rows_of_tags([half.tag]))

    def go_on(self, turn: Turn, former: ConsumerLink) -> None:
        self._follow(turn, former)
        self.progress = former.progress
        self.resumptions.waiting, self.resumptions.outcomes = former.resumptions.waiting, former.resumptions.outcomes
        if former.resumptions.unnamed:
            self._give_back_lost(turn, list(former.resumptions.unnamed), RowSet())

    def resume(self, turn: Turn, former: ConsumerLink, theirs: Attach) -> None:
        """Send the deliveries again that both ends know; the others go back."""
        self._follow(turn, former)
        mine = former.resumptions.with_unsettled(former.link)
        if not mine:
            return
        held = queue_reads.held(turn, self.queue, self.holder, rows_of_tags(list(mine)))
        known = {tag: mine[tag] for tag in tags_of(held)}  # in the order of their sequence numbers
        compared = self.resumptions.compare(known, theirs.unsettled or {}, incomplete=self.incomplete)
        if compared.lost:
            self._give_back_lost(turn, compared.lost, former.begun())
        ended: dict[DeliveryEnd, list[bytes]] = {}
        for tag, state in compared.ended.items():
            try:
                disposition = disposition_of(state, None, self.context.wall_ms())
            except errors.InvalidRequest as error:  # the link of that outcome has ended
                self.peer.log(f"{self}: {error}")
                disposition = RETURNED
            if disposition is not None:
                self.resumptions.outcomes[tag] = in_short(state)
                ended.setdefault(disposition, []).append(tag)
        for disposition, several in ended.items():
            self._dispose(turn, disposition, rows_of_tags(several))

    def _give_back_lost(self, turn: Turn, tags: list[bytes], begun: RowSet) -> None:
        """Give back deliveries that the receiver's map lacks, as when a link ends, but never into the archive."""
        default, rows = left_behind(self.default), rows_of_tags(tags)
        if default.cause is not None and default.cause is not Cause.LINK_LOST:
            self._dispose(turn, default, rows)
            return
        ahead = rows.minus(begun)
        for cause, some in ((Cause.LINK_LOST, rows.minus(ahead)), (Cause.PREFETCHED, ahead)):
            if some:
                self.execute(turn, c.Release(self.queue, self.holder, some, cause))

    def _follow(self, turn: Turn, former: ConsumerLink) -> None:
        self.holder, self.priority = former.holder, former.priority
        self._locks_ended = former._locks_ended
        self.loop.join(turn, self)

    def known_unsettled(self, theirs: Attach) -> dict[bytes, DeliveryState | None]:
        resumed = self.resumptions
        return {**{tag: delivery.state for tag, delivery in resumed.waiting.items()}, **resumed.unnamed, **resumed.outcomes}

    def name_only(self, named: Unsettled, known: Unsettled) -> None:
        """Resume only the deliveries in our map."""
        self.resumptions.name_only(named)

    def execute(self, turn: Turn, command: c.Command[Any]) -> None:
        """Execute a command, whose refusal concerns this link alone. Raises StorageError."""
        try:
            turn.execute(command)
        except errors.NotFound:  # the queue was deleted with its messages
            self.ended = True
        except errors.IllegalTransition as error:
            self.peer.log(f"{self}: {error}")
        except errors.ResourceLimit as error:
            # The client exceeds a limit of the link.
            self.loop.when_durable(turn.end, partial(self.peer.detach, self, as_error(error)))


def _undecided(deliveries: list[Delivery]) -> list[Delivery]:
    """Return the deliveries without an outcome. The first outcome of a delivery holds."""
    return [delivery for delivery in deliveries if not isinstance(delivery.state, TERMINAL)]
