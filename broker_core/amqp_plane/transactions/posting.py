"""Messages of a transaction: staged in the pass that brings them, each confirmed with its provisional outcome (4.4.1).

Their sender's credit is renewed as these leave, not at the commit: a transaction may be larger than any credit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...engine import commands as c
from ...errors import PenstockError, StorageError
from ...reading.stored import store
from ..links.incoming import confirm
from ..loop import exchanges
from ..loop.exchanges import ExchangeRoute

if TYPE_CHECKING:
    from ...messages.encoding.arriving import Arrived
    from ...service.broker import BrokerService
    from ...service.turn import Turn
    from ..loop.batch import Parts
    from ..ports import Loop
    from .registry import Open


class Posting(NamedTuple):
    """A destination of messages if a transaction commits."""

    route: str | ExchangeRoute
    transaction: Open

    @property
    def by(self) -> str | ExchangeRoute:
        """The queue, or the route by an exchange, with the transaction."""
        return self.route._replace(transaction=self.transaction.number) if isinstance(self.route, ExchangeRoute) else self.route

    def execute(self, turn: Turn, service: BrokerService, loop: Loop, parts: Parts, found: Any) -> None:
        """Stage what has come; an effect tells the links. `found`: what was read of it, Exchanged by an exchange, else
        Arrived."""
        exchanged = isinstance(self.route, ExchangeRoute)
        arrived = found.found if exchanged else found
        refused: list[tuple[int, Exception]] = arrived.refused
        error, end = None, turn.end
        if arrived.rows:
            try:
                if exchanged:
                    refused, end = exchanges.execute(turn, service, found)
                else:
                    end = self._post(turn, service, found)
            except StorageError:
                raise
            except PenstockError as refusal:
                error, end = refusal, turn.end
        if error is not None or refused:
            self.transaction.fail(refused[0][1] if error is None else error)  # at once: its discharge may stand behind this
        else:
            self.transaction.done += sum(len(deliveries) for _, deliveries in parts)
        loop.when_durable(end, lambda: confirm(parts, refused, error))

    def _post(self, turn: Turn, service: BrokerService, found: Arrived) -> int:
        assert isinstance(self.route, str)
        stored = store(found.payload, found.mask)
        attributes = service.attributes(self.route, stored.payload)
        count, number = found.rows, self.transaction.number
        return turn.execute(c.Post(number, self.route, count, found.sizes, stored, attributes))[1]
