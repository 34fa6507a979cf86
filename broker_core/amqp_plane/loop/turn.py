"""One turn of the loop: what all sockets brought becomes few commands, one journal write, and effects that wait for the disk.

The links hand in what came (`arrived`, `decided`, `first`, `hungry`); when the loop has served every socket that was ready,
`_flush` carries it all out under the broker's lock: one Enqueue per queue, one Settle or Release per link and outcome, then
acquisitions for the links that wait. Each command's effect (dispositions, transfers, an answer to an attach) stands with its
log position in one line, in order, and leaves when the journal's writer says that the log is durable up to there. Of a small turn
it is made ready, to the octet, while the disk is at work.

What a session says is durable in the order in which it was said, though a turn sorts it by queue and link: a turn is in the log
as a whole or not at all, and carries all that its sessions have said before. So messages for which the journal has no room keep
back whatever came with them or behind them, and an outcome that nobody waits for goes with what its session says next.

Who acquires what is `acquiring`'s matter. A message that is to be delivered at once or not at all (*immediate*) is withdrawn at
the end of its turn, when all had time to acquire it, and then its sender hears what became of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker_core import errors
from penstock.broker_core.amqp_plane.links.incoming import confirm, kept_out
from penstock.broker_core.amqp_plane.links.options import AtOnce
from penstock.broker_core.amqp_plane.links.tags import rows_of
from penstock.broker_core.amqp_plane.loop import exchanges as exchanging
from penstock.broker_core.amqp_plane.loop import immediate as at_once
from penstock.broker_core.amqp_plane.loop.acquiring import Acquiring
from penstock.broker_core.amqp_plane.loop.exchanges import Way
from penstock.broker_core.amqp_plane.loop.outcomes import LARGE_TURN, Outcomes
from penstock.broker_core.amqp_plane.loop.selecting import Selecting
from penstock.broker_core.amqp_plane.loop.writing import Writing
from penstock.broker_core.amqp_plane.transactions.posting import Posting
from penstock.broker_core.amqp_plane.transactions.retiring import Retirement
from penstock.broker_core.engine.commands import queues as c
from penstock.broker_core.messages.encoding.arriving import Arrived, arrived
from penstock.broker_core.reading.stored import store

if TYPE_CHECKING:
    from penstock.broker_core.amqp.deliveries import Delivery
    from penstock.broker_core.amqp_plane.connections.peer import Peer
    from penstock.broker_core.amqp_plane.links.incoming import Sender
    from penstock.broker_core.amqp_plane.links.outgoing import Outgoing
    from penstock.broker_core.amqp_plane.loop.exchanges import Exchanged
    from penstock.broker_core.amqp_plane.loop.outcomes import Endings
    from penstock.broker_core.amqp_plane.transactions.registry import Open
    from penstock.broker_core.engine.model.dispositions import Ending
    from penstock.broker_core.service.broker import BrokerService
    from penstock.broker_core.service.turn import Turn

    Taken = list[tuple[str | AtOnce | Way | Posting, list[tuple[Sender, list[Delivery]]], Any]]  # Arrived; by a Way, Exchanged

log = logging.getLogger("penstock.amqp")

LINGER_S = 0.001  # outcomes that nobody waits for are carried out when everybody has been told, or after so long
RECORD_BYTES = 16 << 20  # of one queue's messages in one command; what a turn brings beyond that makes another

Effect = Callable[[], None]


class Turns:
    """Everything between the links and the broker; used in the loop's thread, but for what `on_*` says."""

    def __init__(self, service: BrokerService, loop: asyncio.AbstractEventLoop, look_for_room: Callable[[], None]) -> None:
        self._service = service
        self._look_for_room = look_for_room
        self._loop = loop
        self._writing = Writing(service.journal, loop)
        self._arriving: dict[str | AtOnce | Way | Posting, list[tuple[Sender, list[Delivery]]]] = {}
        self._outcomes = Outcomes()
        self._first: list[Callable[[Turn], None]] = []
        self.acquiring = Acquiring(self)
        self.selecting = Selecting(self, service.matching, loop)
        self.hungry = self.acquiring.hungry
        self._immediate: list[at_once.Waiting] = []
        self._held: dict[Peer, None] = {}
        self._ready: list[Effect] = []
        self._effects: deque[tuple[int, Effect]] = deque()
        self._touched: dict[Peer, None] = {}
        self._gathered = 0  # deliveries that came since the last turn
        self._scheduled = self._in_turn = self._crowded = self._patient = self._lingers = False
        self._alone = self._at_once = False  # a socket is being read that alone was ready; a turn is wanted as soon as it is
        # Written by other threads:
        self._notified: dict[str, None] = {}  # in the order in which messages came
        self._woken = self._told = False
        service.add_arrival_listener(self._on_arrival)
        service.journal.add_listener(self._on_durable)

    def close(self) -> None:
        """No more news."""
        self._service.remove_arrival_listener(self._on_arrival)
        self.selecting.close()

    # --- what the links hand in

    def arrived(
        self, queue: str | AtOnce | Way, link: Sender, deliveries: list[Delivery], transaction: Open | None = None
    ) -> None:
        """Complete deliveries for a queue, or by an exchange; `link.confirmed` or `link.refused` is told what became of them."""
        self._gathered += len(deliveries)
        place = queue if transaction is None or isinstance(queue, AtOnce) else Posting(queue, transaction)
        parts = self._arriving.setdefault(place, [])
        if parts and parts[-1][0] is link:
            parts[-1][1].extend(deliveries)  # they are confirmed together, in ranges
        else:
            parts.append((link, deliveries))
        self.schedule()

    def decided(self, link: Outgoing, ending: Ending | Retirement, deliveries: list[Delivery]) -> None:
        """The receiver's outcome for deliveries; `link.settled` is told when it holds, if the receiver waits for that."""
        if self._outcomes.add(link, ending, deliveries):
            self._gathered += len(deliveries)
            self.schedule()
        else:
            self._linger()

    def first(self, action: Callable[[Turn], None]) -> None:
        """Something to carry out under the lock in this turn, after the outcomes and before anybody acquires."""
        self._first.append(action)
        self.schedule()

    def after(self, end: int, effect: Effect) -> None:
        """Let what `effect` has to say leave when the log is durable up to `end` and every effect before it has happened.

        With an `end` of 0 it waits for nothing: the sender of a message that need not survive a crash is told at once.
        """
        if end:
            self._effects.append((end, effect))
        else:
            self._ready.append(effect)

    def behind(self, turn: Turn, effect: Effect) -> None:
        """The same, behind every effect so far and all that `turn` has carried: for what must not overtake anything."""
        last = self._effects[-1][0] if self._effects else 0
        self._effects.append((max(turn.end, last), effect))

    def last(self, effect: Effect) -> None:
        """The same, behind all that has been handed in."""
        self.first(lambda turn: self.behind(turn, effect))

    def touch(self, peer: Peer) -> None:
        """The peer's connection may have something to send."""
        self._touched[peer] = None
        self.schedule()

    def forget(self, peer: Peer) -> None:
        self._touched.pop(peer, None)

    def schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            if self._alone:
                self._at_once = True
            else:
                self._loop.call_soon(self._flush)

    def reading(self, sockets: int) -> None:
        """One of so many sockets that were ready is read from here on, until `read`."""
        self._alone = sockets == 1

    def read(self) -> None:
        """If it was the only one, then nothing else comes into the turn that it wants: no need for another round of the loop."""
        self._alone = False
        if self._at_once:
            self._at_once = False
            try:
                self._flush()
            except Exception as error:  # as for what the loop calls itself: it is not the socket's fault
                self._loop.call_exception_handler({"message": "a turn failed", "exception": error})

    # --- other threads

    def _on_arrival(self, queue: str) -> None:
        """Called under the broker's lock by whoever made messages available."""
        self._notified[queue] = None
        if not self._in_turn and not self._woken:
            self._woken = True
            self._call(self._wake)

    def _on_durable(self, durable: int) -> None:
        """Called by the journal's thread."""
        if not self._told and (self._effects or self._crowded):
            self._told = True
            self._call(self._advance)

    def _call(self, function: Effect) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:  # the loop is closed: the plane has stopped
            log.debug("news after the loop has closed")

    def _wake(self) -> None:
        self._woken = False
        self.schedule()

    # --- a turn

    def _flush(self) -> None:
        """A turn, unless it is small and the disk is still at work on the one before: nothing could be told any earlier, and what
        comes meanwhile makes one larger turn of it. A client that sends frame by frame would else make a turn of each.
        """
        self._scheduled = False
        if self._effects and self._gathered < LARGE_TURN and self._effects[-1][0] > self._service.journal.durable:
            self._patient = True  # until `_advance`
            self._linger()
            self._send()
            return
        handled, self.acquiring.handled = self._gathered, 0
        self._patient, self._gathered = False, 0
        arriving = self._take_arriving()
        if not self._arriving:
            self._let_go()
        first: list[Callable[[Turn], None]] = []
        endings: Endings = {}
        if not self._arriving:  # else this may have been said behind what waits there
            first, self._first = self._first, []
            endings = self._outcomes.take(every=bool(first))  # those are ends of links, too, which come after all outcomes
            self._bring_before(arriving, endings)
        if arriving or endings or first or self.acquiring or self._notified or self._immediate:
            self._carry_out(arriving, endings, first)
        self._linger()
        self._advance(handled + self.acquiring.handled)

    def _linger(self) -> None:
        """What nobody waits for does not wait for ever."""
        if self._outcomes.later and not self._lingers:
            self._lingers = True
            self._loop.call_later(LINGER_S, self._lingered)

    def _catch_up(self) -> None:
        """Nobody waits now: time for what nobody waits for, unless something is to be carried out that was said before it."""
        if self._arriving or self._outcomes.now or self._first:
            return
        if later := self._outcomes.take_later():
            with self._service.turn(hurry=False) as turn:
                for (link, ending), deliveries in later.items():
                    self._end(turn, link, ending, deliveries)
            self._look_for_room()
            self._writing.rest()

    def _lingered(self) -> None:
        self._lingers = False
        self._catch_up()

    def _carry_out(self, arriving: Taken, endings: Endings, first: list[Callable[[Turn], None]]) -> None:
        with self._service.turn(hurry=False) as turn:
            self._in_turn = True
            try:
                if arriving:
                    self._make_room(turn, endings)
                # Who asks for messages may have said these just before, and asks for what they free, too.
                if self.acquiring and not self._arriving:  # else this may have been said behind what waits there
                    self._bring(endings, turn.freed_by_outcomes)
                for way, parts, found in arriving:
                    if isinstance(way, Posting):
                        way.carry(turn, self, parts, found)
                    elif isinstance(way, Way):
                        self._exchange(turn, parts, found)
                    else:
                        self._enqueue(turn, way, parts, found)
                for (link, ending), deliveries in endings.items():
                    self._end(turn, link, ending, deliveries)
                for action in first:
                    self._act(turn, action)
                self._acquire(turn)
            finally:
                self._in_turn = False
        self._look_for_room()

    def _make_room(self, turn: Turn, endings: Endings) -> None:
        """What comes may need the room that these outcomes make; who sends it may have said them just before. Takes them out of
        `endings`."""
        self._bring(endings, turn.limited)
        for link, ending in [key for key in endings if turn.limited(key[0].queue)]:
            self._end(turn, link, ending, endings.pop((link, ending)))

    def _bring(self, endings: Endings, concerned: Callable[[str], bool]) -> None:
        """Outcomes that stand back, of queues where they change what the rest of the turn finds."""
        for key, deliveries in self._outcomes.take_of(lambda link: concerned(link.queue)).items():
            endings.setdefault(key, []).extend(deliveries)

    def _bring_before(self, arriving: Taken, endings: Endings) -> None:
        """Outcomes that stand back, and were said on a session of which this turn carries something out."""
        if self._outcomes.later:
            sessions = {link.session for _, parts, _ in arriving for link, _ in parts}
            sessions.update(link.session for link, _ in endings)
            for key, deliveries in self._outcomes.take_before(sessions).items():
                endings.setdefault(key, []).extend(deliveries)

    def _acquire(self, turn: Turn) -> None:
        notified, self._notified = self._notified, {}
        for queue in notified:
            self.acquiring.news(turn, queue)
        self.acquiring.carry_out(turn)
        if self._immediate:
            waiting, self._immediate = self._immediate, []
            for each in waiting:
                self.acquiring.exhaust(turn, each.queue)
                if self.selecting.concerns(each.queue):
                    self._immediate.append(each)  # until all can say whether they want it
                else:
                    each.withdraw(turn, self)
        if self._notified:  # an acquisition made something AVAILABLE elsewhere
            self.schedule()

    @staticmethod
    def _act(turn: Turn, action: Callable[[Turn], None]) -> None:
        try:
            action(turn)
        except errors.StorageError:
            raise
        except Exception:  # a mistake of ours: it concerns one link, and everybody else is served
            log.exception("something of a turn failed; the connection it belongs to may hang until it times out")

    def _take_arriving(self) -> Taken:
        """Messages as columns, made before the lock is taken. If the journal's buffer has no room for them they wait, and their
        senders: all of them, since they came in an order."""
        taken: Taken = []
        if not self._arriving or not self._has_room():
            return taken
        waiting, self._arriving = self._arriving, {}
        for queue, parts in waiting.items():
            while parts:
                batch, size = [], 0
                while parts and size < RECORD_BYTES:
                    batch.append(parts.pop(0))
                    size += sum(len(delivery.payload) for delivery in batch[-1][1])
                found: Any = arrived([d.payload for _, deliveries in batch for d in deliveries])
                by = queue.by if isinstance(queue, Posting) else queue
                taken.append((queue, batch, exchanging.read(self._service, by, found) if isinstance(by, Way) else found))
        return taken

    def _has_room(self) -> bool:
        """Whether what arrives goes on: to be carried out, or to nobody, where the disk is full."""
        several = [part for parts in self._arriving.values() for part in parts]
        try:
            room = self._room(sum(len(delivery.payload) for _, deliveries in several for delivery in deliveries))
        except errors.PenstockError as error:
            self._arriving = {}
            for link, deliveries in several:
                link.refused(deliveries, error)
            return False
        for link, _ in several if not room else ():
            self._held[link.peer] = None
            link.peer.pause_reading()
        return room

    def _room(self, size: int) -> bool:
        if self._service.room(size):
            return True
        self._crowded = True  # before the second look: the news that there is room again must not fall between the two
        return self._service.room(size)

    def _let_go(self) -> None:
        held, self._held = self._held, {}
        for peer in held:
            peer.resume_reading()

    def _enqueue(self, turn: Turn, to: str | AtOnce, parts: list[tuple[Sender, list[Delivery]]], found: Arrived) -> None:
        count, error, end, refused = found.batch.num_rows, None, turn.end, found.refused
        queue = to if isinstance(to, str) else to.queue
        if count:
            try:
                stored = store(found.batch, found.mask)
                traits = self._service.traits(queue, stored.batch)
                placed, end = turn.carry(c.Enqueue(queue, count, found.sizes, stored, found.durable, traits))
                if placed.refused:
                    refused = kept_out(self._service, queue, found, placed.refused)
                if isinstance(to, AtOnce):
                    self._immediate.append(at_once.Waiting(queue, parts, found, refused, placed))
                    return
            except errors.StorageError:
                raise
            except errors.PenstockError as refusal:
                error, end = refusal, turn.end
        self.after(end, lambda: confirm(parts, refused, error))

    def _exchange(self, turn: Turn, parts: list[tuple[Sender, list[Delivery]]], found: Exchanged) -> None:
        error, end, refused = None, turn.end, found.found.refused
        if found.found.batch.num_rows:
            try:
                refused, end = exchanging.carry(turn, self._service, found)
            except errors.StorageError:
                raise
            except errors.PenstockError as refusal:
                error, end = refusal, turn.end
        self.after(end, lambda: confirm(parts, refused, error))

    def _end(self, turn: Turn, link: Outgoing, ending: Ending | Retirement, deliveries: list[Delivery]) -> None:
        if isinstance(ending, Retirement):
            ending.carry(turn, link, deliveries)
            return  # nobody is told before the discharge
        try:
            _, end = turn.carry(ending.command(link.queue, link.holder, rows_of(deliveries)))
        except errors.ResourceLimit as error:
            self.after(turn.end, partial(link.fail, error))
            return
        except errors.StorageError:
            raise
        except errors.PenstockError as error:
            # A lock has ended, the link in between, or the queue is gone: what became of these messages is decided already.
            log.info("%s: an outcome came too late: %s", link, error)
            held, late = link.locks.divided(turn, deliveries)
            if held and late:
                self._end(turn, link, ending, held)
            link.locks.end(late)
            return
        if all(delivery.remote_settled for delivery in deliveries):
            return  # the receiver waits for no answer, and its room was made at once
        self.after(end, lambda: link.settled(ending, deliveries))

    # --- effects

    def _advance(self, handled: int = LARGE_TURN) -> None:
        """Let all happen that the disk allows, and send what comes of it. `handled`: the deliveries of a turn just done."""
        journal, effects = self._service.journal, self._effects
        end = effects[-1][0] if effects else 0
        self._told = True  # what the loop writes itself is no news
        written = self._writing.begin(end, handled, lambda: self._happen(end))
        self._told = False
        if written and journal.durable < end:
            self._fall_silent()
            return
        happened = self._happen(journal.durable) or written  # now: what was told in between was told in vain
        if self._crowded or self._patient:
            self._crowded = False
            self.schedule()
        self._send()
        if happened and not effects and not self._patient:
            self._catch_up()
        self._writing.rest()

    def _happen(self, durable: int) -> bool:
        """The effects that wait for no more than that, if there are any. What they have to say waits for `_send`."""
        effects = self._effects
        ready, self._ready = self._ready, []
        while effects and effects[0][0] <= durable:
            ready.append(effects.popleft()[1])
        for effect in ready:
            try:
                effect()
            except Exception:
                log.exception("an effect failed; the connection it belongs to may hang until it times out")
        return bool(ready)

    def _fall_silent(self) -> None:
        """The journal failed when all had been made ready to be told: nobody may hear of it."""
        for peer in self._touched:
            peer.wire.abort()

    def _send(self) -> None:
        touched, self._touched = self._touched, {}
        for peer in touched:
            peer.send()
