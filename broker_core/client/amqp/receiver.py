"""A link that receives deliveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...amqp import Accepted, LocalProtocolError, Modified, Rejected, Released, events
from ...amqp.deliveries import Delivery
from ...amqp.performatives import Error
from .receiving import ReceivingLink, report, wants_reports

_ACCEPTED, _RELEASED = Accepted(), Released()


class Receiver(ReceivingLink):
    """A link made by `Connection.receiver`. When it ends, deliveries without an outcome return to their queue.

    Penstock then counts an attempt only for deliveries that `receive` has returned. A delivery has `payload` (see
    `amqp.decode_message`), `id` and `tag`.

    Its methods raise PenstockError when the broker has ended the link, or the connection has failed.
    """

    _can_report = True

    def receive(self, most: int | None = None, timeout_s: float | None = None) -> list[Delivery]:
        """Return the deliveries that have come, in order, if any.

        Args:
            most: Largest number of deliveries; None for all that are here.
            timeout_s: Seconds to wait at most for the first one. None waits without a limit.
        """
        return self._take(most, timeout_s)

    def _before_return(self, taken: list[Delivery]) -> None:
        if not taken[-1].settled and wants_reports(self.link):
            with suppress(LocalProtocolError):  # the link has just ended: no attempt counts
                report(taken[-1])
            self.connection.flush()

    def accept(self, deliveries: Sequence[Delivery]) -> None:
        """Accept deliveries. Neighbours share a frame. Does not wait.

        Args:
            deliveries: Deliveries that `receive` returned; settled ones are left out.
        """
        self._settle(deliveries, _ACCEPTED)

    def release(self, deliveries: Sequence[Delivery]) -> None:
        """Release deliveries: they return to their positions in the queue, and no attempt counts.

        Args:
            deliveries: As of `accept`.
        """
        self._settle(deliveries, _RELEASED)

    def release_rest(self) -> None:
        """Take the credit back (see `drain`), and release deliveries that `receive` has not returned."""
        self.drain()
        waiting, self._waiting = self._waiting, []
        self.release(waiting)

    def reject(self, deliveries: Sequence[Delivery], description: str | None = None, condition: str = "amqp:not-allowed") -> None:
        """Reject deliveries that no consumer can use: the broker archives or dead-letters them.

        Args:
            deliveries: As of `accept`.
            description: Reason, for people.
            condition: Reason, for programs: a symbol of AMQP's.
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
            failed: Whether this delivery counts as failed.
            undeliverable: Whether to keep them from this link.
            annotations: Message annotations to merge into theirs.
        """
        state = Modified(delivery_failed=failed, undeliverable_here=undeliverable, message_annotations=annotations)
        self._settle(deliveries, state)

    def _settle(self, deliveries: Sequence[Delivery], state: Any) -> None:
        self.check()
        open_ = [delivery for delivery in deliveries if not delivery.settled]
        if open_:
            self.link.session.dispose(open_, state)
            self.connection.flush()

    def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Delivered):
            self.received += len(event.deliveries)
            self._waiting += event.deliveries
        else:
            super().on_event(event)
