"""Events of stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..columns.series import Ints
from ..model.publish_keys import PublishKey
from ..model.stages import attempt_name
from .codec import Event, know, stored_as


@dataclass(frozen=True)
class Staged(Event):
    """Messages with a payload that wait, unseen, for a publish. `up`: microseconds of uptime."""

    kind = "staged"
    stage: str
    queue: str
    count: int
    sizes: int | Ints
    up: int
    attributes: dict[str, Any] | None = field(default=None, metadata=stored_as("traits"))  # see `Attributes.journaled`
    kept: Ints | None = None  # as of Enqueued
    exchange: str | None = None  # they came by this one: a queue that is gone when they are published takes its own along
    time: int | None = None  # None: an old journal's


@dataclass(frozen=True)
class Published(Event):
    """All messages of the stages, in this order, are appended to their queues: all at once or never. Of a write, the stages
    are those of `attempts`, and all others of it go."""

    kind = "published"
    stages: list[str]
    key: PublishKey | None
    time: int
    makes_room: bool | None = None  # they count as staged no more when they are appended; None: an old journal's still do
    write: str | None = None
    attempts: Ints | None = None
    sent: list[list[Any]] | None = None  # leases and numbers of the batches that were read for this
    user: str | None = None  # whose key it is; None: an old journal's
    elsewhere: str | None = None  # what belongs to the write at other brokers, in the words of its writer

    @property
    def names(self) -> list[str]:
        """The stages, in order."""
        if self.write is None or self.attempts is None:
            return self.stages
        return [attempt_name(self.write, attempt) for attempt in self.attempts.tolist()]


@dataclass(frozen=True)
class Discarded(Event):
    """Stages dropped without a publish."""

    kind = "discarded"
    stages: list[str]
    write: str | None = None  # all stages of this one, which has ended


@dataclass(frozen=True)
class ReadDropped(Event):
    """A batch was read for a write that turned out to be a repetition, and that had not sent it before."""

    kind = "read.dropped"
    lease: str
    batch: int
    series: str  # see `reads.series_of`


know(Staged, Published, Discarded, ReadDropped)
