"""Links on which we send: credit lets them look for messages, which leave when their acquisition is durable."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from ... import errors
from ...amqp import RemoteProtocolError, Sender, TransactionalState
from ...amqp.deliveries import Delivery
from ...amqp.states import LinkState
from ...amqp.types import Value
from ...engine.columns.obstacles import Obstacle
from ...engine.columns.rowset import RowSet
from ...engine.columns.states import Cause
from ...messages.encoding.leaving import leaving
from ...messages.payloads import as_batch
from ...reading.records import OnDamage, RecordSlice, record_slices
from ...reading.slices import BlockSlice
from ...service.bitmaps import View
from ...service.broker import BrokerService
from ...service.turn import Turn
from ..conditions import as_error, deleted
from ..connections.peer import Peer
from ..loop.interest import AWAITS, NOTIFIED
from ..loop.parties import ReceiverLink
from .endpoint import LinkEnd
from .termini import SourceTerminus

log = logging.getLogger("penstock.amqp")


class OutgoingLink(LinkEnd, ReceiverLink):
    """Its subclasses acquire messages or only show them."""

    link: Sender
    terminus: SourceTerminus

    def __init__(self, peer: Peer, link: Sender, terminus: SourceTerminus, *, presettled: bool) -> None:
        super().__init__(peer, link, terminus)
        self.selector = terminus.filters.selector
        self._presettled = presettled
        self._unsent: dict[int, RowSet] = {}  # by the number of the acquisition: not durable yet
        self._acquisitions = 0
        self._pending = 0  # messages in `_unsent`
        self._damaged = RowSet()  # acquired, and never sent, because they cannot be read
        self._asked = False  # a flow with `drain` waits for its answer
        self._backlog: deque[tuple[bytes, bytes]] = deque()  # tag, message: ready, and waiting for window or credit

    def __repr__(self) -> str:
        return f"link {self.link.name!r} from {self.queue!r} of {self.peer}"

    def begin(self, turn: Turn) -> None:
        """Begin to look for messages. Raises PenstockError."""
        self.loop.join(turn, self)

    # --- looking for messages

    def capacity(self) -> int:
        most, obstacle = self._allowance()
        if obstacle is Obstacle.WINDOW:
            self._await_window()
        elif obstacle is Obstacle.UNSETTLED_CONNECTION:
            self.peer.capacity.wait(self)
        return most

    @property
    def obstacle(self) -> Obstacle | None:
        return self._allowance()[1]

    def _allowance(self) -> tuple[int, Obstacle | None]:
        """Count the messages that the link could take now; if 0, with the reason."""
        link = self.link
        if self.incomplete and not self._sends_again:
            return 0, Obstacle.RESUMING
        if self.ended or self.interest is None or link.state is not LinkState.ATTACHED:
            return 0, Obstacle.DETACHED
        if self.transport.stalled:
            return 0, Obstacle.SOCKET
        if link.session.remote_incoming_window <= 0:
            return 0, Obstacle.WINDOW
        if self._backlog:
            return 0, Obstacle.SENDING
        credit = link.link_credit - self._pending
        if credit <= 0:
            return 0, Obstacle.CREDIT
        most = min(credit, self.context.settings.amqp_max_unsettled - len(link.unsettled) - self._pending)
        if most <= 0:
            return 0, Obstacle.UNSETTLED
        free = self.peer.capacity.free(link.session)
        if free <= 0:
            return 0, Obstacle.UNSETTLED_CONNECTION
        return min(free, most), None

    def budgets(self) -> tuple[tuple[object, int], ...]:
        return self.peer.capacity.budgets(self.session)

    @property
    def exhausted(self) -> bool:
        """True until the receiver settles deliveries, or grants credit or window."""
        link = self.link
        return (
            link.link_credit <= 0
            or link.session.remote_incoming_window <= 0
            or len(link.unsettled) >= self.context.settings.amqp_max_unsettled
            or self.peer.capacity.free(link.session) <= 0
        )

    def known_matches(self) -> View | None:
        return None if self.selector is None else self.context.broker.matching.view(self.queue, self.selector.text)

    def taken(self, rows: RowSet) -> int:
        self._acquisitions += 1
        self._unsent[self._acquisitions] = rows
        self._pending += rows.count
        self._add_underway(rows.count)
        self.took_at = self.peer.capacity.took(self)
        return self._acquisitions

    def _add_underway(self, change: int) -> None:
        self.peer.capacity.add_underway(self.session, change)

    def _forget_unsent(self) -> None:
        self._unsent.clear()
        self._add_underway(-self._pending)
        self._pending = 0
        self.peer.capacity.gained(self.session)

    def _forget_backlog(self) -> None:
        self._add_underway(-len(self._backlog))
        self._backlog.clear()
        self.peer.capacity.gained(self.session)

    def found_nothing(self) -> None:
        if self._asked and self._alive and not self._backlog and not self._pending and self.link.incomplete is None:
            self._asked = False
            self.link.drained()
            self.peer.send_soon()

    def _go_on(self) -> None:
        self.loop.has_capacity(self, anyway=self._asked or self._sends_again)
        if self.standing not in (NOTIFIED, AWAITS) and not (self._asked and self._is_held_up()):
            self.found_nothing()  # it can take nothing now

    def _is_held_up(self) -> bool:
        waits = self in self.peer.squeezed.get(self.session, ())
        return (self.transport.stalled or waits) and self.context.nodes.has_available(self.queue)

    # --- sending

    @property
    def _sends_again(self) -> bool:
        """True if resumed deliveries wait."""
        return False

    @property
    def _is_ready(self) -> bool:
        """True if messages wait only for credit or window."""
        return bool(self._backlog)

    @property
    def _state(self) -> TransactionalState | None:
        """The delivery state with which messages leave."""
        return None

    def deliver(self, acquisition: int, slices: Sequence[BlockSlice]) -> None:
        if self.ended:
            return  # they went back with all other messages of the link
        rows = self._unsent.pop(acquisition, None)
        if rows is None:
            return  # a browser looks for them again; others went back, and may have come again
        self._pending -= rows.count
        try:
            self._make_ready(acquisition, slices)
        except Exception as error:  # end the link, so that its messages go back
            log.exception("%s: acquired messages cannot be sent", self)
            lost = self._damaged.minus(self._damaged.minus(rows))
            self._damaged = self._damaged.minus(rows)
            self._add_underway(lost.count)  # as before: all of them are acquired, and have not left
            self._backlog.clear()
            self._unsent[acquisition] = rows
            self._pending += rows.count
            failure = (
                error if isinstance(error, errors.PenstockError) else errors.StorageError("the broker could not read messages")
            )
            self.fail(failure)
            return
        self.pump()

    def _make_ready(self, acquisition: int, slices: Sequence[BlockSlice]) -> None:
        for block_slice in slices:
            damaged = partial(self._keep_damaged, block_slice)
            for time, tags, encoded in messages_of(self.context.broker, block_slice, damaged):
                if isinstance(encoded, list):
                    self._backlog.extend(self._dressed(acquisition, time, tags, encoded))
                    continue
                self.peer.log(f"{self}: {encoded}")
                for tag in tags:
                    self._leave_to_others(tag)

    def _dressed(self, acquisition: int, time: int, tags: list[bytes], messages: list[bytes]) -> Iterable[tuple[bytes, bytes]]:
        """Return messages of one acquisition as they leave. `time`: of their arrival, microseconds since 1970."""
        return zip(tags, messages, strict=True)

    def _keep_damaged(self, block_slice: BlockSlice, indexes: slice, error: errors.DamagedJournal) -> None:
        """Keep messages that cannot be read, so that the link is not offered them again."""
        sequences = block_slice.sequences(indexes)
        self._damaged = self._damaged.plus(RowSet.of_sequences(sequences))
        self._add_underway(-len(sequences))
        self.peer.capacity.gained(self.session)
        first, last = int(sequences[0]), int(sequences[-1])
        self.context.broker.damage.note(errors.DamagedMessages.of(self.queue, first, last, error))

    def pump(self) -> None:
        """Send ready messages, as credit and windows allow, and continue."""
        self.peer.send_soon()
        gone: list[bytes] = []
        while self._backlog and self._can_send:
            self._send_some(gone)
        if self._presettled and gone:
            self._settle_sent(gone)
        if self._presettled:
            self.peer.capacity.gained(self.session)
        if self._backlog and self.link.link_credit <= 0:
            self.give_back()
        if (self._is_ready or self.link.incomplete is not None) and self.session.remote_incoming_window <= 0:
            self._await_window()
        self._go_on()

    def _send_some(self, gone: list[bytes]) -> None:
        """Send messages from the head of the backlog that can leave together; add their tags to `gone`."""
        tags, messages = zip(*self._backlog, strict=True)
        left = self.link.send_many(tags, messages, settled=self._presettled, state=self._state)
        count = len(left)
        gone += tags[:count]
        self._have_left(left)
        if count < len(tags) and self._can_send and self._send_alone(tags[count], messages[count]):
            gone.append(tags[count])
            count += 1
        self.sent += count
        if count == len(self._backlog):
            self._backlog.clear()
        else:
            for _ in range(count):
                self._backlog.popleft()
        self._add_underway(-count)

    @property
    def _can_send(self) -> bool:
        """True if a message would leave now. Otherwise the library would keep it."""
        return self._alive and self.link.can_send and self.session.remote_incoming_window > 0

    def _send_alone(self, tag: bytes, message: bytes) -> bool:
        """Send a message of several frames, or leave it to other links if it is too large for the receiver."""
        if 0 < self.link.max_message_size < len(message):
            self._backlog.popleft()
            self._leave_to_others(tag)
            return False
        self._have_left([self.link.send(tag, message, settled=self._presettled, state=self._state)])
        return True

    def _have_left(self, deliveries: Sequence[Delivery]) -> None:
        """Note deliveries that have left."""

    def _leave_to_others(self, tag: bytes) -> None:
        """Give up a message that this link cannot receive."""
        self._add_underway(-1)
        self.peer.capacity.gained(self.session)

    def _settle_sent(self, tags: list[bytes]) -> None:
        """Settle messages that have left settled."""

    @abstractmethod
    def give_back(self) -> None:
        """Give back the ready messages: the credit for them was withdrawn."""

    # --- frames of the receiver

    def asked(self) -> None:
        self._asked = self.link.drain

    def flowed(self) -> None:
        if self._is_ready:
            self.pump()
        self._go_on()

    @abstractmethod
    def acquire_in(self, txn_id: Value) -> None:
        """Acquire in the transaction of the receiver's flow, or detach the link."""

    def gained_capacity(self) -> None:
        """Take more messages, since deliveries were settled."""
        self.peer.capacity.gained(self.session)  # first: the link that has waited longest
        self.loop.has_capacity(self)

    # --- the end

    def _leave(self) -> None:
        self.loop.leave(self)
        self.peer.capacity.leave(self)
        self._leave_window()

    def fail(self, error: errors.PenstockError) -> None:
        # The queue existed at the attach.
        reason = deleted(self.queue) if isinstance(error, errors.NotFound) else as_error(error)
        self.peer.detach(self, reason, Cause.LINK_CLOSED)


