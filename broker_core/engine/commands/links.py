"""Commands of links: holders that end with their connection."""

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
    """A subscription, which ends with its link or with the broker. Reply: its holder number."""

    queue: str
    priority: int = 0  # among the queue's consumers; the highest comes first
    exclusive: bool = False
    selector: str | None = None  # its canonical text; `Acquire` brings the known matches
    user: str | None = None  # of the link, for the archive; None: it has no name


@dataclass(frozen=True)
class Unsubscribe(Command[RowSet]):
    """The end of a link's subscription. Reply: the rows that it held."""

    queue: str
    holder: int
    cause: Cause = Cause.LINK_LOST  # of the return of messages that the link holds, if `outcome` is not set
    outcome: Outcome | None = None  # the source's default outcome ends these messages: ACCEPTED or REJECTED
    begun: RowSet | None = None  # messages that the client had begun to work on; the others return as PREFETCHED; None: all


class Taken(NamedTuple):
    """Messages that a link acquired. If it acquired nothing, `unevaluated` is the block for which its selector must be
    evaluated."""

    rows: RowSet
    unevaluated: int | None = None


@dataclass(frozen=True)
class Acquire(Command[Taken]):
    """The next messages for a link, at most up to the first one for which its selector is not evaluated: see `Matching`."""

    queue: str
    holder: int
    messages: int  # the link's credit
    max_bytes: int | None = None
    matching: Matching | None = None
    behind: tuple[int, ...] = ()  # holders of links with precedence: messages that they have not passed are left to them


class Browsed(NamedTuple):
    """Messages, and the sequence number to continue from. `unevaluated` is as in `Taken`."""

    rows: RowSet
    next: int
    unevaluated: int | None = None


@dataclass(frozen=True)
class Browse(Command[Browsed]):
    """AVAILABLE messages from sequence number `first` on, which stay AVAILABLE."""

    queue: str
    first: int
    messages: int
    max_bytes: int | None = None
    matching: Matching | None = None


@dataclass(frozen=True)
class Settle(Command[None]):
    """The end of messages that a link holds, with an outcome. `error` is the reason of a rejection."""

    queue: str
    holder: int
    rows: RowSet
    outcome: Outcome = Outcome.ACCEPTED
    error: str | None = None

    @property
    def disposition(self) -> DeliveryEnd:
        """The outcome, with its error."""
        return DeliveryEnd(self.outcome, error=self.error)


@dataclass(frozen=True)
class Release(Command[None]):
    """The return of messages that a link holds to their queue."""

    queue: str
    holder: int
    rows: RowSet
    cause: Cause = Cause.RELEASED
    exclude: bool = False  # undeliverable here: not offered to this link again
    annotations: bytes | None = None  # an encoded map that is merged into the messages' annotations
    retry: Retry | None = None  # time of the next delivery; None: by the queue's options

    @property
    def disposition(self) -> DeliveryEnd:
        """The cause, with its details."""
        return DeliveryEnd(None, self.cause, None, self.exclude, self.annotations, self.retry)


def command_of(disposition: DeliveryEnd, queue: str, holder: int, rows: RowSet) -> Settle | Release:
    """Return the command that ends the delivery of messages of `holder` by a disposition."""
    if disposition.outcome is not None:
        return Settle(queue, holder, rows, disposition.outcome, disposition.error)
    assert disposition.cause is not None
    return Release(queue, holder, rows, disposition.cause, disposition.exclude, disposition.annotations, disposition.retry)
