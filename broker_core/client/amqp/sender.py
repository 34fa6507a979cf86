"""Sending encoded messages, as many at a time as credit and window allow. Their outcomes come later."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from ... import amqp, errors
from ...amqp import Accepted, LocalProtocolError, events
from ...amqp.performatives import SND_SETTLED, SND_UNSETTLED
from . import failures
from .links import ClientLink, LinkConnection

log = logging.getLogger("penstock")

#: Seconds until a wait for credit is logged.
NOTICE_S = 2.0
#: Messages and octets between two writes: enough to share its cost, few enough to overlap with the broker's work.
CHUNK_MESSAGES, CHUNK_OCTETS = 256, 512 * 1024
#: Limit of deliveries without an outcome, even with more credit.
MAX_UNSETTLED = 65_536
#: Limit of stored refusals; further ones are counted.
MAX_REFUSALS = 1000


class RefusedMessage(NamedTuple):
    """A message that was not accepted.

    Attributes:
        sequence: Its number at this sender, from 0.
        state: Outcome: Rejected, Released or Modified.
    """

    sequence: int
    state: object


class Sender(ClientLink):
    """A link made by `Connection.sender`. With `presettled` no message is confirmed, and `accepted` stays 0.

    Attributes:
        sent: Number of messages sent.
        accepted: Number of messages accepted.
        refused: Number of messages not accepted.
        refusals: The first 1,000 of them.
    """

    link: amqp.Sender

    def __init__(self, connection: LinkConnection, session: amqp.Session, address: str, presettled: bool) -> None:
        super().__init__(connection, address)
        self.sent = self.accepted = self.refused = 0
        self.refusals: list[RefusedMessage] = []
        self._reported = self._flushing = 0
        self.link = session.sender(connection.new_link_name())
        mode = SND_SETTLED if presettled else SND_UNSETTLED
        self._attach(source=amqp.Source(), target=amqp.Target(address=address), snd_settle_mode=mode)

    @property
    def unsettled(self) -> int:
        """Number of messages without an outcome."""
        return len(self.link.unsettled)

    def send(self, payloads: Sequence[bytes]) -> None:
        """Send encoded messages in order. Returns when the last one is written; `flush` waits for confirmations.

        Args:
            payloads: Messages that `Message.encode` returned.

        Raises:
            ResourceLimit: A message is larger than the broker takes. Messages before it stay sent; `sent` counts them.
            PeerError: No credit comes within the time limit.
        """
        position, count = 0, len(payloads)
        while position < count:
            if not self._ready():
                self._await_credit()
            step = min(CHUNK_MESSAGES, CHUNK_OCTETS // (len(payloads[position]) + 1) + 1)
            chunk = payloads[position : position + step]
            first = self.sent
            tags = [number.to_bytes(8, "big") for number in range(first, first + len(chunk))]
            done = len(self.link.send_many(tags, chunk)) or self._send_one(tags[0], chunk[0])
            self.sent += done
            position += done
            self.connection.flush()
            while self.connection.congested:
                self.connection.wait_until(lambda: not self.connection.congested, "it does not read")

    def _ready(self) -> bool:
        self.check()
        return self.link.can_send and len(self.link.unsettled) < MAX_UNSETTLED

    def _await_credit(self) -> None:
        problem, limit_s = f"it gives no credit for {self.address!r} (is it out of disk or memory?)", self.connection.timeout_s
        if limit_s > NOTICE_S:
            try:
                self.connection.wait_until(self._ready, problem, NOTICE_S)
            except failures.NoAnswer:
                name = self.connection.name
                log.warning("a write waits for %s, and fails if nothing changes within %g s: %s", name, limit_s, problem)
        self.connection.wait_until(self._ready, problem)

    def _send_one(self, tag: bytes, payload: bytes) -> int:
        try:
            self.link.send(tag, payload)
        except LocalProtocolError as error:
            raise errors.ResourceLimit(f"message {self.sent:,} was not sent to {self.address!r}: {error}") from error
        self._wait_until(lambda: not self.link.session.blocked, "its window stays closed")
        return 1

    def flush(self) -> None:
        """Wait until every message has its outcome.

        Raises:
            PenstockError: Some were not accepted since the last `flush`: the error of the first, with their number.
        """
        while self.link.unsettled:
            self._flushing = len(self.link.unsettled)
            problem = f"{self._flushing:,} messages to {self.address!r} are not confirmed"
            self._wait_until(lambda: len(self.link.unsettled) < self._flushing, problem)
        if self.refused > self._reported:
            news, self._reported = self.refused - self._reported, self.refused
            state = self.refusals[-min(news, len(self.refusals))].state
            raise failures.from_outcome(state, f"{news:,} of {self.sent:,} messages to {self.address!r} were")

    def on_event(self, event: events.Event) -> None:
        super().on_event(event)
        if isinstance(event, events.Flowed):
            self.link.drained()

    def on_outcome(self, deliveries: list[Any], state: object) -> None:
        if type(state) is Accepted:
            self.accepted += len(deliveries)
            return
        self.refused += len(deliveries)
        for delivery in deliveries[: MAX_REFUSALS - len(self.refusals)]:
            self.refusals.append(RefusedMessage(int.from_bytes(delivery.tag, "big"), state))
