"""What a session has handed out and not settled, and how each acknowledge mode ends it.

What the connection's loss takes away is forgotten here: the broker delivers it again. An acknowledgement that the client makes by
itself is then a no-op, since nobody could act on an error; one that the application makes is a PeerError.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any

from penstock.broker_core import errors
from penstock.broker_core.amqp import Accepted, serial
from penstock.broker_core.amqp.deliveries import Delivery
from penstock.broker_core.amqp.states import LinkState
from penstock.broker_core.messaging.modes import AcknowledgeMode
from penstock.broker_core.messaging.received import ACCEPTED, FAILED, NOT_HERE, RELEASED, Outcome, ReceivedMessage

if TYPE_CHECKING:
    from penstock.broker_core.messaging.consumer import Consumer
    from penstock.broker_core.messaging.session import Session

_Mode = AcknowledgeMode


def taken_back(message: ReceivedMessage) -> errors.PeerError | None:
    """Why nothing can be said any more of a message that was handed out, if so."""
    if message.delivery.remote_settled or message.delivery.link.state is not LinkState.ATTACHED:
        return errors.PeerError(f"the broker has taken {message!r} back, or its link is gone: it is delivered again")
    return None


class Ledger:
    """Of one session; everything under the connection's lock. `open` are the messages by their number, oldest first."""

    def __init__(self, session: Session, mode: AcknowledgeMode) -> None:
        self._session = session
        self._mode = mode
        self.open: dict[int, ReceivedMessage] = {}

    # --- what happens to a message

    def taken(self, message: ReceivedMessage) -> None:
        """Handed to the application."""
        if message.delivery.settled:  # taken at most once, or a copy
            message.outcome = ACCEPTED
        elif message.consumer.browse:
            self._session.dispose([message.delivery], ACCEPTED)
            message.outcome = ACCEPTED
        else:
            self.open[message.number] = message

    def done(self, message: ReceivedMessage) -> None:
        """The application has it (`receive`), or is done with it (its callback has returned)."""
        if message.number in self.open and self._mode.by_itself:
            self._gather(message, ACCEPTED)

    def failed(self, message: ReceivedMessage) -> None:
        """The callback has raised: what the client would have acknowledged by itself goes back."""
        if message.number in self.open and self._mode.by_itself:
            self._settle([message], FAILED)

    def expired(self, message: ReceivedMessage) -> None:
        """It expired while it waited here: settled as such, and counted like one that was consumed."""
        if not message.delivery.settled:
            self.open[message.number] = message
            self._gather(message, NOT_HERE)

    def acknowledge(self, message: ReceivedMessage, outcome: Outcome) -> None:
        """The application's word. Raises as `ReceivedMessage.acknowledge` says."""
        if message.number not in self.open:
            self._check_closed_case(message, outcome)
        elif self._mode is _Mode.TRANSACTED:
            message.wanted = outcome
        elif (error := taken_back(message)) is not None:
            del self.open[message.number]
            raise error
        elif self._mode is _Mode.CLIENT and isinstance(outcome, Accepted):
            self._settle([each for each in self.open.values() if each.number <= message.number], outcome)
        elif not (self._mode.by_itself and isinstance(outcome, Accepted)):  # that comes by itself
            self._settle([message], outcome)

    def _check_closed_case(self, message: ReceivedMessage, outcome: Outcome) -> None:
        if message.outcome is None:
            raise errors.PeerError(
                f"{message!r} came on a connection that is lost, or went back with its session: nothing was settled, and it is"
                " delivered again"
            )
        if message.outcome != outcome:
            raise errors.InvalidRequest(f"{message!r} is settled already, as {type(message.outcome).__name__.lower()}")

    # --- settling

    def _gather(self, message: ReceivedMessage, outcome: Outcome) -> None:
        if self._mode is not _Mode.DUPS_OK:
            self._settle([message], outcome)
            return
        del self.open[message.number]
        message.outcome = outcome
        gathered, connection = message.consumer.gathered, self._session.connection
        first = not gathered
        gathered.add(message, outcome, connection.clock())
        if gathered.due(connection.clock()):
            self.flush(message.consumer)
        elif first and self._session.wire is not None:
            self._session.wire.wake()  # there is a time to keep now

    def flush(self, consumer: Consumer) -> None:
        """Tell the broker what was gathered."""
        for outcome, entries in groupby(consumer.gathered.take(), key=lambda entry: entry[1]):
            self._session.dispose([message.delivery for message, _ in entries], outcome)
        self._let_go()

    def _settle(self, messages: list[ReceivedMessage], outcome: Outcome) -> None:
        for message in messages:
            self.open.pop(message.number, None)
            message.outcome = outcome
        self._session.dispose([message.delivery for message in messages], outcome)
        self._let_go()

    def settled(self, messages: list[ReceivedMessage]) -> None:
        """A transaction has ended them."""
        for message in messages:
            self.open.pop(message.number, None)
            message.outcome = message.wanted
        self._let_go()

    def lost(self) -> None:
        """The connection is gone, and what was open on it goes back without us."""
        self.open.clear()
        self._let_go()

    # --- going back

    def give_back(self, *, go_on: bool = True) -> None:
        """All that is handed out and open goes back, the delivery counted, and all that waits here, uncounted.

        Credit is taken back first, so that nothing overtakes them; then they go in the order of their deliveries. May wait.
        """
        session = self._session
        links = [link for consumer in session.consumers for link in consumer.links]
        for link in links:
            link.stop()
        session.drain(links)
        for consumer in list(session.consumers):
            self.flush(consumer)
        self.return_all(lambda consumer: True)
        for consumer in session.consumers if go_on else ():
            for link in consumer.links:
                link.go_on()
                if consumer.prefetch and not consumer.closed:
                    link.renew(0)
        session.flush()

    def return_all(self, of: Callable[[Consumer], bool], *, handed_out: bool = True) -> None:
        """What waits at some consumers, and what they `handed_out`, in the order of the deliveries."""
        back: list[tuple[Delivery, Any]] = []
        if handed_out:
            for message in [each for each in self.open.values() if of(each.consumer)]:
                del self.open[message.number]
                back.append((message.delivery, FAILED))
        for consumer in self._session.consumers:
            if of(consumer):
                back += [(delivery, RELEASED) for delivery, _ in consumer.arrivals.clear()]
        if back:
            base = back[0][0].id
            back.sort(key=lambda entry: serial.difference(entry[0].id, base))
        for outcome, entries in groupby(back, key=lambda entry: entry[1]):
            self._session.dispose([delivery for delivery, _ in entries], outcome)
        self._let_go()

    def close_consumer(self, consumer: Consumer) -> None:
        """What waits goes back; what is handed out may still be settled, and keeps the links until then. May wait: what went back
        while there is credit would come again, and count.
        """
        for link in consumer.links:
            link.stop()
        try:
            self._session.drain(list(consumer.links))
        finally:
            self.flush(consumer)
            self.return_all(lambda each: each is consumer, handed_out=False)

    def _let_go(self) -> None:
        """Ends the links of closed consumers that have nothing open any more."""
        busy = {message.consumer for message in self.open.values()}
        for consumer in [each for each in self._session.consumers if each.closed and each not in busy]:
            for link in consumer.links:
                with suppress(errors.PenstockError):
                    link.leave()
            self._session.consumers.remove(consumer)
        self._session.flush()