def messages_of(
    broker: BrokerService, block_slice: BlockSlice, damaged: OnDamage
) -> Iterator[tuple[int, list[bytes], list[bytes] | Exception]]:
    """Yield a slice in order, some messages at a time: their arrival, their tags, and the encoded messages or an error.

    `damaged` is called for messages that cannot be read.
    """
    now = broker.wall_ms()
    for stored in record_slices(broker.journal, block_slice, damaged):
        tags = [number.to_bytes(8, "big") for number in stored.sequences().tolist()]
        try:
            messages = leaving(stored.payload, stored.attempts, stored.returned, stored.overlays, stored.ttl(now))
        except (errors.InvalidRequest, RemoteProtocolError):
            yield from ((stored.time, some, message) for some, message in _one_by_one(stored, tags, now))
        else:
            yield stored.time, tags, messages


def _one_by_one(stored: RecordSlice, tags: list[bytes], now: int) -> Iterator[tuple[list[bytes], list[bytes] | Exception]]:
    count, overlays, ttl = len(tags), stored.overlays, stored.ttl(now)
    payload = as_batch(stored.payload)
    attempts, returned = np.broadcast_to(stored.attempts, count), np.broadcast_to(stored.returned, count)
    for row, tag in enumerate(tags):
        laid = {0: overlays[row]} if row in overlays else {}
        try:
            left = None if ttl is None else ttl[row : row + 1]
            [message] = leaving(payload.slice(row, 1), int(attempts[row]), int(returned[row]), laid, left)
        except (errors.InvalidRequest, RemoteProtocolError) as error:
            yield [tag], error
        else:
            yield [tag], [message]
