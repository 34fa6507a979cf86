"""A link on which we show messages and take none: distribution mode *copy*."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker_core.amqp import TransactionalState
from penstock.broker_core.amqp.performatives import TERMINAL, DeliveryState
from penstock.broker_core.amqp_plane.links.outgoing import Outgoing
from penstock.broker_core.amqp_plane.transactions.retiring import known
from penstock.broker_core.engine.commands import queues as c

if TYPE_CHECKING:
    from penstock.broker_core.amqp import Sender
    from penstock.broker_core.amqp.deliveries import Delivery
    from penstock.broker_core.amqp_plane.connections.peer import Peer
    from penstock.broker_core.amqp_plane.links.termini import SourceTerminus
    from penstock.broker_core.engine.columns.rowset import RowSet
    from penstock.broker_core.engine.model.dispositions import Ending
    from penstock.broker_core.service.turn import Turn


class Browsing(Outgoing):
    """Copy distribution: the messages that wait are shown, and stay (3.3). Outcomes change nothing."""

    acquires = False

    def __init__(
        self, peer: Peer, link: Sender, terminus: SourceTerminus, default: DeliveryState | None, *, presettled: bool
    ) -> None:
        super().__init__(peer, link, terminus, default, presettled=presettled)
        self._place = 0

    def begin(self, turn: Turn) -> None:
        self.peer.plane.passes.acquiring.join(turn, self)

    def take(self, turn: Turn, messages: int, max_bytes: int, behind: tuple[int, ...] = ()) -> tuple[RowSet, int]:
        (rows, self._place), end = turn.carry(c.Browse(self.queue, self._place, messages, max_bytes, self._look()))
        return rows, end

    def _release(self, tags: list[bytes], ending: Ending) -> None:
        pass

    def give_back(self) -> None:
        """What lies behind it as well, or that would be shown first."""
        self._place = int.from_bytes(self._backlog[0][0], "big")
        self._forget_backlog()
        self._unsent.clear()
        self._add_underway(-self._pending)
        self._pending = 0

    def _settle_sent(self, tags: list[bytes]) -> None:
        pass

    def disposed(self, deliveries: list[Delivery], state: DeliveryState | None, settled: bool) -> None:
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
        self.made_room()

    def end(self, turn: Turn) -> None:
        self.ended = True
        self._leave()
        self._add_underway(-self._pending)
        self._forget_backlog()
