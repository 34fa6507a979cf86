"""The batch of a commit: what the sockets brought and the links handed in since the last one.

Messages wait by destination, outcomes by link, actions in their order. A pass takes all of it, but for two cases. Where the
journal has no capacity for the messages they wait, all of them, since they came in an order, and what came with them or behind
them waits too; their connections are not read from meanwhile. Outcomes that nobody waits for stand back.

What ends messages whose receiver has settled them is told to nobody, and seldom makes anything available. So it stands back
behind what somebody waits for, and shares the next sync, unless there is so much that it is worth a pass, it makes room for what
comes, or frees what somebody asks for; and never behind what its session says later, which would be safe before it.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from ... import errors
from ...amqp import Session
from ...amqp.deliveries import Delivery
from ...engine.model.dispositions import Disposition
from ...messages.encoding.arriving import arrived
from ...service.broker import BrokerService
from ...service.turn import Turn
from . import exchanges
from .parties import MessageReceiver, MessageSender, Parts
from .requests import ExchangeRoute, Posting, Retirement, Route
from .transport import JOURNAL, Transport

Action = Callable[[Turn], None]
Messages = list[tuple[Route, Parts, Any]]  # the last is what was read of them: ArrivedMessages; through an exchange, Exchanged
Dispositions = dict[tuple[MessageReceiver, Disposition | Retirement], list[Delivery]]

_PAYLOAD = attrgetter("payload")
RECORD_BYTES = 16 << 20  # of one queue's messages in one command; what a pass brings beyond that makes another
LARGE_PASS = 256  # deliveries that are worth a pass by themselves; fewer wait for the disk to be done with the pass before


class Outcomes:
    """Outcomes by link and disposition: `now` asks for a pass, `later` is what nobody waits for."""

    def __init__(self) -> None:
        self.now: Dispositions = {}
        self.later: Dispositions = {}

    def __bool__(self) -> bool:
        return bool(self.now or self.later)

    def add(self, link: MessageReceiver, disposition: Disposition | Retirement, deliveries: list[Delivery]) -> bool:
        """Add an outcome. Returns whether it asks for a pass."""
        waits = disposition.outcome is None or not all(delivery.remote_settled for delivery in deliveries)
        now = waits or len(deliveries) >= LARGE_PASS
        (self.now if now else self.later).setdefault((link, disposition), []).extend(deliveries)
        return now

    def take(self, *, every: bool) -> Dispositions:
        """Take what asked for a pass, or all there is."""
        taken, self.now = self.now, {}
        if every:
            for key, deliveries in self.take_later().items():
                taken.setdefault(key, []).extend(deliveries)
        return taken

    def take_later(self) -> Dispositions:
        """Take all that stands back."""
        later, self.later = self.later, {}
        return later

    def take_before(self, sessions: set[Session]) -> Dispositions:
        """Take what stands back and was said on these sessions, on which more is to be carried out."""
        return self.take_of(lambda link: link.session in sessions)

    def take_of(self, chosen: Callable[[MessageReceiver], bool]) -> Dispositions:
        """Take what stands back, of some links."""
        return {key: self.later.pop(key) for key in [key for key in self.later if chosen(key[0])]}


class CommitBatch:
    """One plane's batch. Used in the loop's thread, without the broker's lock. `size`: deliveries that came since the last
    pass."""

    def __init__(self, broker: BrokerService, hold_up: Callable[[], None]) -> None:
        """`hold_up` is told that messages have to wait until more of the log is durable."""
        self._broker = broker
        self._hold_up = hold_up
        self._messages: dict[Route, Parts] = {}
        self._outcomes = Outcomes()
        self._actions: list[Action] = []
        self._paused: dict[Transport, None] = {}  # connections that are not read from
        self.size = 0

    # --- handing in

    def add_messages(self, destination: Route, sender: MessageSender, deliveries: list[Delivery]) -> None:
        """Add complete deliveries of one sender."""
        self.size += len(deliveries)
        parts = self._messages.setdefault(destination, [])
        if parts and parts[-1][0] is sender:
            parts[-1][1].extend(deliveries)  # they are confirmed together, in ranges
        else:
            parts.append((sender, deliveries))

    def add_outcome(self, link: MessageReceiver, disposition: Disposition | Retirement, deliveries: list[Delivery]) -> bool:
        """Add a receiver's outcome. Returns whether it asks for a pass; if not it stands back."""
        asks = self._outcomes.add(link, disposition, deliveries)
        if asks:
            self.size += len(deliveries)
        return asks

    def add_action(self, action: Action) -> None:
        """Add something to be carried out under the lock, after the outcomes and before anybody acquires."""
        self._actions.append(action)

    # --- what is here

    @property
    def has_messages(self) -> bool:
        """Say whether messages wait; between two passes, or in one for which the journal had no capacity."""
        return bool(self._messages)

    @property
    def is_wanted(self) -> bool:
        """Say whether anything is here that asked for a pass."""
        return bool(self._messages or self._outcomes.now or self._actions)

    @property
    def stands_back(self) -> bool:
        """Say whether outcomes are here that nobody waits for."""
        return bool(self._outcomes.later)

    # --- taking

    def take_messages(self) -> Messages:
        """Take the messages, read into columns; none if the journal has no capacity for them."""
        taken: Messages = []
        if not self._messages or not self._have_capacity():
            return taken
        waiting, self._messages = self._messages, {}
        for destination, parts in waiting.items():
            while parts:
                record, size = [], 0
                while parts and size < RECORD_BYTES:
                    record.append(parts.pop(0))
                    size += _octets(record[-1][1])
                found: Any = arrived([d.payload for _, deliveries in record for d in deliveries], self._broker.wall_ms())
                route = destination.route if isinstance(destination, Posting) else destination
                if isinstance(route, ExchangeRoute):
                    if isinstance(destination, Posting):
                        route = route._replace(transaction=destination.transaction.number)
                    found = exchanges.read(self._broker, route, found)
                taken.append((destination, record, found))
        return taken

    def take_rest(self, messages: Messages) -> tuple[Dispositions, list[Action]]:
        """Take outcomes and actions, for a pass that carries out these messages.

        Outcomes that stand back come along where more is carried out that was said on their session; all of them where there are
        actions, since the end of a link comes after all outcomes.
        """
        actions, self._actions = self._actions, []
        outcomes = self._outcomes.take(every=bool(actions))
        if self._outcomes.later:
            sessions = {link.session for _, parts, _ in messages for link, _ in parts}
            sessions.update(link.session for link, _ in outcomes)
            _add(outcomes, self._outcomes.take_before(sessions))
        return outcomes, actions

    def bring(self, outcomes: Dispositions, chosen: Callable[[str], bool]) -> None:
        """Take outcomes that stand back and are of the chosen queues, into `outcomes`."""
        _add(outcomes, self._outcomes.take_of(lambda link: chosen(link.queue)))

    def take_standing_back(self) -> Dispositions:
        """Take the outcomes that nobody waits for."""
        return self._outcomes.take_later()

    def let_go_on(self) -> None:
        """Read again from the connections that were held up."""
        paused, self._paused = self._paused, {}
        for transport in paused:
            transport.resume(JOURNAL)

    def _have_capacity(self) -> bool:
        """Say whether the messages can be carried out. Where the disk is full they go back to their senders."""
        several = [part for parts in self._messages.values() for part in parts]
        try:
            fits = self._fits(sum(_octets(deliveries) for _, deliveries in several))
        except errors.PenstockError as error:
            self._messages = {}
            for link, deliveries in several:
                link.refused(deliveries, error)
            return False
        for link, _ in several if not fits else ():
            self._paused[link.transport] = None
            link.transport.pause(JOURNAL)
        return fits

    def _fits(self, size: int) -> bool:
        if self._broker.has_space(size):
            return True
        self._hold_up()  # before the second look: the news that there is capacity again must not fall between the two
        return self._broker.has_space(size)


def _octets(deliveries: list[Delivery]) -> int:
    return sum(map(len, map(_PAYLOAD, deliveries)))


def _add(outcomes: Dispositions, more: Dispositions) -> None:
    for key, deliveries in more.items():
        outcomes.setdefault(key, []).extend(deliveries)
