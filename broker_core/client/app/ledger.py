"""Settlement of the deliveries that a session has passed to the application, in each acknowledge mode.

When the connection is lost, the ledger forgets its deliveries: the broker delivers them again. An automatic acknowledgement then
does nothing; one by the application raises PeerError.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ... import errors
from ...amqp import Accepted, serial
from ...amqp.deliveries import Delivery
from ...amqp.states import LinkState
from .modes import AcknowledgeMode
from .received import ACCEPTED, EXPIRED_HERE, FAILED, RELEASED, Outcome, ReceivedMessage, failed

if TYPE_CHECKING:
    from .consumer import Consumer
    from .session import Session

_Mode = AcknowledgeMode


def revoked(message: ReceivedMessage) -> errors.PeerError | None:
    if message.delivery.remote_settled or message.delivery.link.state is not LinkState.ATTACHED:
        return errors.PeerError(f"the broker has taken {message!r} back, or its link has ended: it is delivered again")
    return None


class Ledger:
    """Unsettled deliveries of one session, by number, oldest first. The caller holds the connection's lock."""

    def __init__(self, session: Session, mode: AcknowledgeMode) -> None:
        self._session = session
        self._mode = mode
        self.unsettled: dict[int, ReceivedMessage] = {}

    def delivered(self, message: ReceivedMessage) -> None:
        if message.delivery.settled:  # presettled: at most once, or a copy
            message.outcome = ACCEPTED
        elif message.consumer.browse:
            self._session.dispose([message.delivery], ACCEPTED)
            message.outcome = ACCEPTED
        else:
            self.unsettled[message.number] = message

    def processed(self, message: ReceivedMessage) -> None:
        if message.number in self.unsettled and self._mode.automatic:
            self._gather(message, ACCEPTED)

    def failed(self, message: ReceivedMessage) -> None:
        if message.number in self.unsettled and self._mode.automatic:
            self._settle([message], failed(message))

    def expired(self, message: ReceivedMessage) -> None:
        if not message.delivery.settled:
            self.unsettled[message.number] = message
            self._gather(message, EXPIRED_HERE)

    def acknowledge(self, message: ReceivedMessage, outcome: Outcome) -> None:
        if message.number not in self.unsettled:
            self._check_settled(message, outcome)
        elif self._mode is _Mode.TRANSACTED:
            message.commit_outcome = outcome
        elif (error := revoked(message)) is not None:
            del self.unsettled[message.number]
            raise error
        elif self._mode is _Mode.CLIENT and isinstance(outcome, Accepted):
            self._settle([earlier for earlier in self.unsettled.values() if earlier.number <= message.number], outcome)
        elif not (self._mode.automatic and isinstance(outcome, Accepted)):  # automatic modes accept later
            self._settle([message], outcome)

    def _check_settled(self, message: ReceivedMessage, outcome: Outcome) -> None:
        if message.outcome is None:
            raise errors.PeerError(
                f"{message!r} came on a connection that is lost, or went back with its session: nothing was settled, and it is"
                " delivered again"
            )
        if message.outcome != outcome:
            raise errors.InvalidRequest(f"{message!r} is settled already, as {type(message.outcome).__name__.lower()}")

    def _gather(self, message: ReceivedMessage, outcome: Outcome) -> None:
        if self._mode is not _Mode.DUPS_OK:
            self._settle([message], outcome)
            return
        del self.unsettled[message.number]
        message.outcome = outcome
        pending, connection = message.consumer.acknowledgements, self._session.connection
        first = not pending
        pending.add(message, outcome, connection.clock())
        if pending.due(connection.clock()):
            self.flush(message.consumer)
        elif first and self._session.server is not None:
            self._session.server.wake()  # the pump has a new deadline

    def flush(self, consumer: Consumer) -> None:
        for outcome, entries in groupby(consumer.acknowledgements.take(), key=lambda entry: entry[1]):
            self._session.dispose([message.delivery for message, _ in entries], outcome)
        self._detach_closed_consumers()

    def _settle(self, messages: list[ReceivedMessage], outcome: Outcome) -> None:
        for message in messages:
            self.unsettled.pop(message.number, None)
            message.outcome = outcome
        self._session.dispose([message.delivery for message in messages], outcome)
        self._detach_closed_consumers()

    def settled(self, messages: list[ReceivedMessage]) -> None:
        for message in messages:
            self.unsettled.pop(message.number, None)
            message.outcome = message.commit_outcome
        self._detach_closed_consumers()

    def lost(self) -> None:
        self.unsettled.clear()
        self._detach_closed_consumers()

    def requeue_everything(self, *, resume: bool = True) -> None:
        """Return every message to its queue. The deliveries of unsettled messages count, those of waiting messages do not. May
        wait.

        The credit is drained first, so that no later message overtakes them. They return in the order of their deliveries. With
        `resume` the links get credit again.
        """
        session = self._session
        links = [link for consumer in session.consumers for link in consumer.links]
        for link in links:
            link.stop()
        session.drain(links)
        for consumer in list(session.consumers):
            self.flush(consumer)
        self._requeue(session.consumers)
        for consumer in session.consumers if resume else ():
            for link in consumer.links:
                link.resume()
                if consumer.prefetch and not consumer.closed:
                    link.renew(0)
        session.flush()

    def _requeue(self, consumers: Iterable[Consumer], *, unsettled: bool = True) -> None:
        returned: list[tuple[Delivery, Any]] = []
        if unsettled:
            returned = [(message.delivery, FAILED) for message in self.unsettled.values()]
            self.unsettled.clear()
        for consumer in consumers:
            returned += [(delivery, RELEASED) for delivery, _ in consumer.arrivals.clear()]
        if returned:
            base = returned[0][0].id
            returned.sort(key=lambda entry: serial.difference(entry[0].id, base))
        for outcome, entries in groupby(returned, key=lambda entry: entry[1]):
            self._session.dispose([delivery for delivery, _ in entries], outcome)
        self._detach_closed_consumers()

    def return_waiting(self, consumer: Consumer) -> None:
        self._requeue([consumer], unsettled=False)

    def close_consumer(self, consumer: Consumer) -> None:
        """Return the waiting messages of a consumer. Its links stay until its unsettled messages are settled.

        The credit is drained first, which may wait: a message that returns while there is credit would come again, and its
        delivery would count.
        """
        for link in consumer.links:
            link.stop()
        try:
            self._session.drain(list(consumer.links))
        finally:
            self.flush(consumer)
            self._requeue([consumer], unsettled=False)

    def _detach_closed_consumers(self) -> None:
        busy = {message.consumer for message in self.unsettled.values()}
        for consumer in [consumer for consumer in self._session.consumers if consumer.closed and consumer not in busy]:
            for link in consumer.links:
                link.detach()
            self._session.consumers.remove(consumer)
        self._session.flush()
