"""The keys under which writes were published, each with its highest number: what makes a repeated write a no-op.

A lower number stays a no-op while its key is known: a key is forgotten `PUBLISH_KEY_AGE` after its last publish. That is
in a time of their own, which leaves out what the wall clock went on at once, beyond a day (`skipped`): it jumped, or the broker
was off. Its user is whoever published under it last; the keys of one user are limited, so that one leaves room for others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..columns.limits import PUBLISH_KEY_AGE


class PublishKey(NamedTuple):
    """Makes a publish idempotent: a number that is not higher than the last one of (kind, id) is a no-op."""

    kind: str  # "stream" (query id, batch id) or "txn" (txnAppId, txnVersion)
    id: str
    number: int


class Known(NamedTuple):
    """Last publish under one key."""

    number: int
    time: int  # of its last publish, microseconds since 1970 without what was skipped until then
    user: str
    elsewhere: str | None = None  # of a write over several brokers: what belongs to it elsewhere, as its writer says


class PublishKeys:
    """By kind and id, in the order of their last publish."""

    def __init__(self) -> None:
        self.skipped = 0  # microseconds of the wall clock that make no key older
        self._known: dict[tuple[str, str], Known] = {}
        self._counts: Counter[str] = Counter()  # derived: keys by user

    def __len__(self) -> int:
        return len(self._known)

    def last(self, key: PublishKey, now: int) -> int | None:
        """The highest number published under the key; None where it is not known, or forgotten by the time `now`."""
        known = self._known.get((key.kind, key.id))
        return None if known is None or known.time < now - self.skipped - PUBLISH_KEY_AGE else known.number

    def elsewhere(self, key: PublishKey) -> str | None:
        """Return what the publish with this very number said of its parts at other brokers."""
        known = self._known.get((key.kind, key.id))
        return known.elsewhere if known is not None and known.number == key.number else None

    def count(self, user: str) -> int:
        """Count the keys of a user."""
        return self._counts[user]

    def note(self, key: PublishKey, time: int, user: str, elsewhere: str | None = None) -> None:
        """A publish under the key at this time; forgets those of too long ago."""
        self._drop((key.kind, key.id))
        time -= self.skipped
        self._known[key.kind, key.id] = Known(key.number, time, user, elsewhere)
        self._counts[user] += 1
        while (oldest := next(iter(self._known))) and self._known[oldest].time < time - PUBLISH_KEY_AGE:
            self._drop(oldest)

    def _drop(self, name: tuple[str, str]) -> None:
        known = self._known.pop(name, None)
        if known is not None:
            self._counts[known.user] -= 1
            if not self._counts[known.user]:
                del self._counts[known.user]

    def to_json(self) -> list[list[Any]]:
        """Return the form of snapshots, without `skipped`."""
        return [[*name, *known] for name, known in self._known.items()]

    @classmethod
    def from_json(cls, data: Iterable[list[Any]], skipped: int) -> PublishKeys:
        """Read the form of snapshots."""
        keys = cls()
        keys.skipped = skipped
        for kind, name, *fields in data:
            known = keys._known[kind, name] = Known(*fields)
            keys._counts[known.user] += 1
        return keys
