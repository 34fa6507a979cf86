"""Outcomes of receivers, until a pass carries them out.

What ends messages whose receiver has settled them is told to nobody, and seldom makes anything available. So it stands back
behind what somebody waits for, and shares the next sync, unless there is so much that it is worth a pass, it makes room for what
comes, or frees what somebody asks for; and never behind what its session says later, which would be safe before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...amqp.deliveries import Delivery
    from ...amqp.sessions import Session
    from ...engine.model.dispositions import Disposition
    from ..links.consuming import Consuming
    from ..transactions.retiring import Retirement

    Dispositions = dict[tuple[Consuming, Disposition | Retirement], list[Delivery]]

LARGE_PASS = 256  # deliveries that are worth a pass by themselves; fewer wait for the disk to be done with the pass before


class Outcomes:
    """Outcomes by link and disposition: `now` asks for a pass, `later` is what nobody waits for."""

    def __init__(self) -> None:
        self.now: Dispositions = {}
        self.later: Dispositions = {}

    def __bool__(self) -> bool:
        return bool(self.now or self.later)

    def add(self, link: Consuming, disposition: Disposition | Retirement, deliveries: list[Delivery]) -> bool:
        """Add an outcome. Returns whether it asks for a pass."""
        waits = disposition.outcome is None or not all(delivery.remote_settled for delivery in deliveries)
        now = waits or len(deliveries) >= LARGE_PASS
        (self.now if now else self.later).setdefault((link, disposition), []).extend(deliveries)
        return now

    def take(self, *, every: bool) -> Dispositions:
        """Take what asked for a pass, or all there is."""
        taken, self.now = self.now, {}
        if every:
            for key, deliveries in self.take_later().items():
                taken.setdefault(key, []).extend(deliveries)
        return taken

    def take_later(self) -> Dispositions:
        """Take all that stands back."""
        later, self.later = self.later, {}
        return later

    def take_before(self, sessions: set[Session]) -> Dispositions:
        """Take what stands back and was said on these sessions, on which more is to be carried out."""
        return self.take_of(lambda link: link.session in sessions)

    def take_of(self, chosen: Callable[[Consuming], bool]) -> Dispositions:
        """Take what stands back, of some links."""
        return {key: self.later.pop(key) for key in [key for key in self.later if chosen(key[0])]}
