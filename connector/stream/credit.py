"""Limits of a trigger, for all queues of all brokers together."""

from __future__ import annotations

from typing import NamedTuple


class TriggerLimits(NamedTuple):
    """Limits at one queue, under the names of the protocol. None: no limit."""

    messages: int | None
    bytes: int | None
    until: int | None = None  # a sequence number, excluded
    exclude: bool = False  # messages that this planner gave back unread
    waitMs: int = 0
    alone: bool = True  # take a message larger than `bytes` alone
    measure: bool = False  # return the size of the batch
    minPartitions: int = 1


class Credit:
    """Messages and bytes that one trigger may still take; None: any number. `shared`: several queues spend from it."""

    def __init__(self, messages: int | None, size: int | None, *, shared: bool = False) -> None:
        self._messages, self._bytes = messages, size
        self._untouched = True  # then a message larger than the limit may be taken alone
        self.shared = shared

    @property
    def limited(self) -> bool:
        return self._messages is not None or self._bytes is not None

    @property
    def spent(self) -> bool:
        return 0 in (self._messages, self._bytes)

    def limits(self, until: int | None, *, exclude: bool, wait_ms: int = 0, partitions: int = 1) -> TriggerLimits:
        """A queue is asked even without credit, to settle finished batches."""
        if self.spent:
            return TriggerLimits(None, None, 0, exclude=exclude, minPartitions=partitions)
        measure = self.limited and self.shared
        return TriggerLimits(self._messages, self._bytes, until, exclude, wait_ms, self._untouched, measure, partitions)

    def spend(self, messages: int, size: int) -> None:
        self._untouched = self._untouched and not messages
        if self._messages is not None:
            self._messages = max(0, self._messages - messages)
        if self._bytes is not None:
            self._bytes = max(0, self._bytes - size)

    def reserve(self, share: Credit) -> None:
        self._untouched = self._untouched and share.spent
        if not share.spent:
            self.spend(share._messages or 0, share._bytes or 0)

    def divided(self, among: int) -> list[Credit]:
        """Return equal shares for brokers that are asked side by side, some of them empty if the credit is too small.

        A message larger than a share is left to a trigger that asks one broker after another.
        """
        return [self._share(number, among) for number in range(among)]

    def _share(self, number: int, among: int) -> Credit:
        parts = [None if whole is None else (whole + among - 1 - number) // among for whole in (self._messages, self._bytes)]
        share = Credit(*parts, shared=True)
        share._untouched = among == 1 and self._untouched
        return share
