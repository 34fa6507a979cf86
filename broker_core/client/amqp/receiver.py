"""Receiving: deliveries in batches, outcomes in ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...amqp import Accepted, LocalProtocolError, Modified, Rejected, Released, events
from ...amqp.deliveries import Delivery
from ...amqp.performatives import Error
from .receiving import ReceivingLink
from .reports import report, wants_reports

_ACCEPTED, _RELEASED = Accepted(), Released()


class Receiver(ReceivingLink):
    """A receiving link, made by `Connection.receiver`. When it ends, deliveries without an outcome return to their queue. At a
    Penstock broker, only those that `receive` has returned then count as attempts.

    A delivery has `payload` (the encoded message, see `amqp.decode_message`), `id` and `tag`.
    """

    _can_report = True

    def receive(self, most: int | None = None, timeout_s: float | None = None) -> list[Delivery]:
        """Return the deliveries that have come, in order. Empty when none came, or none can come because `limit` is reached.

        Args:
            most: Number of deliveries at most; None for all that are here.
            timeout_s: Seconds to wait for the first of them at most. None waits without a limit.

        Raises:
            PenstockError: The broker has ended the link, or the connection has failed.
        """
        found: list[Delivery] = self._take(most, timeout_s)
        return found

    def _hand_over(self, found: list[Delivery]) -> None:
        if not found[-1].settled and wants_reports(self.link):
            with suppress(LocalProtocolError):  # the link has just ended: nothing counts
                report(found[-1])
            self.connection.flush()

    # --- outcomes

    def accept(self, deliveries: Sequence[Delivery]) -> None:
        """Accept deliveries. Neighbours share a frame; nothing is waited for.

        Args:
            deliveries: What `receive` returned; those that are settled are left out.

        Raises:
            PenstockError: The broker has ended the link, or the connection has failed.
        """
        self._settle(deliveries, _ACCEPTED)

    def release(self, deliveries: Sequence[Delivery]) -> None:
        """Release deliveries: they return to their positions in the queue, not counted.

        Args:
            deliveries: As of `accept`.

        Raises:
            PenstockError: As of `accept`.
        """
        self._settle(deliveries, _RELEASED)

    def release_rest(self) -> None:
        """Take the credit back, and release all that has come and that `receive` has not returned.

        Raises:
            PenstockError: As of `drain`.
        """
        self.drain()
        waiting, self._waiting = self._waiting, []
        self.release(waiting)

    def reject(self, deliveries: Sequence[Delivery], description: str | None = None, condition: str = "amqp:not-allowed") -> None:
        """Reject deliveries that nobody can use: the broker archives or dead-letters them.

        Args:
            deliveries: As of `accept`.
            description: Reason, for people.
            condition: Reason, for programs: a symbol of AMQP's.

        Raises:
            PenstockError: As of `accept`.
        """
        self._settle(deliveries, Rejected(error=Error(condition=condition, description=description)))

    def modify(
        self,
        deliveries: Sequence[Delivery],
        *,
        failed: bool = True,
        undeliverable: bool = False,
        annotations: Mapping[str, Any] | None = None,
    ) -> None:
        """Return deliveries to their queue.

        Args:
            deliveries: As of `accept`.
            failed: Whether this delivery counts as a failed one.
            undeliverable: Whether to keep them from this link.
            annotations: Message annotations to merge into theirs.

        Raises:
            PenstockError: As of `accept`.
        """
        state = Modified(delivery_failed=failed, undeliverable_here=undeliverable, message_annotations=annotations)
        self._settle(deliveries, state)

    def _settle(self, deliveries: Sequence[Delivery], state: Any) -> None:
        self.check()
        open_ = [delivery for delivery in deliveries if not delivery.settled]
        if open_:
            self.link.session.dispose(open_, state)
            self.connection.flush()

    # --- for the connection

    def on_event(self, event: events.Event) -> None:
        """Handle an event of this link."""
        if isinstance(event, events.Delivered):
            self.received += len(event.deliveries)
            self._waiting += event.deliveries
        else:
            super().on_event(event)
