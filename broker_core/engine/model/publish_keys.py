"""Publish keys: each with its last published number, so that a repeated write has no effect.

A key is forgotten `PUBLISH_KEY_AGE` after its last publish. Steps of the wall clock beyond a day do not count (`skipped`): the
clock was set, or the broker was off. A key belongs to the user of its last publish.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..columns.counters import add_to
from ..columns.limits import PUBLISH_KEY_AGE


class PublishKey(NamedTuple):
    """Key of a publish, which has no effect unless its number is higher than the last one of (kind, id)."""

    kind: str  # "stream" (query id, batch id) or "txn" (txnAppId, txnVersion)
    id: str
    number: int


class Known(NamedTuple):
    """The last publish under a key."""

    number: int
    time: int  # microseconds since 1970, without skipped time
    user: str
    elsewhere: str | None = None  # the writer's text about the write's parts at other brokers


class PublishKeys:
    """The known keys, in the order of their last publish."""

    def __init__(self) -> None:
        self.skipped = 0  # microseconds
        self._known: dict[tuple[str, str], Known] = {}
        self._counts: Counter[str] = Counter()  # derived: keys by user

    def __len__(self) -> int:
        return len(self._known)

    def last(self, key: PublishKey, now: int) -> int | None:
        """None: the key is unknown, or forgotten now."""
        known = self._known.get((key.kind, key.id))
        return None if known is None or known.time < now - self.skipped - PUBLISH_KEY_AGE else known.number

    def elsewhere(self, key: PublishKey) -> str | None:
        """Only for the last number."""
        known = self._known.get((key.kind, key.id))
        return known.elsewhere if known is not None and known.number == key.number else None

    def count(self, user: str) -> int:
        return self._counts[user]

    def note(self, key: PublishKey, time: int, user: str, elsewhere: str | None = None) -> None:
        self._drop((key.kind, key.id))
        time -= self.skipped
        self._known[key.kind, key.id] = Known(key.number, time, user, elsewhere)
        add_to(self._counts, user, 1)
        while (oldest := next(iter(self._known))) and self._known[oldest].time < time - PUBLISH_KEY_AGE:
            self._drop(oldest)

    def _drop(self, name: tuple[str, str]) -> None:
        known = self._known.pop(name, None)
        if known is not None:
            add_to(self._counts, known.user, -1)

    def to_json(self) -> list[list[Any]]:
        """`skipped` is not included."""
        return [[*name, *known] for name, known in self._known.items()]

    @classmethod
    def from_json(cls, data: Iterable[list[Any]], skipped: int) -> PublishKeys:
        keys = cls()
        keys.skipped = skipped
        for kind, name, *fields in data:
            known = keys._known[kind, name] = Known(*fields)
            keys._counts[known.user] += 1
        return keys
