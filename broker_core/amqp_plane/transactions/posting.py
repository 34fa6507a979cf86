"""Messages of a transaction: staged in the pass that brings them, each confirmed with its provisional outcome (4.4.1).

Their sender's credit is renewed as these leave, not at the commit: a transaction may be larger than any credit.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..links.incoming import confirm
from ..loop import exchanges
from ..loop.exchanges import ExchangeRoute

if TYPE_CHECKING:
    from ...errors import PenstockError
    from ..broker import Turn
    from ..loop.batch import Parts
    from ..loop.exchanges import Refused
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
        Arrived."""
        told = partial(self._told, loop, parts)
        if isinstance(self.route, ExchangeRoute):
            exchanges.carry_out(turn, found, told)
        elif found.rows:
            number, refused = self.transaction.number, found.refused
            turn.post(number, self.route, found, lambda reply, error, end: told(refused, error, end))
        else:
            told(found.refused, None, turn.end)

    def _told(self, loop: Loop, parts: Parts, refused: Refused, error: PenstockError | None, end: int) -> None:
        if error is not None or refused:
            self.transaction.fail(refused[0][1] if error is None else error)  # at once: its discharge may stand behind this
        else:
            self.transaction.done += sum(len(deliveries) for _, deliveries in parts)
        loop.when_durable(end, lambda: confirm(parts, refused, error))
