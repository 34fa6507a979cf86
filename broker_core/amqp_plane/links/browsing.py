"""A link on which we show messages and take none: distribution mode *copy*."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...amqp import Condition, TransactionalState
from ...amqp.performatives import TERMINAL, DeliveryState, Error
from ...engine import commands as c
from ..transactions.retiring import known
from .outgoing import Outgoing

if TYPE_CHECKING:
    from ...amqp import Sender
    from ...amqp.deliveries import Delivery
    from ...amqp.types import Value
    from ...engine.columns.rowset import RowSet
    from ...service.turn import Turn
    from ..ports import LinkPeer
    from .termini import SourceTerminus


class Browsing(Outgoing):
    """Copy distribution: the messages that wait are shown, and stay (3.3). Outcomes change nothing."""

    acquires = False

    def __init__(self, peer: LinkPeer, link: Sender, terminus: SourceTerminus, *, presettled: bool) -> None:
        super().__init__(peer, link, terminus, presettled=presettled)
        self._position = 0  # the sequence number from which on it has shown nothing

    @property
    def looks_anyway(self) -> bool:
        """Always look: what others hold may be shown, too."""
        return True

    def take(self, turn: Turn, messages: int, max_bytes: int, behind: tuple[int, ...] = ()) -> tuple[RowSet, int]:
        """Find the next messages to show; all that wait are for every browser."""
        seen, end = turn.carry(c.Browse(self.queue, self._position, messages, max_bytes, self._look()))
        self._position, self.undecided = seen.place, seen.unevaluated
        return seen.rows, end

    def give_back(self) -> None:
        """Show it again later, and what lies behind it as well, or that would be shown first."""
        self._position = int.from_bytes(self._backlog[0][0], "big")
        self._forget_backlog()
        self._forget_unsent()

    def _settle_sent(self, tags: list[bytes]) -> None:
        """Leave the messages as they are."""

    def acquire_in(self, txn_id: Value) -> bool:
        """Detach the link where its receiver names a transaction."""
        if txn_id is None:
            return True
        text = "a browser acquires nothing, in a transaction or outside"
        self.peer.detach(self, Error(condition=Condition.NOT_IMPLEMENTED, description=text))
        return False

    def disposed(self, deliveries: list[Delivery], state: DeliveryState | None, settled: bool) -> None:
        """Settle deliveries whose receiver waits for that, and go on."""
        if isinstance(state, TransactionalState):
            transaction = known(self, state)
            if transaction is None:
                return
            transaction.carried += len(deliveries)  # there is nothing that waits for its commit
            state = state.outcome
        waiting = [d for d in deliveries if not settled and isinstance(state, TERMINAL) and not d.settled]
        if waiting and self.may_tell:
            self.link.session.dispose(waiting, state)
            self.peer.send_soon()
        self.gained_capacity()

    def end(self, turn: Turn) -> None:
        """End the link: it holds nothing."""
        self.ended = True
        self._leave()
        self._add_underway(-self._pending)
        self._forget_backlog()
