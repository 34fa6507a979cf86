"""Lookalikes in selectors (see `selectors.lookalikes`): which of them the messages of each queue have had, as far as compared.

Only a selector with lookalikes has an entry. The first chunk of messages without such a property is reported once in the log.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from ..selectors import Presence, Selector, hints_of

if TYPE_CHECKING:
    from ..engine.model.queue import Queue

log = logging.getLogger("penstock")

MAX_ENTRIES = 1024  # selectors with lookalikes, over all queues; below 1 KiB each. The least recently compared go first
_Key = tuple[int, str]  # queue id, selector


class Presences:
    """Entries of a broker. Every method may be called from any thread, with or without the broker's lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[_Key, Presence] = OrderedDict()

    def add(self, queue: Queue, selector: Selector, presence: Presence) -> None:
        """Add what an evaluation of some messages has found."""
        if not presence.compared:
            return
        key = queue.id, selector.text
        with self._lock:
            known = self._entries.pop(key, None)
            if known is not None:
                known.merge(presence)
            self._entries[key] = known or presence
            while len(self._entries) > MAX_ENTRIES:
                self._entries.popitem(last=False)
        if known is None and presence.absent:
            log.info("queue %r, selector %r: %s", queue.name, selector.text, "; ".join(presence.hints()))

    def hints(self, queue: Queue | None, selector: Selector) -> list[str]:
        """Return hints for lookalikes that no compared message of the queue has, or that none was compared for yet."""
        if not selector.lookalikes:
            return []
        with self._lock:
            known = None if queue is None else self._entries.get((queue.id, selector.text))
            return hints_of(selector) if known is None else known.hints()

    def compared(self, queue: Queue, selector: Selector) -> list[str]:
        """Return hints for lookalikes that no compared message has; none before a message was compared."""
        with self._lock:
            known = self._entries.get((queue.id, selector.text))
            return [] if known is None else known.hints()
