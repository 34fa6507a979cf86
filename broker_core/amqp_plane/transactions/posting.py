"""Messages of a transaction: staged in the pass that brings them, each confirmed with its provisional outcome (4.4.1).

Their sender's credit is renewed as these leave, not at the commit: a transaction may be larger than any credit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..links.incoming import confirm
from ..loop import exchanges
from ..loop.exchanges import ExchangeRoute

if TYPE_CHECKING:
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

    def execute(self, turn: Turn, loop: Loop, parts: Parts, found: Any) -> None:
        """Stage what has come; an effect tells the links. `found`: what was read of it, Exchanged by an exchange, else
        ArrivedMessages."""
        if isinstance(self.route, ExchangeRoute):
            refused, error, end = exchanges.carry_out(turn, found)
        elif found.rows:
            _, error, end = turn.post(self.transaction.number, self.route, found)
            refused = found.refused
        else:
            refused, error, end = found.refused, None, turn.end
        if error is not None or refused:
            self.transaction.fail(refused[0][1] if error is None else error)  # at once: its discharge may stand behind this
        else:
            self.transaction.done += sum(len(deliveries) for _, deliveries in parts)
        loop.when_durable(end, lambda: confirm(parts, refused, error))
