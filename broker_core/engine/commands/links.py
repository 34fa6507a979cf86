"""Commands of links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..columns.rowset import RowSet
from ..columns.states import Cause, Outcome
from ..model.dispositions import DeliveryEnd, Retry
from .command import Command

if TYPE_CHECKING:
    from ..model.search import Matching


@dataclass(frozen=True)
class Subscribe(Command[int]):
    """A subscription of a link. Reply: its holder number."""

    queue: str
    priority: int = 0  # the highest comes first
    exclusive: bool = False
    selector: str | None = None  # `Acquire` brings the known matches
    user: str | None = None
    container: str | None = None  # for the archive
    by_number: bool = False  # only for `AcquireDeferred`: the link does not count as a consumer
    one_group: bool = False  # it takes only messages of the group that `LockGroup` locks for it; without a selector


@dataclass(frozen=True)
class Unsubscribe(Command[RowSet]):
    """The end of a link's subscription. Reply: the rows that it held."""

    queue: str
    holder: int
    cause: Cause = Cause.LINK_LOST  # of the messages that return
    outcome: Outcome | None = None  # the source's default outcome, if it settles: ACCEPTED or REJECTED
    begun: RowSet | None = None  # messages that the client worked on; None: all; others return as PREFETCHED


class Taken(NamedTuple):
    """Acquired messages. Without any, `unevaluated` is the block for which the selector must be evaluated."""

    rows: RowSet
    unevaluated: int | None = None


@dataclass(frozen=True)
class Acquire(Command[Taken]):
    """The next messages for a link, up to the first one for which its selector is not evaluated: see `Matching`."""

    queue: str
    holder: int
    messages: int
    max_bytes: int | None = None
    matching: Matching | None = None
    behind: tuple[int, ...] = ()  # links with precedence, which get the messages that they have not passed


@dataclass(frozen=True)
class AcquireDeferred(Command[RowSet]):
    """DEFERRED messages for a link, by their sequence numbers. If some are missing, it acquires no message. Expired ones end now,
    and count as missing. Reply: the missing ones."""

    queue: str
    holder: int
    rows: RowSet
    max_bytes: int | None = None  # a single message may be larger


class Browsed(NamedTuple):
    """Messages, and the sequence number to continue from. `unevaluated` is as in `Taken`."""

    rows: RowSet
    next: int
    unevaluated: int | None = None


@dataclass(frozen=True)
class Browse(Command[Browsed]):
    """AVAILABLE messages from sequence number `first` on. They stay AVAILABLE."""

    queue: str
    first: int
    messages: int
    max_bytes: int | None = None
    matching: Matching | None = None


@dataclass(frozen=True)
class Settle(Command[None]):
    """The end of messages that a link holds."""

    queue: str
    holder: int
    rows: RowSet
    outcome: Outcome = Outcome.ACCEPTED
    error: str | None = None  # of REJECTED
    annotations: bytes | None = None  # as in `Release`


@dataclass(frozen=True)
class Release(Command[None]):
    """The return of messages that a link holds."""

    queue: str
    holder: int
    rows: RowSet
    cause: Cause = Cause.RELEASED
    exclude: bool = False  # undeliverable here: not offered to this link again
    annotations: bytes | None = None  # an encoded map that is merged into those of the messages
    retry: Retry | None = None  # None: by the queue's options


@dataclass(frozen=True)
class RenewLock(Command[None]):
    """A new lock of messages that a link holds, by the queue's option lockTimeout, unless the link has locked their group."""

    queue: str
    holder: int
    rows: RowSet


def command_of(disposition: DeliveryEnd, queue: str, holder: int, rows: RowSet) -> Settle | Release:
    if disposition.outcome is not None:
        return Settle(queue, holder, rows, disposition.outcome, disposition.error, disposition.annotations)
    assert disposition.cause is not None
    return Release(queue, holder, rows, disposition.cause, disposition.exclude, disposition.annotations, disposition.retry)
