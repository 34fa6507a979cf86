"""*Immediate* messages: offered to the links that can take messages, and stored only if one of them does.

The engine decides (see `engine.decide.immediate`). This module provides the links with capacity, in the order in which the queue
asks them, and evaluates their selectors on the arriving messages. While a link of the queue awaits an evaluation for earlier
messages, the decision waits: those messages have precedence. A crash meanwhile loses nothing: the sender has no outcome yet.

The sender receives *accepted* for a message that a link acquired, also if that link gives it back later, and *released* for a
message that no link could take.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ... import selectors
from ...amqp import Condition
from ..links.incoming import confirm, kept_out
from .exchanges import Unroutable
from .offers import Offers

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ...amqp.deliveries import Delivery
    from ...messages.encoding.arriving import ArrivedMessages
    from ...selectors import Selector
    from ...service.turn import Turn
    from ..links.outgoing import Outgoing
    from ..ports import Sender
    from .passes import Passes


class ImmediateBatch:
    """Messages that one pass brought for one queue, at least one; not stored."""

    def __init__(self, queue: str, parts: list[tuple[Sender, list[Delivery]]], found: ArrivedMessages) -> None:
        self.queue, self._parts, self._found = queue, parts, found
        self._matches: dict[Selector, npt.NDArray[np.bool_]] = {}

    def evaluate(self, several: Iterable[Selector]) -> None:
        """Evaluate selectors that are likely to be needed, before the broker's lock is taken."""
        for selector in several:
            self.matches(selector)

    def matches(self, selector: Selector) -> npt.NDArray[np.bool_]:
        """Return by message whether the selector matches it."""
        known = self._matches.get(selector)
        if known is None:
            known = self._matches[selector] = selectors.matches(selector, self._found.batch)
        return known

    def deliver(self, turn: Turn, passes: Passes) -> None:
        """Let the links take what they can, and tell the senders the outcomes."""
        acquiring, found = passes.acquiring, self._found
        offers: Offers[Outgoing] = Offers(found.rows, self.matches, grouped=turn.view.is_grouped(self.queue))
        acquiring.add_to(offers, self.queue)
        delivered, error, end = turn.enqueue_immediate(self.queue, found, offers.offers, offers.budgets)
        if error is not None:  # the queue was deleted
            passes.when_durable(end, lambda: confirm(self._parts, found.refused, error))
            return
        for holder, rows in delivered.taken:
            acquiring.acquired(turn, offers.links[holder], rows)
        refused = kept_out(passes.nodes, self.queue, found, delivered.refused)
        if delivered.undelivered:
            no_taker = Unroutable(Condition.NOT_FOUND, f"no consumer of {self.queue!r:.80} could take it immediately")
            numbers = found.numbers
            refused += [(numbers[row], no_taker) for row in delivered.undelivered]
        passes.when_durable(end, lambda: confirm(self._parts, refused, None))
