"""Credit of a trigger: the messages and bytes that it may take, from all queues of all brokers together."""

from __future__ import annotations

from typing import NamedTuple


class TriggerLimits(NamedTuple):
    """Limits of what one trigger takes of a queue. None: no limit."""

    messages: int | None
    bytes: int | None
    until: int | None = None  # the first sequence number not to take
    exclude: bool = False  # not again what this planner gave back unread
    wait_ms: int = 0
    alone: bool = True  # one message larger than `bytes` is taken alone
    measure: bool = False  # say how much was taken
    partitions: int = 1  # of so many tasks at least


class Credit:
    """Messages and bytes that one trigger may still take. None: any number.

    It is handed from queue to queue, and each spends what it took. `shared` says that others follow, or have been asked before.
    """

    def __init__(self, messages: int | None, size: int | None, *, shared: bool = False) -> None:
        self._messages, self._bytes = messages, size
        self._whole = True
        self.shared = shared

    @property
    def limited(self) -> bool:
        """Say whether there is any limit."""
        return self._messages is not None or self._bytes is not None

    @property
    def spent(self) -> bool:
        """Say whether nothing is left."""
        return 0 in (self._messages, self._bytes)

    def limits(self, until: int | None, *, exclude: bool, wait_ms: int = 0, partitions: int = 1) -> TriggerLimits:
        """Return the limits for the next queue. It is asked even if nothing is left, so that finished batches are settled."""
        if self.spent:
            return TriggerLimits(None, None, 0, exclude=exclude, partitions=partitions)
        measure = self.limited and self.shared
        return TriggerLimits(self._messages, self._bytes, until, exclude, wait_ms, self._whole, measure, partitions)

    def spend(self, messages: int, size: int) -> None:
        """Take off what a queue gave."""
        self._whole = self._whole and not messages
        if self._messages is not None:
            self._messages = max(0, self._messages - messages)
        if self._bytes is not None:
            self._bytes = max(0, self._bytes - size)

    def reserve(self, other: Credit) -> None:
        """Take off what somebody else may still take. With nothing left of `other` that is nothing."""
        self._whole = self._whole and other.spent
        if not other.spent:
            if self._messages is not None:
                self._messages = max(0, self._messages - (other._messages or 0))
            if self._bytes is not None:
                self._bytes = max(0, self._bytes - (other._bytes or 0))

    def divided(self, among: int) -> list[Credit]:
        """Return a share for each of so many that are asked at once; some have nothing where there is too little for all.

        A message larger than a share is left to a trigger that asks one after another.
        """
        return [self._share(number, among) for number in range(among)]

    def _share(self, number: int, among: int) -> Credit:
        parts = [None if whole is None else (whole + among - 1 - number) // among for whole in (self._messages, self._bytes)]
        share = Credit(*parts, shared=True)
        share._whole = among == 1 and self._whole
        return share
