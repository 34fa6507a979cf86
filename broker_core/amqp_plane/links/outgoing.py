"""A link on which we send: messages acquired with its credit, sent when the disk has the acquisition, settled as it says.

A delivery's tag is the message's sequence number, eight octets big-endian, so an outcome names its message without a table.
What was acquired and has not left (`_unsent`, `_backlog`) is not an attempt: when the link ends it goes back uncounted.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker_core import errors
from penstock.broker_core.amqp import Released, Sender, TransactionalState
from penstock.broker_core.amqp.performatives import SND_UNSETTLED, TERMINAL, DeliveryState, Received
from penstock.broker_core.amqp.resume import offset_of
from penstock.broker_core.amqp.states import LinkState
from penstock.broker_core.amqp_plane.links.conditions import as_error, deleted
from penstock.broker_core.amqp_plane.links.deliveries import messages_of
from penstock.broker_core.amqp_plane.links.dispositions import NOT_HERE, RETURNED, ending_of, left_behind
from penstock.broker_core.amqp_plane.links.endpoint import LinkEnd
from penstock.broker_core.amqp_plane.links.resumptions import START, Resumptions
from penstock.broker_core.amqp_plane.links.tags import rows_of_tags
from penstock.broker_core.amqp_plane.loop.interest import AWAITS, NOTIFIED, Consumer, Interest
from penstock.broker_core.amqp_plane.loop.locks import Locks
from penstock.broker_core.amqp_plane.transactions.acquisition import Acquisition
from penstock.broker_core.amqp_plane.transactions.retiring import retire, still_open
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import AVAILABLE, Cause
from penstock.broker_core.engine.commands import queues as c
from penstock.broker_core.engine.model.dispositions import Ending
from penstock.broker_core.reading.stored import Cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.broker_core.amqp.deliveries import Delivery
    from penstock.broker_core.amqp.performatives import Attach
    from penstock.broker_core.amqp_plane.connections.peer import Peer
    from penstock.broker_core.amqp_plane.links.termini import SourceTerminus
    from penstock.broker_core.service.bitmaps import View
    from penstock.broker_core.service.turn import Turn

log = logging.getLogger("penstock.amqp")


class Outgoing(LinkEnd, Consumer):
    """One link that a client receives on. `holder` is the engine's number for it, and `interest` its queue's, from the attach's
    turn on."""

    link: Sender
    terminus: SourceTerminus
    successor: Outgoing | None

    def __init__(
        self, peer: Peer, link: Sender, terminus: SourceTerminus, default: DeliveryState | None, *, presettled: bool
    ) -> None:
        self.peer = peer
        self.link = link
        self.terminus = terminus
        self.queue = terminus.queue
        self.selector = terminus.filters.selector
        self._view: View | None = None
        self.holder = 0
        self.interest: Interest[Outgoing] | None = None
        self.took_at = 0  # when it last took something, among the links of its connection
        self.default = ending_of(default, None)
        self._presettled = presettled
        self.locks = Locks(self)
        self.acquisition = Acquisition(self)
        self._unsent: list[RowSet] = []  # acquired, the disk does not have it yet
        self._pending = 0  # how many those are
        self._lapsed: dict[int, set[bytes]] = {}  # by the identity of one of them, what a lock has taken back since
        self._damaged = RowSet()  # held, and never sent: they cannot be read
        self._asked = False  # whether a flow with `drain` waits for its answer, credit or none
        self._backlog: deque[tuple[bytes, bytes]] = deque()  # tag, message: neither window nor frame took it yet
        self.resumptions = Resumptions()  # deliveries of the link before

    def __repr__(self) -> str:
        return f"link {self.link.name!r} from {self.queue!r} of {self.peer}"

    @property
    def current(self) -> Outgoing:
        """Who has its deliveries now: it may have been attached again."""
        return self if self.successor is None else self.successor.current

    def begin(self, turn: Turn) -> None:
        """It consumes from here on. Raises where it may not, beside those who do."""
        self.holder, _ = turn.carry(self.terminus.subscribe())
        self.priority = self.terminus.options.priority
        self.locks.begin(turn)
        self.peer.plane.passes.acquiring.join(turn, self)

    # --- taking

    def capacity(self) -> int:
        """How many messages it could take now."""
        link = self.link
        if self.ended or not self.holder or link.state is not LinkState.ATTACHED or self.peer.stalled:
            return 0
        if link.session.blocked or link.session.remote_incoming_window <= 0:
            self.peer.squeezed.add(link.session)
            return 0
        if self._backlog:
            return 0
        if self.incomplete and not self.resumptions.waiting:
            return 0
        peer, limits = self.peer, self.peer.plane.limits
        room = min(limits.unsettled_per_connection - peer.held, limits.unsettled_per_session - peer.held_in(link.session))
        if room <= 0:
            peer.full[self] = None
        return min(room, min(link.link_credit, limits.unsettled_per_link - len(link.unsettled)) - self._pending)

    def take(self, turn: Turn, messages: int, max_bytes: int, behind: tuple[int, ...] = ()) -> tuple[RowSet, int]:
        """The next messages for this link, and the log position at which they may leave. None that one of the holders `behind`
        which it stands has not passed."""
        self.locks.look(turn)
        while self.resumptions.waiting:
            found = self.resumptions.take(messages)
            rows = turn.held(self.queue, self.holder, rows_of_tags(list(found)))
            if rows:
                self.resumptions.underway |= found
                return rows, turn.end
        if self.incomplete:
            return RowSet(), turn.end
        return turn.carry(c.Acquire(self.queue, self.holder, messages, max_bytes, self._look(), behind))

    def _look(self) -> View | None:
        """What is known of the link's selector now, for one command."""
        if self.selector is not None:
            self._view = self.peer.plane.service.matching.view(self.queue, self.selector)
        return self._view

    @property
    def undecided(self) -> int | None:
        """The block in which the last `take` that found nothing came to what the selector is not evaluated for."""
        return None if self._view is None else self._view.unknown

    def taken(self, rows: RowSet) -> None:
        self._unsent.append(rows)
        self._pending += rows.count
        self._add_underway(rows.count)
        self.took_at = self.peer.takes = self.peer.takes + 1

    def _add_underway(self, change: int) -> None:
        """So many more messages are acquired for it and have not left, or fewer."""
        self.peer.underway[self.link.session] += change

    def found_nothing(self) -> None:
        """The queue has nothing for the link: credit that it asked to have drained is used up (2.6.7)."""
        if self._asked and self._alive and not self._backlog and not self._pending:
            self._asked = False
            self.link.drained()
            self.peer.send_soon()

    def _go_on(self) -> None:
        """Take more, if it can."""
        self.peer.plane.passes.has_capacity(self, anyway=self._asked or bool(self.resumptions.waiting))
        if self.standing not in (NOTIFIED, AWAITS) and not (self._asked and self._is_held_up()):
            self.found_nothing()  # it can take nothing now, whatever there is

    def _is_held_up(self) -> bool:
        """Whether there may be something for it that the socket or the session's window does not take; it looks when they do."""
        queue = self.peer.plane.service.state.queues.get(self.queue)
        held_up = self.peer.stalled or self.link.session in self.peer.squeezed
        return held_up and queue is not None and queue.counts[AVAILABLE] > 0

    def deliver(self, rows: RowSet, cuts: Sequence[Cut]) -> None:
        """The disk has the acquisition: send."""
        if self.ended:
            return  # they went back with everything else that the link held
        if not any(each is rows for each in self._unsent):
            return  # a browser looks for them again; or they went back, and may have come again
        self._unsent = [each for each in self._unsent if each is not rows]
        self._pending -= rows.count
        lapsed = self._lapsed.pop(id(rows), None)
        try:
            self._make_ready(cuts)
        except Exception as error:  # silence would hold what it has acquired: the receiver is told, and all of it goes back
            log.exception("%s: what it acquired cannot be sent", self)
            lost = self._damaged.minus(self._damaged.minus(rows))
            self._damaged = self._damaged.minus(rows)
            self._add_underway(lost.count)  # as before: all of it is acquired, and has not left
            self._backlog.clear()
            self._unsent.append(rows)
            self._pending += rows.count
            said = error if isinstance(error, errors.PenstockError) else errors.StorageError("the broker could not read messages")
            self.fail(said)
            return
        if lapsed is not None:
            self.keep_ready(lambda tags: set(tags) - lapsed)
        self.pump()

    def _make_ready(self, cuts: Sequence[Cut]) -> None:
        for cut in cuts:
            for tags, found in messages_of(self.peer.plane.service, cut, partial(self._keep_damaged, cut)):
                if isinstance(found, list):
                    self._backlog.extend(zip(tags, found, strict=True))
                    continue
                self.peer.log(f"{self}: {found}")
                for tag in tags:
                    self._leave_to_others(tag)

    def _keep_damaged(self, cut: Cut, part: slice, error: errors.DamagedJournal) -> None:
        """Messages that cannot be read: the link keeps them, so that it is not offered them again. Those around them leave."""
        sequences = cut.sequences(part)
        self._damaged = self._damaged.plus(RowSet.of_sequences(sequences))
        self._add_underway(-len(sequences))
        first, last = int(sequences[0]), int(sequences[-1])
        self.peer.plane.service.damage.note(errors.DamagedMessages.of(self.queue, first, last, error))

    def pump(self) -> None:
        """Send what credit and windows allow of what is ready."""
        self.peer.send_soon()
        link, sent, state = self.link, list[bytes](), self.acquisition.state
        self._tell_outcomes()
        while self._backlog and self._can_send:
            if self._backlog[0][0] in self.resumptions.underway:
                self._send_resumed(*self._backlog[0])
                continue
            tags, messages = zip(*self._backlog, strict=True)
            left = link.send_many(tags, messages, settled=self._presettled, state=state)
            count = len(left)
            sent += tags[:count]
            if state is not None and not self._presettled:
                self.acquisition.sent(left)
            if count < len(tags) and self._can_send and self._send_alone(tags[count], messages[count]):
                sent.append(tags[count])
                count += 1
            for _ in range(count):
                self._backlog.popleft()
            self._add_underway(-count)
        if self._presettled and sent and state is not None:
            self.acquisition.sent_settled(sent)
        elif self._presettled and sent:
            self._settle_sent(sent)
        if self._backlog and link.link_credit <= 0:
            self.give_back()
        self._go_on()

    def _send_resumed(self, tag: bytes, message: bytes) -> None:
        """From where the receiver has it, unsettled whatever the link's mode was before."""
        position, state = self.resumptions.underway.pop(tag)
        self._backlog.popleft()
        if 0 < self.link.max_message_size < len(message):
            self._leave_to_others(tag)
            return
        self._add_underway(-1)
        rest = message[offset_of(message, position) :]
        said = None if position == START else Received(section_number=position[0], section_offset=position[1])
        delivery = self.link.send(tag, rest, settled=self._presettled, state=said, resume=True)
        transaction = self.peer.transactions.get(state)
        if transaction is not None:  # what was said of it holds
            delivery.state = state
            transaction.waiting.setdefault(self, {})[delivery] = None
        if self._presettled:
            self._settle_sent([tag])

    def _tell_outcomes(self) -> None:
        """The receiver had said these before the link came back; they hold now, and both ends are done with them."""
        outcomes = self.resumptions.outcomes
        while outcomes and self._can_send:
            tag = next(iter(outcomes))
            state = outcomes.pop(tag)
            settled = self.link.snd_settle_mode != SND_UNSETTLED
            self.link.send(tag, b"", settled=settled, state=state, resume=True)

    @property
    def _can_send(self) -> bool:
        """Without a window the library would keep one message, which would seem to have left; as on a lost connection."""
        return self._alive and self.link.can_send and self.link.session.remote_incoming_window > 0

    def _send_alone(self, tag: bytes, message: bytes) -> bool:
        """A message of several frames. One larger than the receiver takes is not for this link, and waits for another."""
        if 0 < self.link.max_message_size < len(message):
            self._backlog.popleft()
            self._leave_to_others(tag)
            return False
        delivery = self.link.send(tag, message, settled=self._presettled, state=self.acquisition.state)
        if not self._presettled:
            self.acquisition.sent([delivery])
        return True

    def _leave_to_others(self, tag: bytes) -> None:
        """A message that this link cannot have."""
        self._add_underway(-1)
        self._release([tag], NOT_HERE)

    def _settle_sent(self, tags: list[bytes]) -> None:
        """Sent settled: nobody will answer. It ends once it has left, not before, so that nothing is lost on our side."""
        rows = rows_of_tags(tags)
        self.peer.plane.passes.in_pass(lambda turn: self.carry(turn, c.Settle(self.queue, self.holder, rows)))

    def give_back(self) -> None:
        """The credit for what is ready was withdrawn."""
        self.resumptions.begin_again()
        new = [tag for tag, _ in self._backlog if tag not in self.resumptions.waiting]
        if new:
            self._release(new, RETURNED)
        self._forget_backlog()

    def return_unsent(self) -> None:
        """Nothing leaves of what has not left yet."""
        several, self._unsent = self._unsent, []
        self._lapsed.clear()
        for rows in several:
            self._release([number.to_bytes(8, "big") for number in rows.sequences().tolist()], RETURNED)
        self._add_underway(-self._pending)
        self._pending = 0
        if self._backlog:
            self.give_back()
        if several:
            self.peer.plane.passes.has_capacity(self)

    def keep_unsent(self, held: Callable[[RowSet], RowSet]) -> None:
        """Of what waits for the disk, send only what the link still holds."""
        for rows in self._unsent:
            lost = rows.minus(held(rows))
            if lost:
                self._lapsed.setdefault(id(rows), set()).update(number.to_bytes(8, "big") for number in lost.sequences().tolist())

    def keep_ready(self, held: Callable[[list[bytes]], set[bytes]]) -> None:
        """Of what is ready to be sent, send only what the link still holds."""
        if self._backlog:
            still = held([tag for tag, _ in self._backlog])
            kept = [ready for ready in self._backlog if ready[0] in still]
            self._add_underway(len(kept) - len(self._backlog))
            self._backlog = deque(kept)

    def _forget_backlog(self) -> None:
        self._add_underway(-len(self._backlog))
        self._backlog.clear()

    def _release(self, tags: list[bytes], ending: Ending) -> None:
        rows = rows_of_tags(tags)
        self.peer.plane.passes.in_pass(lambda turn: self.carry(turn, ending.command(self.queue, self.holder, rows)))

    # --- what the receiver says

    def flowed(self, *, asked: bool = False) -> None:
        """Credit, or the session's window, has changed; `asked`: the receiver has told the state of this link."""
        if asked:
            self._asked = self.link.drain
        if self._backlog or self.resumptions.outcomes:
            self.pump()
        self._go_on()

    def disposed(self, deliveries: list[Delivery], state: DeliveryState | None, settled: bool) -> None:
        """The receiver's state for some deliveries of this link."""
        if isinstance(state, TransactionalState):
            retire(self, deliveries, state, settled)
            return
        ending = ending_of(state, (self.default or RETURNED) if settled else None)
        if ending is None:
            return
        # A second word about the same delivery changes nothing: the first is being carried out.
        fresh = [d for d in deliveries if not isinstance(d.state, TERMINAL)]
        if self.acquisition.deliveries:
            fresh = self.acquisition.without_strays(fresh)
        if self.peer.transactions:
            fresh = still_open(self, fresh, state, settled)
        for delivery in fresh:
            delivery.state = state if isinstance(state, TERMINAL) else Released()
        if fresh:
            self.peer.plane.passes.settle(self, ending, fresh)
        if settled:
            self.made_room()

    def settled(self, ending: Ending, deliveries: list[Delivery]) -> None:
        """The outcome holds: tell a receiver that waits for it, and go on with the room that it made."""
        waiting = [d for d in deliveries if not d.settled and not d.remote_settled]
        if waiting and self.may_tell:
            self.link.session.dispose(waiting, waiting[0].state)
            self.peer.send_soon()
        self.made_room()

    def made_room(self) -> None:
        if self.successor is not None:
            self.successor.made_room()
            return
        if self.detached:
            self.peer.plane.detached.look(self)
        self.peer.has_room()  # first: who has waited for it longest
        self.peer.plane.passes.has_capacity(self)

    # --- the end

    def end(self, turn: Turn) -> None:
        """The link is over: what it holds goes back, by the source's default outcome or as lost with its link."""
        if self.ended:
            return
        self.acquisition.end(turn)
        self.ended = True
        self._leave()
        if not self.holder:
            return
        self._return_unsent(turn)
        default = left_behind(self.default)
        if default.annotations:
            ends = (*TERMINAL, TransactionalState)
            left = [tag for tag, delivery in self.link.unsettled.items() if not isinstance(delivery.state, ends)]
            self.carry(turn, default.command(self.queue, self.holder, rows_of_tags(left)))
        cause = Cause.LINK_LOST if default.cause is None else default.cause
        self.carry(turn, c.Unsubscribe(self.queue, self.holder, cause, default.outcome))

    def _return_unsent(self, turn: Turn) -> None:
        """What was acquired and has not left is no attempt. What is to be resumed has left before."""
        self.resumptions.begin_again()
        kept = rows_of_tags(list(self.resumptions.waiting)) if self.resumptions.waiting else RowSet()
        damaged = turn.held(self.queue, self.holder, self._damaged)  # an operator may have discarded some
        self._damaged = RowSet()
        for rows in [*self._unsent, rows_of_tags([tag for tag, _ in self._backlog]), damaged]:
            if new := rows.minus(kept):
                self.carry(turn, RETURNED.command(self.queue, self.holder, new))
        self._unsent.clear()
        self._add_underway(-self._pending)
        self._pending = 0
        self._forget_backlog()

    # --- without a link

    @property
    def unsettled(self) -> int:
        """Deliveries that are kept for a receiver that may come back."""
        return len(self.link.unsettled) + len(self.resumptions)

    @property
    def keeps(self) -> bool:  # type: ignore[override]
        """Not what was acquired in a transaction: that ends with the link, as its transaction does."""
        return self.acquires and not (self.acquisition.transaction or self.acquisition.deliveries)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to come back to."""
        return not (self.unsettled or self.terminus.lasts)

    def suspend(self, turn: Turn) -> None:
        """The link is detached, and lives: what has not left goes back, and nothing is acquired for it."""
        self._leave()
        self._return_unsent(turn)
        half = self.link.incomplete
        if half is not None and half.tag in self.link.unsettled:  # nobody has the whole of it
            self.link.session.settle(half)
            self.carry(turn, RETURNED.command(self.queue, self.holder, rows_of_tags([half.tag])))

    def session_ended(self) -> None:
        """Its deliveries have no ids any more."""

    def go_on(self, turn: Turn, kept: Outgoing) -> None:
        """The deliveries of the link before are this one's."""
        self._follow(turn, kept)
        self.resumptions.waiting, self.resumptions.outcomes = kept.resumptions.waiting, kept.resumptions.outcomes
        if kept.resumptions.unnamed:
            self.carry(turn, self._lost.command(self.queue, self.holder, rows_of_tags(list(kept.resumptions.unnamed))))

    def resume(self, turn: Turn, kept: Outgoing, theirs: Attach) -> None:
        """Those that both ends know are sent again, the others go back."""
        self._follow(turn, kept)
        self.incomplete = theirs.incomplete_unsettled
        mine = kept.resumptions.with_unsettled(kept.link)
        if not mine:
            return
        held = turn.held(self.queue, self.holder, rows_of_tags(list(mine)))
        tags = [number.to_bytes(8, "big") for number in held.sequences().tolist()]  # in the order of their places
        known = {tag: mine[tag] for tag in tags}
        compared = self.resumptions.compare(known, theirs.unsettled or {}, incomplete=self.incomplete)
        ended: dict[Ending, list[bytes]] = {self._lost: compared.lost} if compared.lost else {}
        for tag, state in compared.ended.items():
            ending = ending_of(state, None)
            if ending is not None:
                self.resumptions.outcomes[tag] = state
                ended.setdefault(ending, []).append(tag)
        for ending, several in ended.items():
            self.carry(turn, ending.command(self.queue, self.holder, rows_of_tags(several)))

    @property
    def _lost(self) -> Ending:
        """How a delivery comes back of which its receiver knows nothing: as what a link leaves behind, but never settled."""
        default = left_behind(self.default)
        return default if default.outcome is None else left_behind(None)

    def _follow(self, turn: Turn, kept: Outgoing) -> None:
        self.holder, self.priority = kept.holder, kept.priority
        self.locks.follow(kept.locks)
        self.peer.plane.passes.acquiring.join(turn, self)

    def known_unsettled(self, theirs: Attach) -> dict[bytes, DeliveryState | None]:
        """What our map says: of the deliveries that are resumed, and of those whose outcome the receiver has said."""
        return self.resumptions.unsettled_map()

    def name_only(self, named: dict[bytes, Any], known: dict[bytes, Any]) -> None:
        """Our map has no room for more: what it does not name is not resumed now."""
        self.resumptions.name_only(named)

    def _leave(self) -> None:
        """It waits for nothing any more."""
        self.peer.plane.passes.acquiring.leave(self)
        self.peer.full.pop(self, None)

    def carry(self, turn: Turn, command: c.Command) -> None:
        try:
            turn.carry(command)
        except errors.NotFound:  # the queue was deleted, and everything in it
            self.ended = True
        except errors.IllegalTransition as error:
            self.peer.log(f"{self}: {error}")
        except errors.ResourceLimit as error:
            said = error
            self.peer.plane.passes.when_durable(turn.end, lambda: self.fail(said))

    def fail(self, error: errors.PenstockError) -> None:
        """It cannot go on: the queue was deleted, or a limit does not let it say what it has to."""
        if isinstance(error, errors.NotFound):  # it was there at the attach
            self.peer.detach(self, deleted(self.queue))
        else:
            self.peer.detach(self, as_error(error))
