"""A link that shows messages and acquires none."""

from __future__ import annotations

from ...amqp import Condition, Sender, TransactionalState
from ...amqp.deliveries import Delivery
from ...amqp.performatives import TERMINAL, DeliveryState, Error
from ...amqp.types import Value
from ...engine import commands as c
from ...engine.columns.rowset import RowSet
from ...security.rights import Right
from ...service.turn import Turn
from ..connections.peer import Peer
from ..transactions.outcomes import known
from ..transactions.registry import ConnectionTransactions
from .outgoing_link import OutgoingLink
from .termini import SourceTerminus


class BrowserLink(OutgoingLink):
    """Link with distribution mode *copy* (3.3). It sees all waiting messages; outcomes change nothing."""

    acquires = False
    looks_anyway = True  # it may also show messages that others hold
    right = Right.BROWSE

    def __init__(
        self, peer: Peer, transactions: ConnectionTransactions, link: Sender, terminus: SourceTerminus, *, presettled: bool
    ) -> None:
        super().__init__(peer, link, terminus, presettled=presettled)
        self._transactions = transactions
        self._position = 0  # the next sequence number to show

    def take(self, turn: Turn, messages: int, max_bytes: int, behind: tuple[int, ...] = ()) -> tuple[RowSet, int]:
        seen, end = turn.execute(c.Browse(self.queue, self._position, messages, max_bytes, self.known_matches()))
        self._position, self.undecided = seen.next, seen.unevaluated
        return seen.rows, end

    def give_back(self) -> None:
        """Show these messages and later ones again, in order."""
        self._position = int.from_bytes(self._backlog[0][0], "big")
        self._forget_backlog()
        self._forget_unsent()

    def acquire_in(self, txn_id: Value) -> None:
        if txn_id is not None:
            text = "a browser acquires nothing, in a transaction or outside"
            self.peer.detach(self, Error(condition=Condition.NOT_IMPLEMENTED, description=text))

    def disposed(self, deliveries: list[Delivery], state: DeliveryState | None, settled: bool) -> None:
        if isinstance(state, TransactionalState):
            transaction = known(self, self._transactions, state)
            if transaction is None:
                return
            transaction.done += len(deliveries)  # no work waits for its commit
            state = state.outcome
        waiting = [d for d in deliveries if not settled and isinstance(state, TERMINAL) and not d.settled]
        if waiting and self.may_tell:
            self.session.dispose(waiting, state)
            self.peer.send_soon()
        self.gained_capacity()

    def end(self, turn: Turn) -> None:
        self.ended = True
        self._leave()
        self._add_underway(-self._pending)
        self._forget_backlog()
