"""The two kinds of links as the commit loop sees them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from ...amqp import Sender, Session
from ...amqp.deliveries import Delivery
from ...engine.columns.rowset import RowSet
from ...engine.model.dispositions import DeliveryEnd
from ...errors import PenstockError
from ...reading.slices import BlockSlice
from ...selectors import Selector
from ...service.bitmaps import View
from ...service.turn import Turn
from .interest import Candidate, Interest
from .requests import Retirement
from .transport import Transport


class MessageSender(Protocol):
    """A link, or the waiting list of a link. The loop reports the result of each delivery."""

    transport: Transport
    session: Session

    def confirmed(self, deliveries: list[Delivery]) -> None:
        """Accept deliveries: they are in the queue, and durable if the queue is."""

    def refused(self, deliveries: list[Delivery], error: Exception) -> None:
        """Reject deliveries, which are not in the queue, with the reason."""


Parts = list[tuple[MessageSender, list[Delivery]]]  # deliveries by their sender


class ReceiverLink(Candidate):
    """A link on which a client receives. `holder` is its number, also in the engine if it acquires."""

    link: Sender
    session: Session
    queue: str
    selector: Selector | None
    undecided: int | None = None  # the block in which the last `take` needed an evaluation
    holder = 0
    interest: Interest[ReceiverLink] | None = None  # of its queue, once its attach is carried out
    took_at = 0  # when it last took messages, among the links of its connection
    ended = False

    @abstractmethod
    def capacity(self) -> int:
        """Count the messages that it could take now."""

    @abstractmethod
    def budgets(self) -> tuple[tuple[object, int], ...]:
        """Return limits that it shares with other links, each with the number of messages that is left."""

    @abstractmethod
    def known_matches(self) -> View | None:
        """Return the known matches of the link's selector, for one command."""

    @property
    @abstractmethod
    def looks_anyway(self) -> bool:
        """True if it looks although no message is available."""

    @abstractmethod
    def take(self, turn: Turn, messages: int, max_bytes: int, behind: tuple[int, ...] = ()) -> tuple[RowSet, int]:
        """Find the next messages, and the log position at which they may leave.

        `behind`: holders with precedence. The link gets only messages that all of them have passed.
        """

    @abstractmethod
    def taken(self, rows: RowSet) -> int:
        """Count messages that `take` has found; return their number for `deliver`."""

    @abstractmethod
    def deliver(self, acquisition: int, slices: Sequence[BlockSlice]) -> None:
        """Send the messages of a durable acquisition."""

    @abstractmethod
    def found_nothing(self) -> None:
        """Drain the credit if the receiver asked for that (2.6.7): the queue has nothing for the link."""

    def settle(self, turn: Turn, disposition: DeliveryEnd | Retirement, deliveries: list[Delivery]) -> None:
        """Carry out the receiver's outcome."""

    @abstractmethod
    def fail(self, error: PenstockError) -> None:
        """Detach the link with an error."""
