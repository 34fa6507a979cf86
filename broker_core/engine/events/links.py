"""Events of messages that are acquired, settled and returned, and of links' subscriptions."""

from __future__ import annotations

from dataclasses import dataclass

from ..columns.rowset import RowSet
from .codec import Event, know


@dataclass(frozen=True)
class Acquired(Event):
    """Messages AVAILABLE → ACQUIRED by a link, or by a lease as a new batch."""

    kind = "acquired"
    queue: str
    holder: int
    rows: RowSet
    lease: str | None = None
    batch: int | None = None
    sign: str | None = None  # of the batch; None: an older version's


@dataclass(frozen=True)
class Settled(Event):
    """Messages ACQUIRED → ARCHIVED. With a lease: an operator ended these rows of its batch."""

    kind = "settled"
    queue: str
    holder: int
    rows: RowSet
    outcome: int
    time: int
    error: str | None = None
    lease: str | None = None
    reason: int | None = None  # MALFORMED: nobody could decode them
    taker: str | None = None  # name of the lease, or of the link's user, that had them; None also in older journals


@dataclass(frozen=True)
class Returned(Event):
    """Messages ACQUIRED → AVAILABLE, at their sequence numbers."""

    kind = "returned"
    queue: str
    holder: int
    rows: RowSet
    cause: int
    lease: str | None = None
    annotations: bytes | None = None  # added to those of the messages


@dataclass(frozen=True)
class HoldersLost(Event):
    """Messages that come back after a restart, since the links that held them are gone."""

    kind = "holders.lost"
    rows: dict[str, RowSet]
    cause: int


@dataclass(frozen=True)
class Subscribed(Event):
    """A new subscription of a link to a queue."""

    kind = "subscribed"
    journaled = False
    queue: str
    holder: int
    priority: int = 0
    exclusive: bool = False
    selector: str | None = None
    user: str | None = None


@dataclass(frozen=True)
class Looked(Event):
    """A subscription searched as far as `positions`, and has seen the return logs up to `epochs`: one each a level."""

    kind = "looked"
    journaled = False
    queue: str
    holder: int
    positions: list[int]
    epochs: list[int]


@dataclass(frozen=True)
class Excluded(Event):
    """Messages not to be offered to this link again."""

    kind = "excluded"
    journaled = False
    queue: str
    holder: int
    rows: RowSet


@dataclass(frozen=True)
class Unsubscribed(Event):
    """The end of a link's subscription."""

    kind = "unsubscribed"
    journaled = False
    queue: str
    holder: int


know(Acquired, Settled, Returned, HoldersLost)
