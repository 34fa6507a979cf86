"""Commands of links: holders that end with their connection. A link takes three messages as a lease takes a million."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..columns.rowset import RowSet
from ..columns.states import Cause, Outcome
from ..model.dispositions import Disposition, Retry
from .command import Command

if TYPE_CHECKING:
    from ..model.search import Matching


@dataclass(frozen=True)
class Subscribe(Command[int]):
    """Open a holder that ends with its link, or with the broker. InUse where it may not consume beside others: `consumers`."""

    queue: str
    priority: int = 0  # among the queue's consumers; a higher one goes first
    exclusive: bool = False
    selector: str | None = None  # the canonical text; `Acquire` then brings what is known of it
    user: str | None = None  # who has the link, for the archive; None: nobody with a name


@dataclass(frozen=True)
class Unsubscribe(Command[RowSet]):
    """The end of a link's subscription. Reply: the rows that it held."""

    queue: str
    holder: int
    cause: Cause = Cause.LINK_LOST  # how what the link still holds comes back, unless
    outcome: Outcome | None = None  # the source's default outcome ends it: ACCEPTED or REJECTED
    begun: RowSet | None = None  # of LINK_LOST: the other messages come back as PREFETCHED; None: there are no others


class Taken(NamedTuple):
    """Messages that a link got. If there are none, `unevaluated` is the block for which its selector must be evaluated first."""

    rows: RowSet
    unevaluated: int | None = None


@dataclass(frozen=True)
class Acquire(Command[Taken]):
    """The next messages for a link, at most up to the first that nobody has evaluated its selector for: see `Matching`."""

    queue: str
    holder: int
    messages: int  # the link's credit
    max_bytes: int | None = None
    matching: Matching | None = None
    behind: tuple[int, ...] = ()  # holders of links that go first: what they have not passed is left to them


class Browsed(NamedTuple):
    """Messages found, and the sequence number to go on from; `unevaluated` as of `Taken`."""

    rows: RowSet
    next: int
    unevaluated: int | None = None


@dataclass(frozen=True)
class Browse(Command[Browsed]):
    """Messages that are AVAILABLE from sequence number `first` on. They stay so. Reply: the rows, and where to go on."""

    queue: str
    first: int
    messages: int
    max_bytes: int | None = None
    matching: Matching | None = None


@dataclass(frozen=True)
class Settle(Command[None]):
    """The end of messages that a link holds, with an outcome; `error` says why they are rejected."""

    queue: str
    holder: int
    rows: RowSet
    outcome: Outcome = Outcome.ACCEPTED
    error: str | None = None

    @property
    def disposition(self) -> Disposition:
        """The outcome, with its error."""
        return Disposition(self.outcome, error=self.error)


@dataclass(frozen=True)
class Release(Command[None]):
    """The return of messages that a link holds to their queue."""

    queue: str
    holder: int
    rows: RowSet
    cause: Cause = Cause.RELEASED
    exclude: bool = False  # undeliverable here: do not offer them to this link again
    annotations: bytes | None = None  # an encoded map, to be merged into the messages' annotations
    retry: Retry | None = None  # time of the next delivery; None: by the queue's options

    @property
    def disposition(self) -> Disposition:
        """The cause, with its details."""
        return Disposition(None, self.cause, None, self.exclude, self.annotations, self.retry)


def command_of(disposition: Disposition, queue: str, holder: int, rows: RowSet) -> Settle | Release:
    """The command that ends the delivery of messages that `holder` has, in this way."""
    if disposition.outcome is not None:
        return Settle(queue, holder, rows, disposition.outcome, disposition.error)
    assert disposition.cause is not None
    return Release(queue, holder, rows, disposition.cause, disposition.exclude, disposition.annotations, disposition.retry)
