"""*Immediate* messages on their way: in the queue since the pass began, and out of it at its end unless somebody took them.

Their senders wait for that: *accepted* is what was acquired, also when its consumer gives it back later; *released* what nobody
had credit for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...amqp import Condition
from ...engine import commands as c
from ...engine.columns.rowset import RowSet
from ..links.incoming import confirm
from .exchanges import Unroutable

if TYPE_CHECKING:
    from ...amqp.deliveries import Delivery
    from ...messages.encoding.arriving import Arrived
    from ...service.turn import Turn
    from ..ports import Sender
    from .passes import Passes


class Waiting(NamedTuple):
    """Messages that one pass brought for one queue. `refused`: by index among all deliveries, as in `confirm`."""

    queue: str
    parts: list[tuple[Sender, list[Delivery]]]
    found: Arrived
    refused: list[tuple[int, Exception]]
    placed: c.Appended

    def withdraw(self, turn: Turn, passes: Passes) -> None:
        """Withdraw what is left when everybody has acquired; the senders hear what became of all."""
        sent, kept = self._sent(), self.placed.kept
        first = self.placed.next - len(sent if kept is None else kept)
        rows, refusal, end = turn.carry_out(c.Withdraw(self.queue, RowSet.range(first, self.placed.next)))
        if refusal is not None:  # the queue was deleted in this pass
            passes.when_durable(end, lambda: confirm(self.parts, self.refused, refusal))
            return
        places = [row - first for row in rows.sequences().tolist()]
        gone = [sent[place if kept is None else kept[place]] for place in places]
        nobody = Unroutable(Condition.NOT_FOUND, f"nobody could take it at once from {self.queue!r:.80}")
        passes.when_durable(end, lambda: confirm(self.parts, [*self.refused, *((index, nobody) for index in gone)], None))

    def _sent(self) -> list[int]:
        """List the indexes, among all, of the deliveries that were enqueued, row by row."""
        bad = {index for index, _ in self.found.refused}
        return [index for index in range(sum(len(deliveries) for _, deliveries in self.parts)) if index not in bad]
